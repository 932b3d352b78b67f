"""The commands read observations of any shape and dtype, as shards and as a store."""

import json

import numpy as np
import pytest
from PIL import Image

from batch_rl.tests import observations


@pytest.fixture(params=observations.KINDS)
def kind(request, tmp_path, monkeypatch):
  """Kind of the observations of the run `worlds/1`, in the current directory."""
  monkeypatch.chdir(tmp_path)
  observations.write('worlds/1/replay_logs', request.param, stack_size=2)
  return request.param


def test_every_command_reads_shards_and_their_store(kind, run):
  code, out, err = run('verify', 'worlds/1')
  assert code == 0 and not err and 'all is well (3 shards' in out
  assert out.count('note: ') == 1 and 'stale rows' in out  # nothing of Atari
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
    assert 'unclipped' not in out and '2 episodes were truncated' in out
    code, out, err = run('subset', path, 'random_trajectories(0.4)', '--json')
    assert code == 0 and not err
    hashes.add(json.loads(out)['hash'])
  assert len(hashes) == 1


@pytest.mark.parametrize('kind', ['vector'], indirect=True)
def test_what_is_no_image_is_left_out_in_one_line(kind, run, tmp_path):
  arguments = ('--plot', 'plot.png', '--video', 'episode.gif')
  code, out, err = run('inspect', 'worlds/1', *arguments)
  assert code == 0 and not err and '\ntotal ' in out
  shape, dtype = observations.KINDS[kind]
  (note,) = [line for line in out.splitlines() if 'not images' in line]
  assert note.startswith(
    'note: the plot has no frames and there is no video: observations of '
    f'{np.dtype(dtype)} {shape} are not images'
  )
  assert 'plot: plot.png' in out and 'video: ' not in out.replace(note, '')
  assert Image.open('plot.png').size == (1320, 649)
  assert not (tmp_path / 'episode.gif').exists()
  code, out, err = run('inspect', 'worlds/1', '--json', *arguments[2:])
  document = json.loads(out)
  assert code == 0 and document['video'] is None
  assert 'not images' in document['no_frames']
