"""The commands read observations of any shape and dtype, as shards and as a store."""

import json

import numpy as np
import pytest
from PIL import Image

from batch_rl.tests import observations
from batch_rl.tests.dataset.conftest import is_one_line


@pytest.mark.parametrize('kind', observations.KINDS)
def test_every_command_reads_shards_and_their_store(
  kind, run, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  observations.write('worlds/1/replay_logs', kind, stack_size=2)
  code, out, err = run('verify', 'worlds/1')
  assert code == 0 and not err and 'all is well (3 shards' in out
  assert 'note: ' not in out  # nothing of Atari
  code, out, err = run('convert', 'worlds/1', 'store')
  assert code == 0 and not err and 'store: 3 shards, 103 rows' in out
  code, out, err = run('verify', 'store')
  assert code == 0 and not err and 'store: all is well (3 shards' in out
  shape, dtype = observations.KINDS[kind]
  described = ' x '.join(map(str, shape)) or 'single'
  hashes = set()
  for path in ('worlds/1', 'store'):
    code, out, err = run('inspect', path)
    assert code == 0 and not err
    assert out.startswith(
      f'{path}: World of {kind}s, observations {described} {np.dtype(dtype)}\n'
    )
    (total,) = [line for line in out.splitlines() if line.startswith('total')]
    assert total.split()[1:5] == ['103', '98', '5', '5']
    assert '2 episodes were truncated' in out
    out = run('subset', path, 'random_trajectories(0.4)', '--json')[1]
    hashes.add(json.loads(out)['hash'])
  assert len(hashes) == 1


def test_what_is_no_image_is_not_shown(run, tmp_path):
  world, plot, video = (tmp_path / name for name in ('world', 'a.png', 'a.gif'))
  observations.write(str(world / 'replay_logs'), 'vector', stack_size=2)
  code, out, err = run('inspect', world, '--plot', plot)
  assert code == 0 and not err and f'plot: {plot}' in out
  assert Image.open(plot).size == (1320, 649)
  code, _, err = run('inspect', world, '--video', video)
  assert code == 2 and is_one_line(err) and 'are not images' in err
  assert not video.exists()
