"""Directories of runs with made-up results."""

import os
import pathlib
import pickle

import numpy as np

from batch_rl.atari import roms
from batch_rl.minatar import games as minatar
from batch_rl.runs import evaluations
from batch_rl.utils import files

# Names of these agents; those of others are their classes'.
NAMES = {'c51': 'C51', 'quantile': 'QR-DQN', 'multi_head_dqn': 'REM'}
OF_THE_RUNNER = ('evaluation_steps', 'max_steps_per_episode')


def write(
  base_dir: pathlib.Path,
  returns,
  agent='dqn',
  game='Pong',
  seed=1,
  data=1,
  planned=None,
  optimizer='Adam',
  rom_md5=None,
  subset=None,
  sticky=0.25,
  subset_hash=None,
  shards=None,
  root='/data',
  init_checkpoint_dir=None,
  epsilon_eval=0.001,
  changes=(),
  code=None,
  diagnostics=None,
  described=None,
  arguments=None,
  **bindings,
) -> pathlib.Path:
  """Writes a run's `run.json` and evaluations of two episodes each.

  Args:
    base_dir: Run directory.
    returns: Mean return of each evaluation.
    data: Number of the dataset's run that it trained on; None for an online run.
    planned: Number of iterations; None for the number of returns.
    optimizer: 'RMSProp' or 'Adam'.
    rom_md5: MD5 of the ROM; None for the dataset's.
    subset_hash: Hash of the data; None for one derived from game, run and subset.
    shards: Number of shards; None for a run that does not record them.
    root: Directory of the dataset.
    code: Versions of the user's modules, `{module: digits}`.
    diagnostics: Values of each iteration, `{name: values}`.
    described: Entries that the environment adds to its description.
    arguments: Arguments in Python of the function that makes the environment.
    **bindings: Further parameters of the agent or the runner.
  """
  bindings = {'optimizer': f'@tf.train.{optimizer}Optimizer()', **bindings}
  agent_class = 'FixedReplayDQNAgent' if 'dqn' in agent else 'Agent'
  lines = [
    f'{"Runner" if name in OF_THE_RUNNER else agent_class}.{name} = {value}'
    for name, value in bindings.items()
  ]
  lines.append(f'Runner.num_iterations = {planned or len(returns)}')
  lines.append(f"create_atari_environment.game_name = '{game}'")
  dqn = 'DQN (Nature)' if optimizer == 'RMSProp' else 'DQN (Adam)'
  environment = {'game': game, 'repeat_action_probability': sticky}
  if minatar.is_minatar(game):
    environment |= {'frame_skip': 1}
  else:
    rom_md5 = rom_md5 or roms.md5s(game)['legacy']
    environment |= {'rom_md5': rom_md5, 'max_num_frames_per_episode': 108_000}
  record = {
    'run_id': f'id of {base_dir}',
    'agent': agent,
    'display_name': dqn if agent == 'dqn' else NAMES.get(agent),
    'seed': seed,
    'epsilon_eval': epsilon_eval,
    'changes': list(changes),
    'code': code,
    'init_checkpoint_dir': init_checkpoint_dir,
    'gin_config': '\n'.join(['# Parameters for Agent:', *lines]),
    'environment': environment | (described or {}),
    'create_environment': {'name': 'my:make', 'kwargs': arguments or {}},
  }
  if data is not None:
    record['replay_dir'] = f'{root}/{game}/{data}/replay_logs'
    subset_hash = subset_hash or f'{game} {data} {subset}'
    record['data'] = {'subset': subset, 'subset_hash': subset_hash}
    if shards is not None:
      record['data']['shards'] = list(range(shards))
  os.makedirs(base_dir)
  files.write_json(os.path.join(base_dir, 'run.json'), record)
  for iteration, mean in enumerate(returns):
    played = [
      evaluations.Episode(i, 100, mean + difference, mean)
      for i, difference in enumerate((-1.0, 1.0))
    ]
    found = {k: v[iteration] for k, v in (diagnostics or {}).items()}
    evaluations.write(str(base_dir), iteration, played, 2, diagnostics=found)
  return pathlib.Path(base_dir)


def write_dopamine_log(base_dir, returns):
  """Writes the last log of Dopamine's logger."""
  (base_dir / 'logs').mkdir(parents=True)
  content = {
    f'iteration_{i}': {
      'train_average_return': [0.0],
      'eval_episode_returns': [value - 1, value + 1],
      'eval_average_return': [np.float64(value)],
    }
    for i, value in enumerate(returns)
  }
  path = base_dir / 'logs' / f'log_{len(returns) - 1}'
  path.write_bytes(pickle.dumps(content))
