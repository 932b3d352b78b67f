"""The file of a sweep, and the commands made from it."""

import os

import gin
import pytest

from batch_rl.sweep import plan
from batch_rl.tests import cartpole, user_code
from batch_rl.utils import seeding


def read(tmp_path, text='', **given):
  path = tmp_path / 'sweep.yaml'
  folders = f'base_dir: {tmp_path}/out\ndata_dir: {tmp_path}/data\n'
  path.write_text(folders + text)
  return plan.read(str(path), given)


def flag(cell, name):
  start = f'--{name}='
  return [a[len(start) :] for a in cell.arguments if a.startswith(start)]


def test_every_combination_is_a_cell(tmp_path):
  sweep = read(
    tmp_path,
    """
games: [Pong, Breakout]
runs: 1-2
agents: [dqn, rem]
seeds: [3, 5]
grid:
  FixedReplayRunner.training_steps: [100, 200, 300]
store_dir: a"b
""",
  )
  assert len(sweep.cells) == 2 * 2 * 2 * 2 * 3
  assert len({cell.directory for cell in sweep.cells}) == len(sweep.cells)
  assert len({cell.name for cell in sweep.cells}) == len(sweep.cells)
  # Each seed is complete before the next; cells of one store are neighbours.
  seeds = [flag(cell, 'seed') for cell in sweep.cells]
  assert seeds == sorted(seeds)
  assert len({cell.replay_dir for cell in sweep.cells[:6]}) == 1
  cell = sweep.cells[0]
  assert cell.name == 'dqn training_steps=100 Pong 1 seed 3'
  out = f'{tmp_path}/out'
  assert cell.directory == f'{out}/dqn/training_steps=100/Pong/run-1/seed-3'
  assert '|'.join(cell.arguments) == (
    f'-um|batch_rl.fixed_replay.train|--base_dir={cell.directory}|'
    f'--replay_dir={tmp_path}/data/Pong/1|--seed=3|'
    '--gin_files=batch_rl/fixed_replay/configs/dqn.gin|'
    f'--gin_bindings=FixedReplayBuffer.cache_dir = "{out}/a\\"b"|'
    '--gin_bindings=FixedReplayRunner.training_steps = 100|'
    '--gin_bindings=atari_lib.create_atari_environment.game_name = "Pong"'
  )
  # A store needs no cache.
  user_code.write(tmp_path / 'data/Pong/1/store.json', '{}')
  [first] = read(tmp_path, 'games: Pong\nagents: dqn\n').cells
  assert 'cache_dir' not in str(first.arguments)


def test_flags_override_the_file(tmp_path):
  text = 'games: Pong\nruns: 1-2\nagents: dqn\ncpus: 3\n'
  flags = {'games': ['breakout'], 'runs': '2', 'cpus': 0.5, 'seeds': None}
  sweep = read(tmp_path, text, **flags)
  assert [cell.name for cell in sweep.cells] == ['dqn Breakout 2 seed 1']
  assert sweep.cpus == 0.5


def test_agents_with_their_own_files_and_bindings(tmp_path):
  text = """
games: Pong
agents:
  dqn_adam:
  mine: my/agent.gin
  small: &small {gin_files: [batch_rl/a.gin, b.gin], gin_bindings: A.b = 1}
  other: {<<: *small, gin_bindings: [A.b = 2]}
gin_files: shared.gin
gin_bindings: C.d = 2
store_dir: null
"""
  sweep = read(tmp_path, text)
  here = os.getcwd()
  adam = 'batch_rl/fixed_replay/configs/dqn_adam.gin'
  small = ['batch_rl/a.gin', f'{here}/b.gin']
  files = [adam], [f'{here}/my/agent.gin'], small, small
  bound = [], [], ['A.b = 1'], ['A.b = 2']
  for cell, gin_files, own in zip(sweep.cells, files, bound, strict=True):
    assert flag(cell, 'gin_files') == [*gin_files, f'{here}/shared.gin']
    # An agent's own bindings come later, so they win.
    assert flag(cell, 'gin_bindings')[:-1] == ['C.d = 2', *own]
  text += 'grid: {E.f: [1, 2]}\n'
  small = 'mine: {gin_files: a.gin, grid: {A.b: [3, 4], E.f: 5}}'
  names = [
    c.name
    for c in read(tmp_path, text.replace('mine: my/agent.gin', small)).cells
  ]
  of_mine = [f'mine f=5,b={b} Pong 1 seed 1' for b in (3, 4)]
  assert names[2:4] == of_mine and len(names) == 8
  [cell, _] = read(tmp_path, text, agents=['other']).cells
  assert 'A.b = 2' in flag(cell, 'gin_bindings')


def test_an_agent_of_the_user_is_found(tmp_path, own_folder):
  """The folder of the sweep's file counts."""
  user_code.write(tmp_path / 'mine.py', 'raise RuntimeError')
  user_code.write(own_folder / 'more/__init__.py', '')
  text = """
games: Pong
agents:
  mine.MyAgent: {gin_files: my.agent.gin}
  more.code.Other:
  my.agent.gin:
"""
  mine, other, config = read(tmp_path, text).cells
  assert mine.name == 'MyAgent Pong 1 seed 1'
  assert mine.directory == f'{tmp_path}/out/MyAgent/Pong/run-1/seed-1'
  assert flag(mine, 'agent_name') == ['mine.MyAgent']
  assert flag(mine, 'module_dirs') == [str(tmp_path)]
  assert flag(mine, 'gin_files') == [f'{own_folder}/my.agent.gin']
  assert flag(other, 'module_dirs') == [str(own_folder)]
  assert flag(other, 'gin_files') == ['batch_rl/fixed_replay/configs/base.gin']
  assert flag(config, 'agent_name') == []
  evaluated = read(tmp_path, f'job: evaluate{text}').cells[0]
  assert evaluated.directory == mine.directory
  assert flag(evaluated, 'agent_name') == []
  with pytest.raises(ValueError, match='mien.MyAgent'):
    read(tmp_path, text.replace('mine', 'mien'))


def test_online_runs_write_where_offline_runs_read(tmp_path):
  text = 'job: online\ngames: [Pong, Asterix]\nruns: 1-3\nagents: dqn\nseeds: 7'
  sweep = read(tmp_path, text)
  pong, asterix = (flag(cell, 'replay_log_dir') for cell in sweep.cells[:2])
  assert pong == [f'{tmp_path}/data/Pong/1']
  assert asterix == [f'{tmp_path}/data/Asterix/1']
  # The seed that the program derives from `--seed=7 --runs=1-3`.
  assert flag(sweep.cells[2], 'seed') == [str(seeding.of_run(7, 2))]
  both = read(tmp_path, text.replace('agents: dqn', 'agents: [dqn, rem]'))
  logs = [flag(cell, 'replay_log_dir')[0] for cell in both.cells]
  assert len(set(logs)) == 12
  assert f'{tmp_path}/data/rem/Pong/1' in logs
  for agent in ('rem', 'c51'):  # One of the file's agents, or one more.
    one = read(tmp_path, text.replace('dqn', '[dqn, rem]'), agents=[agent])
    log = [f'{tmp_path}/data/{agent}/Pong/1']
    assert flag(one.cells[0], 'replay_log_dir') == log
  assert len(read(tmp_path, text, games='all').cells) == 3 * 60


def test_evaluations_use_the_directories_of_training(tmp_path):
  text = 'games: Pong\nagents: rem\n'
  (trained,) = read(tmp_path, text).cells
  text += 'job: evaluate\nevaluate: {evaluation_steps: 9, seed: , checkpoints: '
  (cell,) = read(tmp_path, text + 'best}').cells
  assert cell.directory == trained.directory
  assert '|'.join(cell.arguments) == (
    f'-um|batch_rl.fixed_replay.evaluate|--base_dir={trained.directory}|'
    '--evaluation_steps=9|--checkpoints=best'
  )
  for chosen, value in (('[0, 1]', '0,1'), ("'3,7'", '3,7')):
    (cell,) = read(tmp_path, f'{text}{chosen}}}').cells
    assert flag(cell, 'checkpoints') == [value]


def test_an_environment_of_the_user_needs_no_data(tmp_path):
  text = 'games: Grid\nagents: rem\ngin_bindings: LoggedRunner.'
  text += 'create_environment_fn = @'
  [cell] = read(tmp_path, f'{text}Grid', job='online').cells
  assert flag(cell, 'replay_log_dir') == [f'{tmp_path}/data/Grid/1']
  for job, made in (('online', 'MinAtarEnvironment'), ('evaluate', 'Grid')):
    with pytest.raises(ValueError, match="Unknown game 'Grid'"):
      read(tmp_path, text + made, job=job)
  (tmp_path / 'out/rem/Grid').mkdir(parents=True)
  [cell] = read(tmp_path, f'{text}Grid', job='evaluate').cells
  assert cell.directory == f'{tmp_path}/out/rem/Grid/run-1/seed-1'


@pytest.mark.parametrize(
  ('job', 'program'), [('offline', 'fixed_replay'), ('online', 'baselines')]
)
def test_a_game_of_minatar_gets_its_configs(job, program, tmp_path):
  common = f'batch_rl/{program}/configs/c51.gin'
  text = (
    f'job: {job}\ngames: [Pong, MinAtar/space_invaders]\ngin_files: mine.gin\n'
    f'agents: {{c51: {{gin_files: [{common}, own.gin]}}}}\n'
  )
  pong, cell = read(tmp_path, text).cells
  assert '/c51/MinAtar-SpaceInvaders/run-1' in cell.directory
  own, mine = map(os.path.abspath, ['own.gin', 'mine.gin'])
  assert pong.gin_files == (common, own, mine)
  config = f'batch_rl/minatar/configs/{job}.gin'
  assert cell.gin_files == (common, config, own, mine)
  # An evaluation plays as its run has, so the plan reads the same files.
  if job == 'offline':
    _, evaluation = read(tmp_path, text, job='evaluate').cells
    assert evaluation.gin_files == cell.gin_files
    assert not flag(evaluation, 'gin_files')
  game = 'MinAtarEnvironment.game_name = "MinAtar-SpaceInvaders"'
  assert cell.gin_bindings[-1] == game
  if job == 'offline':
    assert cell.replay_dir.endswith('/MinAtar-SpaceInvaders/1')


PONG = 'games: Pong\nagents: dqn\n'


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('games: Pong', 'agents'),
    (f'{PONG}gamse: 3', 'did you mean games'),
    ('games: Pogn\nagents: dqn', 'data/Pogn'),
    ('job: online\ngames: Pogn\nagents: dqn', 'bind LoggedRunner.create_en'),
    ('games: Pong\nagents: dnq', 'dqn'),
    ('games: Pong\nagents: {a: {gin_file: x}}', 'gin_files'),
    ('games: Pong\nagents: [dqn, x/dqn.gin]', 'dqn/Pong/run-1/seed-1'),
    ('games: Pong\nagents: 51', 'agents: 51'),
    ('games: Pong\nagents: [rem, dqn, rem]', 'rem is given twice'),
    (f'{PONG}grid: {{a.b: []}}', "'a.b'"),
    ('games: Pong\nagents: {dqn: {grid: {a.b: }}}', "'a.b'"),
    ('games: Pong\nagents: {dqn: {grid: 3}}', 'agents.dqn.grid'),
    (f'{PONG}gin_bindings: {{A.b: 3}}', 'is a mapping: give lines'),
    (f'{PONG}rates: {{trian: 3}}', 'train'),
    (f'{PONG}rates: {{train: 0}}', 'rates.train=0'),
    (f'{PONG}cpus: .nan', 'cpus is nan'),
    (f'{PONG}cpus: 0', 'cpus=0'),
    (f'{PONG}gpus: -1', 'gpus=-1'),
    (f'{PONG}evaluate: {{checkpints: last}}', 'checkpoints'),
    (f'{PONG}evaluate: {{checkpoints: lst}}', 'evaluate.checkpoints=lst'),
    (f'{PONG}gin_bindings: [A.b: 1]', "{'A.b': 1}"),
    (f'{PONG}seeds: 1-2\njob: online', 'seeds=1-2'),
    (f'{PONG}store_dir: gs://b', 'gs://b'),
    (f'{PONG}evaluate: best', 'evaluate is'),
    (f'{PONG}agents: rem', 'agents'),
    ('[' * 5000 + ']' * 5000, 'YAML'),
    ('a: !!python/object:os.system 1', 'YAML'),
    ('- Pong', 'YAML'),
  ],
)
def test_mistakes(tmp_path, text, message):
  if 'evaluate:' in text:
    text += '\njob: evaluate'
  with pytest.raises(ValueError, match='.') as error:
    read(tmp_path, text)
  assert message in str(error.value)


def test_missing_data(tmp_path):
  cartpole.write_log(tmp_path / 'replay_logs')
  for run in ('Pong/1', 'Pong/2', 'Breakout/1', 'Breakout/2'):
    (tmp_path / 'data' / run).mkdir(parents=True)
    (tmp_path / f'data/{run}/replay_logs').symlink_to(tmp_path / 'replay_logs')
  plan.check_data(read(tmp_path, f'{PONG}runs: 1-2').cells)
  both = 'games: [Pong, Breakout]\nagents: [dqn, rem]\nruns: 1-3'
  with pytest.raises(ValueError, match=r'^2 of 6 .*\(Breakout/3, Pong/3\)'):
    plan.check_data(read(tmp_path, both).cells)
  with pytest.raises(ValueError, match='no.yaml'):
    plan.read(f'{tmp_path}/no.yaml', {})


@pytest.mark.parametrize(
  ('value', 'read_as'),
  [
    *[(v, v) for v in (3, -0.5, True, [1], 'few(0.1)', 'MEAN', "it's", 'x\ny')],
    ('"quoted"', 'quoted'),
    ('(1, 2)', (1, 2)),
  ],
)
def test_gin_reads_the_values_of_a_grid(value, read_as):
  gin.parse_config(f'swept = {plan.as_gin(value)}')
  assert gin.query_parameter('swept/macro.value') == read_as
  for reference in ('@tf.train.AdamOptimizer()', '%gamma', '[@CQL(), %b]'):
    assert plan.as_gin(reference) == reference
  assert plan.as_gin(['@CQL()', 'a']) == "[@CQL(), 'a']"
