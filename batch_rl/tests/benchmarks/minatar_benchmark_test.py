"""The MinAtar benchmark: its protocol, and its record of made-up runs."""

import argparse
import shutil

import gin
import numpy as np
import pandas as pd
import pytest

from batch_rl.fixed_replay import run_experiment  # noqa: F401  (gin names)
from batch_rl.minatar import games
from batch_rl.report import aggregates
from batch_rl.runs import gin_files, run_record
from batch_rl.tests import gin_lines, shards
from batch_rl.tests.report import made_up_runs
from benchmarks import minatar_scores
from benchmarks.evidence.minatar import __main__ as program
from benchmarks.evidence.minatar import (
  figures,
  predictions,
  protocol,
  record,
  scores,
  tables,
)

GAME = 'MinAtar-Breakout'
AGENTS = {agent.folder: agent for agent in protocol.AGENTS}


@pytest.fixture
def work_dir(tmp_path, monkeypatch):
  """Runs of each stage on two made-up runs of the data."""
  monkeypatch.setattr(aggregates, 'REPETITIONS', 100)  # of the bootstrap
  settings = {'game': GAME, 'target_update_period': 1000}

  def write(path, returns, rate=0.001, **others):
    run = made_up_runs.write(tmp_path / path, returns, **settings, **others)
    text = (run / 'run.json').read_text()
    known = 'Runner.training_steps = 400\\nAdamOptimizer.learning_rate ='
    text = text.replace('# P', f'{known} {rate}\\n# P')
    (run / 'run.json').write_text(text)

  for run in (1, 2):
    write(f'online/dqn_adam/{GAME}/run-{run}', [1, 3, 4, 5, 6], data=None)
    place = f'{GAME}/run-{run}/seed-1'
    over = {'overestimation': [0.0, 1.0, 2.0, 9.0 * run]}
    write(f'whole/dqn_adam/{place}', [9, 2, 3, 1 + run], diagnostics=over)
    write(f'whole/bc/{place}', [0, 4, 5, 6], agent='BC')
    tenth = {'subset': 'random_trajectories(0.1)'}
    write(f'parts/dqn_adam/subset=x/{place}', [1], **tenth)
  write(f'more/two_hot/{GAME}/run-2/seed-1', [7, 8, 9, 10], agent='Two-hot')
  monkeypatch.setitem(protocol.MORE_AGENTS, 'two_hot', 'dqn_adam')
  write(f'online/dqn_adam/{GAME}/run-4', [6] * 5, data=None)
  for i, (rate, value) in enumerate([(0.001, 4), (0.00025, 5)], start=1):
    write(f'search/{i}/dqn_adam/{GAME}/run-4/seed-1', [value], rate=rate)
  for heads in (4, 50):
    write(
      f'heads/rem/num_heads={heads}/{GAME}/run-1/seed-1', [heads], num_heads=heads,
      agent='multi_head_dqn', transform_strategy="'STOCHASTIC'",
    )  # fmt: skip
  for run in (1, 2, 4):
    logs = tmp_path / 'data' / GAME / str(run) / 'replay_logs'
    metadata = {'environment': {'game': GAME}, 'seed': 7}
    with shards.make_log(logs, 50, stack_size=1, **metadata) as log:
      for step in range(20):
        log.add(np.zeros((2, 2), np.uint8), 0, float(step > 9), step % 5 == 4)
  return tmp_path


def rows_of(text):
  """Returns the rows of a Markdown table: `{first cell: others}`."""
  lines = [line for line in text.splitlines() if line.startswith('|')][2:]
  rows = [line.strip('| ').split(' | ') for line in lines]
  return {row[0]: row[1:] for row in rows}


def made_up_runs_of(stage, scores_, setting='', games=('A', 'B'), **columns):
  """Returns rows of `scores.of_runs`, `{(label, folder): scores of a run}`."""
  return pd.DataFrame(
    dict(
      stage=stage, label=label, agent=agent, setting=setting, game=game, run=run,
      updates=10, last=score, return_last=score, overestimation=-score, **columns,
    )
    for (label, agent), values in scores_.items()
    for run, score in enumerate(values, start=1)
    for game in games
  )  # fmt: skip


def test_agents_that_lack_a_run_have_no_interval(monkeypatch):
  monkeypatch.setattr(aggregates, 'REPETITIONS', 100)  # of the bootstrap
  ours = {('DQN (Adam)', 'dqn_adam'): [0.1, 0.2], ('BC', 'bc'): [0.3, 0.4]}
  runs = made_up_runs_of('whole', ours, best=1, half=1, quarter=1)
  runs = pd.concat([runs, made_up_runs_of('online', {('x', 'x'): [1, 1]})])
  runs = runs.fillna({'best': 1, 'half': 1, 'quarter': 1})
  text = tables.of_whole(runs)
  assert 'Left out' not in text
  # Nor is a run used that only some games have.
  third = runs[(runs.run == 1) & (runs.game == 'A')].assign(run=3)
  assert tables.of_whole(pd.concat([runs, third])) == text
  is_lacking = (runs.label == 'BC') & (runs.game == 'B') & (runs.run == 2)
  unfinished = runs.assign(updates=runs.updates.mask(is_lacking, 5))
  rows = rows_of(tables.of_whole(runs[~is_lacking]))
  assert rows['BC'] == ['1', '0.30', '1.00', '1.00', '1.00']
  assert rows['DQN (Adam)'][:2] == ['2', '0.15 [0.10, 0.20]']
  for fewer in (runs[(runs.label != 'BC') | (runs.game == 'A')], unfinished):
    text = tables.of_whole(fewer)
    assert [*rows_of(text)] == ['online DQN', 'DQN (Adam)']
    assert text.endswith('Left out, as runs are missing: BC.\n')
  # A game that lacks a run of all agents has no scores.
  fewer = runs[(runs.game == 'A') | (runs.run == 1)]
  assert 'are over 1 game.' in tables.of_whole(fewer)
  again = runs[runs.label == 'BC'].assign(setting='other')
  with pytest.raises(ValueError, match='several settings'):
    tables.of_whole(pd.concat([runs, again]))


def test_parts_and_heads_compare_with_as_few_and_as_many():
  parts = [
    made_up_runs_of('heads', {('REM', 'rem'): [0, 0.1]}, '1'),
    made_up_runs_of('heads', {('REM', 'rem'): [0.4, 0.5]}, '4'),
    made_up_runs_of('networks', {('REM (networks)', 'x'): [0.2, 0.3]}, '4'),
    made_up_runs_of('heads', {('REM', 'rem'): [0.9]}, '200'),
  ]
  text = tables.of_heads(pd.concat(parts))
  found = [line.strip('| ').split(' | ') for line in text.splitlines()[2:5]]
  assert [row[1] for row in found] == ['1', '4', '4']
  assert found[1][-2:] == ['1.00 [1.00, 1.00]', 'REM, 1 heads']
  assert found[2][-2:] == ['0.00 [0.00, 0.00]', 'REM, 4 heads']
  assert text.endswith('missing: REM with 200 heads.\n')
  bc = 'BC', 'bc'
  parts = [made_up_runs_of('parts', {bc: [0]}, p) for p in protocol.PARTS]
  parts.append(made_up_runs_of('whole', {bc: [0, 0]}, half=0.3))
  assert [*tables.by_part(pd.concat(parts))[1]['all']['BC'].flat] == [0.3, 0.3]


def test_what_predicts_returns():
  settings = [
    made_up_runs_of('search', {('DQN', 'dqn'): [i], ('BC', 'bc'): [i + 1.5]}, f'{i}')
    for i in range(4)
  ]  # fmt: skip
  runs = pd.concat(settings, ignore_index=True)
  last = runs['last']
  own = {'fqe': last, 'q_value': -last, 'td_error': -last}
  found = predictions.of_settings(runs[record.SELECTION[:4]].assign(**own))
  means = found.groupby('method')[['correlation', 'regret']].mean()
  assert means.loc['fqe'].tolist() == pytest.approx([1, 0])
  assert means.loc['q_value'].tolist() == pytest.approx([-1, 1])
  assert means.loc['td_error'].tolist() == pytest.approx([1, 0])
  assert means.loc[predictions.RANDOM].tolist() == pytest.approx([0, 0.5])
  # BC has 3 on average: two of its runs have failed, and three of DQN.
  over = predictions.of_overestimation(runs)
  assert list(over.failed) == [5, 5]
  assert [c[0] for c in over.correlation] == pytest.approx([-1, -1])
  assert [c[0] for c in over.chance] == [1, 1]
  runs.loc[runs.agent == 'dqn', ['agent', 'overestimation']] = 'cql', 0.0
  over = predictions.of_overestimation(runs)
  assert min(c[0] for c in over.correlation) > -1
  assert [c[0] for c in over.correlation_of_returns] == pytest.approx([-1, -1])
  assert np.isnan(predictions.mean([np.nan])).all()
  assert predictions.mean([1, np.nan, 3])[0] == 2


@pytest.mark.parametrize('agent', protocol.AGENTS, ids=lambda agent: agent.name)
def test_an_agent_has_six_configurations_that_gin_accepts(agent):
  first = agent.first_configurations()
  configurations = [*first, *agent.further_configurations(first[1])]
  assert len({c.name for c in configurations}) == 6
  for configuration in configurations[1], configurations[-1]:
    gin.clear_config()
    config = f'batch_rl/fixed_replay/configs/{agent.name}.gin'
    game = 'MinAtarEnvironment.game_name = "Breakout"'
    bindings = [game, *agent.bindings(configuration)]
    gin_lines.load([config, games.OFFLINE_CONFIG], bindings)
    bindings = run_record.bindings(gin_files.config_text())
    assert agent.configuration(bindings) == configuration


def test_scores_and_tables(work_dir):
  out = work_dir / 'out'
  evaluations, data, selection = record.update(work_dir, out, AGENTS)
  assert list(data.run) == [1, 2, 4]
  assert [*data.iloc[0, 3:6]] == [20, 4, 2.5]  # steps, episodes, mean
  tenths = data[record.TENTHS].iloc[0].to_numpy()
  assert np.array_equal(tenths[[2, 4, 7, 9]], [0, 0, 5, 5])
  assert np.isnan(tenths[[0, 1, 3, 5, 6, 8]]).all()
  runs = scores.of_runs(evaluations)
  whole = runs[(runs.stage == 'whole') & (runs.agent == 'dqn_adam')]
  zero = whole.zero.iloc[0]
  assert (whole.one == 5).all() and zero == pytest.approx(0.536)
  last, other = np.array([[7 / 3, 8 / 3], [9, 9]])
  for column, values in {'last': last, 'best': other, 'quarter': other}.items():
    np.testing.assert_allclose(whole[column], (values - zero) / (5 - zero))
  np.testing.assert_allclose(whole.half, (5.5 - zero) / (5 - zero))
  assert list(whole.overestimation) == [9, 18]
  text = tables.write(runs, data, selection, out)
  assert (out / 'tables.md').read_text() == text
  compared = rows_of(tables.of_whole(runs))
  assert [*compared] == ['online DQN', 'DQN (Adam)', 'BC']
  assert compared['BC'][-2:] == ['0.50 [0.50, 0.50]', '1.00 [1.00, 1.00]']
  assert compared['BC'][:2] == ['2', '1.00 [1.00, 1.00]']
  returns = rows_of(tables.of_returns(runs, data))
  mean = returns['DQN (Adam)'], returns['mean of the data']
  assert mean == (['2.50 (2.33, 2.67)'], ['2.50 (2.50, 2.50)'])
  assert [*rows_of(tables.of_heads(runs)).values()][-1][:2] == ['50', 'heads']
  more = rows_of(tables.of_more(runs))
  assert more['Two-hot'] == ['9.00', 'DQN (Adam)', '2.67']
  final, best = minatar_scores.online_scores(evaluations)
  assert (final.value, best.value, best.standard_error) == (5, 6, 0)
  figures.write(runs, evaluations, selection, out)
  drawn = 'curves front heads improvement overestimation parts profiles search'
  assert {*drawn.split()} <= {path.stem for path in out.glob('*.png')}


def test_the_best_configuration_is_chosen(work_dir, capsys):
  options = argparse.Namespace(
    work_dir=work_dir, out=work_dir / 'out', quick=True, dry_run=False,
    games=[GAME], runs=[2],
  )  # fmt: skip
  benchmark = program.Benchmark(options, [AGENTS['dqn_adam']])
  tried = [protocol.Configuration(rate, 250) for rate in (0.001, 0.00025)]
  assert benchmark._best(AGENTS['dqn_adam'], tried) == tried[1]
  with pytest.raises(ValueError, match='0.00025/2000'):
    benchmark.whole()
  cell = work_dir / f'search/2/dqn_adam/{GAME}/run-4/seed-1/sweep-offline.json'
  cell.write_text('{"state": "stopped"}')
  with pytest.raises(ValueError, match='lacks results'):
    benchmark._best(AGENTS['dqn_adam'], tried)
  cell.write_text('{"state": "failed", "message": "The loss is nan at"}')
  (cell.parent / 'evaluations' / '0.json').unlink()
  assert benchmark._best(AGENTS['dqn_adam'], tried) == tried[0]
  options.dry_run = True
  benchmark = program.Benchmark(options, [AGENTS['rem'], AGENTS['dqn_adam']])
  benchmark.select()
  benchmark.whole()  # as far as is known
  times = [line.split()[-2] for line in benchmark.costs().splitlines()]
  assert times[1:] == ['0:00:07', '0:00:23', '0:00:30']
  found = (work_dir / 'sweeps/dry_run.yaml').read_text()
  assert "runs: '2'" in found and 'rate = 0.00025' in found
  options.games = ['MinAtar-Asterix']
  program.Benchmark(options, [AGENTS['dqn_adam']]).whole()
  assert 'whole: left out' in capsys.readouterr().out
  options.quick, options.runs = False, [4]
  program.Benchmark(options, [AGENTS['dqn_adam']]).search()
  found = (work_dir / 'sweeps/dry_run.yaml').read_text()
  assert "games:\n- MinAtar-Asterix\nruns: '4'" in found
  agent = program.user_modules.dotted_name(program.REGISTRY.find('iql'))
  mine = protocol.Agent(agent, 'FixedReplayIQLAgent.tau', ('1', '2', '3'))
  with pytest.raises(ValueError, match='a parameter named .tau'):
    program.Benchmark(options, [mine]).search()


def test_the_record_suffices_and_is_kept(work_dir):
  out = work_dir / 'out'
  assert record.update(work_dir / 'nothing', out, AGENTS)[0].empty
  record.update(work_dir, out, AGENTS)
  before = {path.name: path.read_bytes() for path in out.iterdir()}
  record.update(work_dir / 'nothing', out, AGENTS)
  shutil.rmtree(work_dir / 'data')
  folder = work_dir / 'whole/dqn_adam' / GAME
  (folder / 'run-2').rename(folder / 'run-7')
  with pytest.raises(ValueError, match='MinAtar-Breakout 7'):
    record.update(work_dir, out, AGENTS)
  assert {path.name: path.read_bytes() for path in out.iterdir()} == before
  found = record.read(out / 'evaluations.csv', record.EVALUATIONS)
  shorter = found.groupby(record.RUN).head(2)
  other = found.assign(mean_return=0.0)
  for old, new in (found, shorter), (shorter, found), (found, other):
    assert record.add_evaluations(old, new).equals(found)
  with pytest.raises(ValueError, match='several runs of rem 4'):
    record.add_evaluations(found, pd.concat([found, found]))
  data = record.read(out / 'data.csv', record.DATA)
  remade = data.assign(fingerprint='9', agent_steps=data.agent_steps + 1)
  same, others = record.add_data(data, remade)
  assert same.equals(data) and (GAME, 1) in others
  mine = found.assign(label='X (yours)', agent='X')
  marked = record._mark_other_data(mine, others)
  assert {*marked.label} == {'X (yours, other data)'}
  with pytest.raises(ValueError, match='REM has learned, are not'):
    record._mark_other_data(found, others)


def test_an_agent_of_the_user_is_marked(work_dir, capsys):
  folder = work_dir / 'whole'
  (folder / 'bc').rename(folder / 'MyAgent')
  assert 'BC' not in {*record.read_evaluations(work_dir, AGENTS).label}
  assert 'name its agent in --agents' in capsys.readouterr().out
  options = argparse.Namespace(
    agents=['mine.MyAgent'], own='mine.MyAgent.weight = 1, 0.00001, @Own',
    gin_files=[], quick=False, without_target=False,
  )  # fmt: skip
  [agent] = program.chosen_agents(options)
  assert agent.values == ('1', '1e-05', '@Own')
  first = agent.first_configurations()[0]
  text = '\n'.join(agent.bindings(first)).replace('AnyAgent', 'MyAgent')
  text += '\nFixedReplayDQNAgent.target_update_period = 8000'
  assert agent.configuration(run_record.bindings(text)) == first
  with pytest.raises(ValueError, match='seed-1: it has no values of MyAgent'):
    record.read_evaluations(work_dir, {**AGENTS, agent.folder: agent})
  own = protocol.Agent('mine.MyAgent', has_target=False)
  labels = record.read_evaluations(work_dir, {**AGENTS, own.folder: own}).label
  assert 'BC (yours)' in {*labels}
  for wrong in ({'own': 'weight=1'}, {'agents': ['rem']}, {'agents': ['no']}):
    with pytest.raises(ValueError, match=r'--own|no agent'):
      program.chosen_agents(argparse.Namespace(**{**vars(options), **wrong}))
