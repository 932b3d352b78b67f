import os

import numpy as np
import pytest

from batch_rl.dataset.checks import plots
from batch_rl.dataset.store import frame_reading
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import compute


def test_the_sheet_spans_the_run_without_padding(tmp_path):
  shards.write_run(tmp_path / 'replay_logs', [30] * 21, 40)
  statistics = compute(tmp_path)
  rows = plots.choose_sheet_rows(statistics)
  assert len(rows) == 24 and (np.diff(rows) > 0).all()
  assert rows[0] < 40 and rows[-1] >= statistics.data.rows - 40
  # A shard's first row may be the last one of its file.
  assert not {*rows} & {*statistics.data.starts}
  # Padding is all zero.
  assert frame_reading.read_frames(statistics.data, rows).all()


ACTIONS = {'Pong': 'NOOP FIRE RIGHT LEFT', 'MinAtar-Asterix': 'n l u r'}


@pytest.mark.parametrize('game', [*ACTIONS, 'Mine'])
def test_a_plot_shows_the_numbers_of_the_episodes(tmp_path, game):
  logs = tmp_path / game / '7' / 'replay_logs'
  shards.write_run(logs, [30, 30, 31], 40)
  plots.plot(compute(logs.parent), str(tmp_path / 'plot.svg'))
  drawn = (tmp_path / 'plot.svg').read_text('utf-8')
  steps = sum(shards.make_episodes([30, 30, 31]), [])
  counts = np.bincount([step.action for step in steps])
  shares = [f'{100 * count / len(steps):.1f}' for count in counts]
  for text in (
    f'{game}, run 7',
    *(f'<!-- {name} -->' for name in ACTIONS.get(game, '0 1 2 3').split()),
    '91 agent steps, 3 episodes',
    'median 30',
    *shares,
  ):
    assert text in drawn


def test_a_run_without_an_episode_is_plotted_whatever_its_name(tmp_path):
  run = tmp_path / os.fsdecode(b'caf\xff $x_{')
  with shards.make_log(run, 40) as log:
    shards.add_row(log, shards.Row(1, 0, 0.0, 0))
  plots.plot(compute(run), str(tmp_path / 'plot.svg'))
  assert r'caf\udcff $x_{' in (tmp_path / 'plot.svg').read_text('utf-8')
