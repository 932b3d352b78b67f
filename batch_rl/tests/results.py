"""The results of a run, except what depends on time or place."""

import gzip
import hashlib
import os
import pathlib
import pickle

import tensorflow as tf

from batch_rl.dataset.shards import shard_files
from batch_rl.runs import checkpoints, evaluations

# Statistics in the log that depend on the speed of the machine.
_TIMES = (
  'train_updates_per_second',
  'train_waiting_for_data',
  'train_average_steps_per_second',
)


def scalars(base_dir) -> dict:
  """Returns what TensorBoard's files hold: `{tag: {step: value}}`."""
  found = {}
  for path in sorted(pathlib.Path(base_dir).glob('events.*')):
    for event in tf.compat.v1.train.summary_iterator(str(path)):
      for value in event.summary.value:
        found.setdefault(value.tag, {})[event.step] = value.simple_value
  return found


def of_run(base_dir, log_dir=None) -> dict:
  """Returns hashes and values, equal for runs with the same results.

  `log_dir` has the shards of an online run, which has ended.
  """
  base_dir = pathlib.Path(base_dir)
  *_, last = checkpoints.find(str(base_dir))
  found = {'position': last.position}
  if os.path.exists(last.weights + '.index'):
    reader = tf.train.load_checkpoint(last.weights)
    for name in reader.get_variable_to_shape_map():
      array = reader.get_tensor(name)
      found[f'variable {name}'] = hashlib.sha256(array.tobytes()).hexdigest()
  with open(base_dir / 'logs' / f'log_{last.position.number}', 'rb') as file:
    for iteration, statistics in pickle.load(file).items():
      for name, values in statistics.items():
        if name not in _TIMES:
          found[f'{iteration} {name}'] = [float(value) for value in values]
  for path in sorted((base_dir / evaluations.DIRECTORY).glob('*.json')):
    found[path.name] = path.read_text()
  if log_dir is not None:
    for suffix in shard_files.list_suffixes(str(log_dir)):
      for name in shard_files.FILES:
        path = os.path.join(log_dir, shard_files.file_name(name, suffix))
        # The compressed bytes depend on the positions of checkpoints.
        with gzip.open(path) as file:
          content = file.read()
        found[os.path.basename(path)] = hashlib.sha256(content).hexdigest()
  return found
