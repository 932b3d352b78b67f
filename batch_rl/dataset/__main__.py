r"""Tools for logged data.

python -m batch_rl.dataset verify $DATA_DIR/Pong/1
"""

import argparse
import hashlib
import os
import sys

import numpy as np
import tqdm.auto as tqdm

from batch_rl.dataset import files, shard


def verify(run_dir: str) -> list[str]:
  """Reads every file of a run and compares it with format and manifest.

  Args:
    run_dir: the directory above `replay_logs`.

  Returns:
    What is wrong, a line each; empty if all is well.

  Raises:
    ValueError: if there are no shards at all.
  """
  data_dir = shard.replay_logs_dir(run_dir)
  manifest = files.read_json(os.path.join(data_dir, shard.MANIFEST)) or {}
  described = {entry['suffix']: entry for entry in manifest.get('shards', ())}
  suffixes = shard.list_suffixes(data_dir)
  wrong = [
    f'Shard {suffix} is in the manifest, but not in {data_dir}.'
    for suffix in sorted(set(described) - set(suffixes))
  ]
  wrong += shard.find_gaps(data_dir, suffixes)
  num_actions = manifest.get('environment', {}).get('num_actions')
  for suffix in tqdm.tqdm(suffixes, unit='shard', disable=None):
    try:
      loaded = shard.read_shard(data_dir, suffix)
    except ValueError as error:
      wrong.append(str(error))
      continue
    largest = int(loaded.columns['action'].max())
    if num_actions is not None and largest >= num_actions:
      wrong.append(f'Shard {suffix} has action {largest} of {num_actions}.')
    wrong += _compare(data_dir, described.get(suffix, {}).get('files', {}))
    _print_shard(loaded)
  if not manifest:
    print('There is no manifest; only the format was verified.')
  return wrong


def _print_shard(loaded: shard.Shard) -> None:
  order = shard.time_order(loaded.add_count, loaded.capacity)
  ends = np.flatnonzero(loaded.columns['terminal'][order])
  print(
    f'shard {loaded.suffix}: {len(order):,} rows, {len(ends):,} episodes end, '
    f'sum of rewards {loaded.columns["reward"][order].sum():+.0f}'
  )


def _compare(data_dir: str, described: dict) -> list[str]:
  """Compares files with the hashes that the manifest has of them."""
  wrong = []
  for name, expected in described.items():
    path = os.path.join(data_dir, name)
    with open(path, 'rb') as file:
      digest = hashlib.sha256(file.read()).hexdigest()
    if digest != expected['sha256']:
      wrong.append(f'{path} is not the file that the manifest describes.')
  return wrong


def main() -> None:
  """Parses the command line and runs a tool."""
  parser = argparse.ArgumentParser(
    prog='python -m batch_rl.dataset', description='Tools for logged data.'
  )
  commands = parser.add_subparsers(dest='command', required=True)
  command = commands.add_parser('verify', help='check every file of a run')
  command.add_argument('run_dir', help='the directory above replay_logs')
  arguments = parser.parse_args()
  try:
    wrong = verify(arguments.run_dir)
  except ValueError as error:
    print(f'error: {error}', file=sys.stderr)
    sys.exit(2)
  for line in wrong:
    print(line)
  print(f'{arguments.run_dir}: ' + ('damaged' if wrong else 'all is well'))
  sys.exit(bool(wrong))


if __name__ == '__main__':
  main()
