r"""Ranks trained policies from logged data alone, without an emulator.

  python -um batch_rl.fixed_replay.select /tmp/dqn /tmp/rem \
    --method=fqe,td_error,q_value --out=/tmp/selection

The same command resumes. If at least three of the policies were evaluated, the last lines
say how well each method ranks them.
"""

import contextlib
import os
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import tabulate
from absl import flags, logging

from batch_rl.dataset import run_directories
from batch_rl.dataset.store import store_directory
from batch_rl.fixed_replay import ranking, recorded_run
from batch_rl.runs import (
  agent_names,
  command_line,
  evaluations,
  games,
  gin_files,
  interruption,
  run_record,
)
from batch_rl.utils import choices, files

METHODS = ('fqe', 'td_error', 'q_value')
_TABLE = 'scores.csv'
_MIN_RETURNS = 3  # fewer have no meaningful correlation
_CHECKPOINTS = (
  "Checkpoints of each run: 'last', 'best' (evaluation), 'all', or e.g. 3,7-9."
)
# Help of flags with a text, and of those that can be repeated.
_TEXTS = {
  'out': 'Directory for the table and the runs of fqe.',
  'replay_dir': 'Data, a run directory or a store; default: those of the runs.',
}
_LISTS = {
  'module_dirs': 'Folders of your own modules, if they have moved.',
  'gin_files': 'gin files that override the settings of fqe.',
  'gin_bindings': 'gin bindings that override the files and the settings of fqe, e.g. '
  '"FixedReplayRunner.num_iterations=5".',
}


def define_flags() -> None:
  """Defines the flags; not at import, since `train` defines some of them too."""
  known = ', '.join(METHODS)
  text = f'Methods, of {known}; the first one determines the ranking.'
  flags.DEFINE_list('method', ['fqe'], text)
  flags.DEFINE_string('checkpoints', 'last', _CHECKPOINTS)
  flags.DEFINE_integer('seed', 0, 'Seed of everything random.', lower_bound=0)
  command_line.define(_TEXTS, _LISTS)


class Candidate(NamedTuple):
  """A trained policy.

  Attributes:
    run: Directory of its run, as it was given.
    iteration: Iteration of the checkpoint.
    record: Record of the run.
    true_return: Mean return of its evaluation; None if it was not evaluated.
  """

  run: str
  iteration: int
  record: dict[str, Any]
  true_return: float | None

  def __str__(self) -> str:
    return f'{self.run}, iteration {self.iteration}'


def find_candidates(runs: Iterable[str], chosen: str) -> list[Candidate]:
  """Returns the chosen checkpoints of runs.

  Args:
    runs: Run directories.
    chosen: Choice of checkpoints, as in `recorded_run.choose_checkpoints`.

  Raises:
    ValueError: If a directory has no offline run, or a checkpoint is missing or damaged.
  """
  return [
    Candidate(run, number, record, evaluations.mean_return(run, number))
    for run in dict.fromkeys(run.rstrip('/') or '/' for run in runs)
    for record in [recorded_run.read_record(run)]
    for number in recorded_run.intact_checkpoints(run, chosen)
  ]


def common_data(candidates: Sequence[Candidate]) -> str:
  """Returns the data directory of all candidates.

  Raises:
    ValueError: If they were trained on different data.
  """
  first, *others = candidates
  for other in others:
    if _data_of(other) != _data_of(first):
      raise ValueError(
        f'{first.run} and {other.run} were trained on different data ({_data_of(first)}; '
        f'{_data_of(other)}): choose runs on the same data, or give --replay_dir.'
      )
  data_dir = first.record['replay_dir'] or ''
  if not files.is_remote(data_dir) and not os.path.isdir(data_dir):
    raise ValueError(
      f'The data of {first.run} are no longer in {data_dir}: give --replay_dir.'
    )
  return data_dir


def _data_of(candidate):
  data = candidate.record.get('data') or {}
  if data.get('subset_hash') is None:
    return candidate.record['replay_dir']
  return f'subset {data.get("subset") or "all"}, hash {data["subset_hash"]}'


def score(
  candidates: Sequence[Candidate],
  methods: Sequence[str],
  replay_data_dir: str,
  sources: Sequence[gin_files.Source],
  given: Any,
) -> dict[str, np.ndarray]:
  """Returns the scores of policies by each method, float64 (n,); NaN if Q diverges.

  A mistake or an interruption ends the program, see `command_line`.

  Args:
    candidates: The n policies.
    methods: Names in `METHODS`.
    replay_data_dir: Directory of the shards, or a store.
    sources: gin files and bindings that override the settings of the first run.
    given: An object with the attributes `out`, `seed` and `replay_dir`.
  """
  # TensorFlow takes seconds to import.
  import tensorflow as tf

  from batch_rl.fixed_replay import fitted_q, frozen_policy, scores

  seed, found = given.seed, {}
  with command_line.user_errors():
    game = games.logged_game(replay_data_dir)
    for candidate in candidates:
      games.check_game_of_run(candidate.run, candidate.record, game)
    fitted = fitted_q.FittedQ(
      *(candidates[0].record, sources, replay_data_dir, given.out, seed),
      # All of other data, unless a binding chooses a part.
      keeps_part=not given.replay_dir,
      fits='fqe' in methods,
    )
    policies = [
      frozen_policy.FrozenPolicy(store_directory.absolute(c.run), c.iteration)
      for c in candidates
    ]
    for candidate, policy in zip(candidates, policies, strict=True):
      if policy.state_shape != policies[0].state_shape:
        raise ValueError(
          f'{candidate.run} has states of shape {policy.state_shape}, '
          f'{candidates[0].run} of {policies[0].state_shape}: rank them apart.'
        )
  logged = fitted.logged
  data = [c.record.get('data') or {} for c in candidates]
  if logged.data_hash not in [own.get('subset_hash') for own in data]:
    logging.warning(
      'The policies were trained on other data than %s.', replay_data_dir
    )
  logging.info(
    'Scores at %d initial states and %d transitions of %s.',
    *(len(logged.initial_rows), len(logged.rows), replay_data_dir),
  )

  def value(method, policy):
    if method != 'fqe':
      if not policy.estimates_returns:
        return np.nan  # e.g. BC, whose outputs are logits
      return scores.OWN[method](policy, logged, seed)
    with tf.Graph().as_default():
      with command_line.user_errors():
        runner = fitted.make_runner(policy)
      with contextlib.closing(runner):
        return fitted.fit(runner, policy)

  for method in methods:
    found[method] = np.full(len(policies), np.nan)
    for i, policy in enumerate(policies):
      start = time.monotonic()
      name = f'{method} of {candidates[i]} (policy {i + 1} of {len(policies)})'
      logging.info('%s ...', name)
      with command_line.run_errors():
        try:
          found[method][i] = value(method, policy)
        except FloatingPointError as error:
          logging.warning('%s: %s', name, error)
      seconds = time.monotonic() - start
      logging.info('%s: %.6g, %.0f s.', name, found[method][i], seconds)
  return found


def table(
  candidates: Sequence[Candidate], found: dict[str, np.ndarray]
) -> pd.DataFrame:
  """Returns the policies by rank, the best first.

  Columns are rank, run, iteration, agent, the methods, and true_return.

  Args:
    candidates: The n policies.
    found: Scores by method, (n,); the first method ranks.
  """
  rows = pd.DataFrame(
    {
      'run': [c.run for c in candidates],
      'iteration': [c.iteration for c in candidates],
      'agent': [agent_names.of_record(c.record) for c in candidates],
      **found,
      'true_return': [c.true_return for c in candidates],
    }
  )
  method = next(iter(found))
  order = np.argsort(-ranking.goodness(method, found[method]), kind='stable')
  rows = rows.iloc[order].reset_index(drop=True)
  rows.insert(0, 'rank', rows.index + 1)
  return rows


def verdicts(rows: pd.DataFrame, methods: Iterable[str]) -> list[str]:
  """Returns a line about each method's ranking of the policies that were evaluated.

  Policies without a score, e.g. of BC, do not count; one whose fit diverges is last.

  Args:
    rows: Result of `table`.
    methods: Names of the methods.
  """
  known = rows[rows['true_return'].notna()]
  if len(known) < _MIN_RETURNS:
    return []
  returns = known['true_return'].to_numpy(float)
  lines = [
    '',
    f'Against the mean returns of {len(known)} evaluated policies, {returns.min():g} to '
    f'{returns.max():g}. Regret@1 is (best - chosen) / (best - worst).',
  ]
  for method in methods:
    scored = known[np.isfinite(known[method].to_numpy(float))]
    ranked = known if method == 'fqe' and len(scored) else scored
    if len(ranked) < _MIN_RETURNS:
      lines.append(f'- {method}: too few scores ({len(scored)})')
      continue
    good = ranking.goodness(method, ranked[method].to_numpy(float))
    returns = ranked['true_return'].to_numpy(float)
    end = f' (of {len(ranked)} with a score)' * (len(ranked) < len(known))
    lines.append(
      f'- {method}: rank correlation (Spearman) '
      f'{ranking.rank_correlation(good, returns):.2f}, regret@1 '
      f'{ranking.regret(good, returns):.2f}{end}'
    )
  return lines


def main(runs: Sequence[str], given: Any = None) -> None:
  """Scores and ranks policies; prints the table and writes it.

  Args:
    runs: Run directories.
    given: An object with attributes of the flags' names; None for the flags.
  """
  interruption.exit_on_sigterm()
  given = given or command_line.take_flags()
  with command_line.user_errors():
    command_line.require(['out'], given)
    files.check_local(given.out)
    if not runs:
      raise ValueError('no run: give the base_dirs of finished runs.')
    methods = list(dict.fromkeys(given.method))
    for method in methods or ['']:
      choices.choose('method', method, METHODS)
    command_line.add_module_dirs(given.module_dirs)
    sources = gin_files.read(given.gin_files, given.gin_bindings)
    candidates = find_candidates(runs, given.checkpoints)
    if given.replay_dir:
      replay_data_dir = run_directories.find_data(given.replay_dir)
    else:
      replay_data_dir = common_data(candidates)
    run_record.lock(given.out, '--out')
  found = score(candidates, methods, replay_data_dir, sources, given)
  rows = table(candidates, found)
  path = os.path.join(given.out, _TABLE)
  with command_line.run_errors():
    files.write_bytes(path, rows.to_csv(index=False).encode())
  cells = rows.astype(object).where(rows.notna(), '').values.tolist()
  text = tabulate.tabulate(cells, list(rows), 'github', floatfmt='.4g')
  print('\n'.join([text, *verdicts(rows, methods)]))
  logging.info('table: %s', path)


if __name__ == '__main__':
  define_flags()
  command_line.run(main, takes_arguments=True)
