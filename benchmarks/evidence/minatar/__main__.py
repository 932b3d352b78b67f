"""A benchmark of offline agents on five games of MinAtar.

  python -um benchmarks.evidence.minatar                    # all stages
  python -um benchmarks.evidence.minatar data search        # some of them
  python -um benchmarks.evidence.minatar --agents my_module.MyAgent \
    --own 'MyAgent.weight = 1.0, 0.1, 10.0'                 # one's own agent
  python -um benchmarks.evidence.minatar --quick            # shows that it works

Stages:
  data    online DQNs make the data
  search  six configurations of each agent, on runs of the data that no table has
  whole   all agents, each in its best configuration, on all of the data
  parts   some agents on parts of the data
  heads   ensembles with other numbers of heads
  select  ranks of the search's policies without the emulator
  report  adds all runs so far to the record in `--out`, at first a copy of `results/`,
          and makes tables and figures of it

The time that each stage takes is printed first; with `--dry_run`, nothing else. Everything
runs by the package's own commands, which are printed; in a terminal, each sweep shows its
ETA. Run a command again to continue it.
`--agents`, `--games` and `--runs` choose a part, e.g. what the record lacks. Run 4 is for
the search, which chooses settings by results of all of its games.
README.md beside this file states the protocol.
"""

import argparse
import ast
import dataclasses
import pathlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
import yaml

from batch_rl.fixed_replay.agents import REGISTRY
from batch_rl.minatar import environment
from batch_rl.runs import gin_files
from batch_rl.runs.bindings import gin_internals
from batch_rl.sweep import cells as cell_lib
from batch_rl.sweep import monitor, plan
from batch_rl.utils import choices, machine, programs
from batch_rl.utils.user_code import user_modules
from benchmarks import measuring
from benchmarks.evidence import pong
from benchmarks.evidence.minatar import (
  figures,
  protocol,
  record,
  scores,
  tables,
)

KEPT = pathlib.Path(__file__).parent / 'results'
STAGES = ('data', 'search', 'whole', 'parts', 'heads', 'select', 'report')
START = 10.0  # Seconds that a run takes to start.
FQE_RATE = 350.0  # Updates a second of fitted Q evaluation, on two cores.
_STAGE_OF = {'online': 'data', 'networks': 'heads'}  # folders named otherwise
# Of agents of the user; Dopamine's own optimiser is RMSProp.
ADAM = 'AnyAgent.optimizer = @tf.train.AdamOptimizer()'
Configurations = Mapping[protocol.Agent, Sequence[protocol.Configuration]]


@dataclasses.dataclass(frozen=True)
class Scale:
  """Extent of the benchmark.

  Attributes:
    games: Games of the tables.
    runs: Runs of the tables.
    search_games: Games of the search.
    few_games: Games of the stages `parts` and `heads`.
    online: Gin bindings of the online runs.
    iterations: Number of iterations of the offline runs; `few_games` have half of them.
    offline: Other gin bindings of the offline runs.
    fqe: Number of iterations of fitted Q evaluation, and of updates in each.
  """

  games: Sequence[str] = protocol.GAMES
  runs: Sequence[int] = protocol.RUNS
  search_games: Sequence[str] = protocol.SEARCH_GAMES
  few_games: Sequence[str] = protocol.FEW_GAMES
  online: Sequence[str] = (
    f'LoggedRunner.num_iterations = {protocol.ONLINE_ITERATIONS}',
    f'LoggedRunner.evaluation_steps = {protocol.EVALUATION_STEPS}',
  )
  iterations: int = protocol.ITERATIONS
  offline: Sequence[str] = (
    'FixedReplayRunner.training_steps = '
    f'{protocol.UPDATE_PERIOD * protocol.UPDATES_AN_ITERATION}',
    f'FixedReplayRunner.evaluation_steps = {protocol.EVALUATION_STEPS}',
  )
  fqe: tuple[int, int] = (3, 10_000)

  def of_games(self, chosen: Sequence[str]) -> 'Scale':
    """Returns the part with these games; settings are chosen by `search_games`."""
    return dataclasses.replace(
      self,
      games=[g for g in self.games if g in chosen],
      few_games=[g for g in self.few_games if g in chosen],
    )


_BREAKOUT = ('MinAtar-Breakout',)
# It only shows that everything works.
QUICK = Scale(
  games=_BREAKOUT,
  runs=(1,),
  search_games=_BREAKOUT,
  few_games=_BREAKOUT,
  online=(
    'LoggedRunner.num_iterations = 4',
    'LoggedRunner.training_steps = 5000',
    'LoggedRunner.evaluation_steps = 500',
    'AnyAgent.epsilon_decay_period = 5000',
  ),
  iterations=4,
  offline=(
    'FixedReplayRunner.training_steps = 800',
    'FixedReplayRunner.evaluation_steps = 500',
  ),
  fqe=(1, 200),
)
QUICK_AGENTS = ('dqn_adam', 'rem', 'bc')


class Cost(NamedTuple):
  """Cost of a sweep, or of a selection.

  Attributes:
    name: Its stage.
    runs: Number of its runs.
    left: Number of those that are not done.
    seconds: Time that these take, one at a time.
    at_once: Time that they take, one on each core.
  """

  name: str
  runs: int
  left: int
  seconds: float
  at_once: float


class Benchmark:
  """The stages of the benchmark, in a work directory.

  Args:
    options: See `main`.
    agents: Agents that are searched and trained.
  """

  def __init__(
    self, options: argparse.Namespace, agents: Sequence[protocol.Agent]
  ):
    self._work_dir, self._out = options.work_dir, options.out or KEPT
    self._scale = QUICK if options.quick else Scale()
    if options.games:
      self._scale = self._scale.of_games(options.games)
    self._dry_run, self._agents = options.dry_run, agents
    # Of `search_games`, what is made here.
    self._searched = [
      game for game in self._scale.search_games if game in self._scale.games
    ]
    # Runs of the data; those of the tables are not the search's.
    self._all_runs = options.runs or [*self._scale.runs, protocol.SEARCH_RUN]
    self._runs = [r for r in self._all_runs if r != protocol.SEARCH_RUN]
    self._by_folder = {a.folder: a for a in (*protocol.AGENTS, *agents)}
    self._costs: list[Cost] = []  # of a dry run

  def data(self) -> None:
    """Makes the data, those of the search first."""
    scale = self._scale
    of_search = [r for r in self._all_runs if r not in self._runs]
    for games, runs in ((self._searched, of_search), (scale.games, self._runs)):
      if runs:
        self._sweep(
          'online', {protocol.ONLINE_AGENT: {}}, games, runs, job='online',
          gin_bindings=[*scale.online], rates={'train': 1500, 'eval': 8000},
        )  # fmt: skip

  def search(self) -> None:
    """Trains each agent in its first configurations, then in those that follow."""
    if protocol.SEARCH_RUN not in self._all_runs:
      print(f'search: left out, as --runs lacks {protocol.SEARCH_RUN}')
      return
    first = {agent: agent.first_configurations() for agent in self._agents}
    self._try(first, 1)
    results = self._results()
    further = {
      agent: agent.further_configurations(self._known(agent, results, among))
      for agent, among in first.items()
    }
    self._try(further, 1 + protocol.FIRST_CONFIGURATIONS)

  def _try(self, configurations: Configurations, number: int) -> None:
    """Runs a sweep for each configuration, the agents side by side."""
    for i in range(max(map(len, configurations.values()))):
      agents = {a: c[i] for a, c in configurations.items() if i < len(c)}
      self._sweep(
        f'search/{number + i}', _as_settings(agents), self._searched,
        [protocol.SEARCH_RUN],
      )  # fmt: skip

  def _best(
    self,
    agent: protocol.Agent,
    among: Sequence[protocol.Configuration] | None = None,
    results: pd.DataFrame | None = None,
  ) -> protocol.Configuration:
    """Returns the configuration with the best score in the search.

    Args:
      agent: The agent.
      among: Its configurations that are compared; None for all.
      results: Runs to compare, or None for all so far.

    Raises:
      ValueError: If the search has not ended, or no loss was finite.
    """
    results = self._results() if results is None else results
    if among is None:
      first = agent.first_configurations()
      best = self._best(agent, first, results)
      among = [*first, *agent.further_configurations(best)]
    found = scores.of_configurations(
      results, agent.folder, self._scale.search_games
    ).mean(axis=1)
    by_name = {configuration.name: configuration for configuration in among}
    diverged = record.diverged(self._work_dir / 'search', agent)
    missing = [n for n in by_name if n not in found and n not in diverged]
    # Of a search that was recorded on another machine, others have diverged.
    is_here = any(self._work_dir.glob(f'search/*/{agent.folder}'))
    if missing and (is_here or not {*by_name} & {*found.index}):
      raise ValueError(
        f'{agent.name} lacks results of its configuration {missing[0]}: run the '
        f'stage search for {" and ".join(self._scale.search_games)} first.'
      )
    left = [name for name in by_name if name in found]
    if not left:
      raise ValueError(f'{agent.name}: the loss of no configuration is finite.')
    return by_name[found[left].idxmax()]

  def _results(self) -> pd.DataFrame:
    """Returns the runs of the record, and those in the work directory."""
    old = record.read(self._out / 'evaluations.csv', record.EVALUATIONS)
    new = record.read_evaluations(self._work_dir, self._by_folder)
    return scores.of_runs(record.add_evaluations(old, new))

  def whole(self) -> None:
    """Trains the agents on all of the data."""
    chosen = self._chosen(self._agents)
    self._sweep('whole', chosen, self._scale.games, self._runs)

  def _chosen(self, agents: Iterable[protocol.Agent]) -> dict[str, dict]:
    results = self._results()
    return _as_settings({a: self._known(a, results) for a in agents})

  def _known(self, agent, results, among=None) -> protocol.Configuration:
    """Returns the best configuration; before the search, a dry run has any."""
    try:
      return self._best(agent, among, results)
    except ValueError:
      if not self._dry_run:
        raise
      return agent.first_configurations()[0]

  def parts(self) -> None:
    """Trains agents on parts of the data; of the package's, `AGENTS_ON_PARTS`."""
    others = {a.name for a in protocol.AGENTS} - {*protocol.AGENTS_ON_PARTS}
    self._sweep(
      'parts', self._chosen(a for a in self._agents if a.name not in others),
      self._scale.few_games, self._runs, self._scale.iterations // 2,
      grid={'FixedReplayBuffer.subset': [*protocol.PARTS]},
    )  # fmt: skip

  def heads(self) -> None:
    """Trains REM and Ensemble-DQN with other numbers of heads, or with networks."""
    parameter = protocol.HEADS_PARAMETER
    chosen = self._chosen(a for a in self._agents if a.parameter == parameter)
    for own in chosen.values():
      own['gin_bindings'] = [
        b for b in own['gin_bindings'] if not b.startswith(parameter)
      ]
    extent = self._scale.few_games, self._runs, self._scale.iterations // 2
    if chosen:
      self._sweep('heads', chosen, *extent, grid={parameter: [*protocol.HEADS]})
    if rem := chosen.get('rem'):
      self._sweep('networks', {'multi_network_rem': rem}, *extent)

  def select(self) -> None:
    """Ranks the policies of the search without the emulator."""
    iterations, updates = self._scale.fqe
    agents = [a for a in self._agents if a.name in protocol.AGENTS_TO_SELECT]
    if self._dry_run:
      configurations = protocol.FIRST_CONFIGURATIONS * 3 // 2
      policies = configurations * len(agents)
      for game in self._searched if policies else ():
        is_done = (self._selection(game) / 'scores.csv').exists()
        left = 0 if is_done else policies
        seconds = left * iterations * updates / FQE_RATE
        self._costs.append(Cost('select', policies, left, seconds, seconds))
      return
    for game in self._searched:
      begun = record.cells(self._work_dir / 'search')
      done = {*begun.directory[begun.state == cell_lib.DONE]}
      runs = sorted(
        path.parent
        for agent in agents
        for path in self._work_dir.glob(
          f'search/*/{agent.folder}/{game}/run-*/seed-*/run.json'
        )
        if str(path.parent) in done
      )
      if runs:
        pong.run(
          'batch_rl.fixed_replay.select', *runs,
          f'--method={",".join(record.METHODS)}',
          f'--out={self._selection(game)}',
          f'--gin_bindings=FixedReplayRunner.num_iterations = {iterations}',
          f'--gin_bindings=FixedReplayRunner.training_steps = {updates}',
          '--gin_bindings=tf.train.AdamOptimizer.learning_rate = 0.001',
        )  # fmt: skip

  def _selection(self, game: str) -> pathlib.Path:
    return self._work_dir / 'selection' / game

  def report(self) -> None:
    """Adds the runs to the record; writes tables and figures.

    Raises:
      ValueError: If there are no runs.
    """
    if self._dry_run:
      return
    evaluations, data, selection = record.update(
      self._work_dir, self._out, self._by_folder
    )
    if evaluations.empty:
      raise ValueError(
        f'There are no evaluations in {self._work_dir} or {self._out}.'
      )
    runs = scores.of_runs(evaluations)
    text = tables.write(runs, data, selection, self._out)
    figures.write(runs, evaluations, selection, self._out)
    print(tables.without_marks(text))
    print(self._out)

  def _sweep(
    self,
    folder: str,
    agents: Mapping[str, Mapping],
    games: Sequence[str],
    runs: Sequence[int],
    iterations: int | None = None,
    **settings: Any,
  ) -> None:
    """Runs the unfinished cells of a sweep, in `<work_dir>/<folder>`."""
    if not runs or not games:
      print(f'{folder}: left out, as --runs or --games has none of it')
      return
    work_dir, scale = self._work_dir.absolute(), self._scale
    iterations = iterations or scale.iterations
    content = {
      'base_dir': str(work_dir / folder),
      'data_dir': str(work_dir / 'data'),
      'store_dir': str(work_dir / 'stores'),
      'games': [*games],
      'runs': ','.join(map(str, runs)),
      'agents': {**agents},
      'gin_bindings': [
        f'FixedReplayRunner.num_iterations = {iterations}',
        *scale.offline,
      ],
      # On one core: updates a second, and agent steps a second.
      'rates': {'train': 700, 'eval': 8000},
      **settings,
    }
    name = 'dry_run' if self._dry_run else folder.replace('/', '-')
    path = work_dir / 'sweeps' / f'{name}.yaml'
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding='utf-8')
    if self._dry_run:
      name = folder.partition('/')[0]
      sweep = plan.read(str(path), {})
      _check_settings(sweep.cells)
      self._costs.append(_cost(_STAGE_OF.get(name, name), sweep))
      return
    try:
      pong.run('batch_rl.sweep', path)
    except SystemExit:
      # A run whose loss is not finite fails: its configuration is not chosen, and an agent
      # with such a run has no score.
      states = {*record.cells(work_dir / folder).state}
      failed = {cell_lib.FAILED}
      if not failed <= states <= failed | {cell_lib.DONE}:
        raise

  def costs(self) -> str:
    """Returns the costs that a dry run has found, a line for each stage; '' if none."""
    if not self._costs:
      return ''
    table = pd.DataFrame(self._costs, columns=Cost._fields)
    table = table.groupby('name', sort=False).sum()
    table.loc['in all'] = table.sum()
    line = '{:10}{:>12}{:>20}{:>20}'.format
    lines = [
      line('', 'runs left', 'one at a time', f'{machine.num_cpus()} cores')
    ]
    for name, runs, left, *seconds in table.itertuples():
      times = map(monitor.duration, seconds)
      lines.append(line(name, f'{left:.0f} of {runs:.0f}', *times))
    return '\n'.join(lines)


def _check_settings(cells: Iterable[plan.Cell]) -> None:
  """Binds the settings of the user's agents as their runs will, hours later.

  Raises:
    ValueError: If a class, a parameter or a value is wrong.
  """
  for cell in cells:
    if any(a.startswith('--agent_name=') for a in cell.arguments):
      # TensorFlow takes seconds to import.
      from batch_rl.fixed_replay import run_experiment  # noqa: F401 (names of gin)

      with gin_internals.separate_config():
        gin_files.apply(gin_files.read(cell.gin_files, cell.gin_bindings))


def _cost(name: str, sweep: plan.Sweep) -> Cost:
  """Returns the cost of a sweep."""
  state = monitor.Monitor(sweep)
  runs = len(sweep.cells)
  left = runs - state.count(cell_lib.DONE)
  seconds = state.seconds_left() + START * left
  at_once = min(machine.num_cpus(), left) or 1
  return Cost(name, runs, left, seconds, seconds / at_once)


def _as_settings(
  configurations: Mapping[protocol.Agent, protocol.Configuration],
) -> dict[str, dict]:
  """Returns the agents of a sweep, `{name: gin files and bindings}`."""
  return {
    agent.name: {
      **({'gin_files': [*agent.gin_files]} if agent.gin_files else {}),
      'gin_bindings': agent.bindings(configuration),
    }
    for agent, configuration in configurations.items()
  }


def chosen_agents(options: argparse.Namespace) -> list[protocol.Agent]:
  """Returns the agents that the command line names; all of the package's if none.

  Raises:
    ValueError: If there is no such agent, or `--own` does not fit.
  """
  known = {agent.name: agent for agent in protocol.AGENTS}
  names = options.agents or (QUICK_AGENTS if options.quick else [*known])
  users = [name for name in names if user_modules.is_dotted(name)]
  parameter, values = '', ()
  if options.own:
    if len(users) != 1:
      raise ValueError(
        f'--own is the parameter of your own agent, and --agents has '
        f'{len(users)} of them.'
      )
    parameter, _, given = map(str.strip, options.own.partition('='))
    values = tuple(value.strip() for value in given.split(','))
    if not parameter or len(values) != 3 or not all(values):
      raise ValueError(
        f"--own={options.own!r} is not 'parameter = first, second, third'."
      )
    # As the record of a run has them.
    parameter = '.'.join(parameter.split('.')[-2:])
    values = tuple(map(_as_recorded, values))
  if options.without_target and not users:
    raise ValueError('--without_target is for your own agent.')
  return [
    protocol.Agent(
      name,
      parameter,
      values,
      has_target=not options.without_target,
      gin_bindings=(ADAM,),
      gin_files=tuple(options.gin_files or ()),
    )
    if name in users
    else known[choices.choose('agent', name, known)]
    for name in names
  ]


def _as_recorded(value: str) -> str:
  """Returns a value of gin as it writes it, e.g. 1e-05 for 0.00001."""
  try:
    return repr(ast.literal_eval(value))
  except (SyntaxError, ValueError):
    return value  # a reference


def run_stages(
  options: argparse.Namespace, agents: Sequence[protocol.Agent]
) -> None:
  """Prints the cost of the stages, then runs them unless this is a dry run."""
  dry = Benchmark(
    argparse.Namespace(**{**vars(options), 'dry_run': True}), agents
  )
  benchmark = Benchmark(options, agents)
  stages = options.stages or STAGES
  for stage in stages:
    getattr(dry, stage)()
  if costs := dry.costs():
    print(costs)
  if not options.dry_run:
    for stage in stages:
      getattr(benchmark, stage)()


def main() -> None:
  """Runs the chosen stages."""
  parser = argparse.ArgumentParser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  parser.add_argument('stages', nargs='*', metavar='stage')
  parser.add_argument('--work_dir', type=pathlib.Path, default='runs/minatar')
  measuring.add_out(parser, KEPT, '<work_dir>/results')
  parser.add_argument(
    '--agents', nargs='+', help='of the package, or yours as my_module.MyAgent'
  )
  parser.add_argument(
    '--own', help="your agent's parameter and three values, the usual one first"
  )
  parser.add_argument(
    '--gin_files', nargs='+', help='of your agent; the optimiser is Adam always'
  )
  parser.add_argument(
    '--without_target',
    action='store_true',
    help='your agent has no target network: more learning rates are searched',
  )
  parser.add_argument(
    '--games', nargs='+', choices=protocol.GAMES, help='by default all'
  )
  parser.add_argument(
    '--runs',
    nargs='+',
    type=int,
    choices=(*protocol.RUNS, protocol.SEARCH_RUN),
    help='runs of the data; 4 is that of the search; by default all',
  )
  parser.add_argument('--quick', action='store_true')
  parser.add_argument('--dry_run', action='store_true')
  options = parser.parse_args()
  for stage in options.stages:
    choices.choose('stage', stage, STAGES)
  environment.check_installed()
  if options.quick:
    if options.out:
      raise ValueError(
        '--quick writes no record: leave out --out and --update.'
      )
    options.work_dir = options.work_dir / 'quick'
    options.out = options.work_dir / 'results'
  elif not options.dry_run:
    options.out = measuring.continue_record(options, KEPT)
  agents = chosen_agents(options)
  for name in filter(user_modules.is_dotted, options.agents or ()):
    REGISTRY.find(name)  # A wrong class would be found after hours.
  run_stages(options, agents)


if __name__ == '__main__':
  sys.exit(programs.run(main))
