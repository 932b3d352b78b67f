"""The commands read observations of any shape and dtype, as shards and as a store."""

import numpy as np
import pytest
from PIL import Image

from batch_rl.tests import observations


@pytest.mark.parametrize('kind', observations.KINDS)
def test_each_command_reads_shards_and_store(kind, run, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  observations.write('worlds/1/replay_logs', kind, stack_size=2)
  out = run.output('verify', 'worlds/1')
  assert 'ok (3 shards' in out
  assert 'note: ' not in out  # nothing of Atari
  out = run.output('convert', 'worlds/1', 'store')
  assert 'store: 3 shards, 103 rows' in out
  assert 'store: ok (3 shards' in run.output('verify', 'store')
  shape, dtype = observations.KINDS[kind]
  described = ' x '.join(map(str, shape)) or 'single'
  hashes = set()
  for path in ('worlds/1', 'store'):
    out = run.output('inspect', path)
    assert out.startswith(
      f'{path}: World of {kind}s, observations {described} {np.dtype(dtype)}\n'
    )
    (total,) = [line for line in out.splitlines() if line.startswith('total')]
    assert total.split()[1:5] == ['103', '98', '5', '5']
    assert '2 episodes were truncated' in out
    hashes.add(run.document('subset', path, 'random_trajectories(0.4)')['hash'])
  assert len(hashes) == 1


def test_what_is_no_image_is_not_shown(run, tmp_path):
  world, plot, video = (tmp_path / name for name in ('world', 'a.png', 'a.gif'))
  observations.write(str(world / 'replay_logs'), 'vector', stack_size=2)
  assert f'plot: {plot}' in run.output('inspect', world, '--plot', plot)
  assert Image.open(plot).size == (1320, 649)
  assert 'are not images' in run.error('inspect', world, '--video', video)
  assert not video.exists()
