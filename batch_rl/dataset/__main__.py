"""Command line of the data tools.

python -m batch_rl.dataset fetch https://host/dqn --game=Pong --run=1-5
python -m batch_rl.dataset fetch gs://rl_unplugged --layout=unplugged --game=Pong --run=1
python -m batch_rl.dataset import downloads/pong stores/Pong-1
python -m batch_rl.dataset verify $DATA_DIR/Pong/1
python -m batch_rl.dataset inspect $DATA_DIR/Pong/1 --plot pong.png
python -m batch_rl.dataset convert $DATA_DIR/Pong/1 stores/Pong-1
python -m batch_rl.dataset subset $DATA_DIR/Pong/1 'random_trajectories(0.1)'
python -m batch_rl.dataset import rlu_atari/Pong_run_1/1.3.0 stores/Pong-1
python -m batch_rl.dataset compare $DATA_DIR/Pong/1 stores/Pong-1
python -m batch_rl.dataset fingerprint $DATA_DIR/Pong/1 > Pong-1.json
python -m batch_rl.dataset export $DATA_DIR/Pong/1 datasets/pong-v0 --format minari
python -m batch_rl.dataset export stores/Pong-1 $DATA_DIR/Pong/1 --format shards
"""

import contextlib
import sys
from collections.abc import Sequence
from typing import NoReturn

from batch_rl import dopamine_compat
from batch_rl.dataset.commands import (
  compare,
  console,
  convert,
  fetch,
  import_export,
  inspect,
  subset,
  verify,
)
from batch_rl.utils import programs


def main(arguments: Sequence[str] | None = None) -> NoReturn:
  """Parses the command line, runs a command and exits.

  Args:
    arguments: Command line without the program's name; None for `sys.argv`.
  """
  with contextlib.suppress(ImportError):  # data_only has no TensorFlow
    dopamine_compat.activate()  # some commands import it
  parser = console.Parser(
    prog='python -m batch_rl.dataset', description='Tools for logged data.'
  )
  commands = parser.add_subparsers(
    dest='command', metavar='COMMAND', required=True
  )
  for module in fetch, verify, inspect, convert, subset, import_export, compare:
    module.add(commands)

  def run_command() -> int:
    parsed = parser.parse_args(arguments)
    return parsed.function(parsed)

  sys.exit(programs.run(run_command))


if __name__ == '__main__':
  main()
