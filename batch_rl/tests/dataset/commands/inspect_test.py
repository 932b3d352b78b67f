import pytest
from PIL import Image

from batch_rl.tests.dataset.conftest import is_one_line
from batch_rl.tests.interchange_runs import SAMPLE


def test_the_sample_with_a_plot_and_a_video(run, tmp_path):
  plot, video = tmp_path / 'plot.png', tmp_path / 'episode.gif'
  options = '--plot', plot, '--video', video, '--episode', 0
  out = run.output('inspect', SAMPLE, *options)
  assert out.startswith(f'{SAMPLE}: Pong by dqn, observations 84 x 84 uint8')
  (total,) = [line for line in out.splitlines() if line.startswith('total')]
  counts, lengths = '312,040 311,539 501 167', '1,865.5'
  returns, size = '-16.94 -21.00 -9.00 -16.9', '16.9 MB 54.3'
  assert total.split()[1:] == f'{counts} {lengths} {returns} {size}'.split()
  assert 'return: mean -16.94, std 3.10, median -17.00, min -21.00, max' in out
  assert 'action  0:  10.7 %       33,422 NOOP ' in out
  assert 'episode 0: 884 agent steps, return -21, ends in shard 0' in out
  assert Image.open(plot).size == (1320, 1155)
  assert plot.stat().st_size > 10_000 and video.stat().st_size > 10_000


def test_a_root_lists_its_runs(root, run):
  # Control characters of names are escaped.
  (root / 'Pong' / '2').rename(root / 'Pong' / '2\x1b[31m')
  out = run.output('inspect', root)
  rows = [line.split()[1:4] for line in out.splitlines()[1:]]
  assert rows == [['1', '2', '66'], [r'2\x1b[31m', '2', '66']]
  listed = run.document('inspect', root)['runs']
  assert [entry['run'] for entry in listed] == ['1', '2\x1b[31m']


@pytest.mark.parametrize(
  'command', ['verify {}', 'convert {} x', 'export {} x-v0 --format=minari']
)
def test_a_command_for_one_run_lists_all(root, run, command, monkeypatch):
  monkeypatch.chdir(root)
  listed = run.output('inspect', root)
  code, out, err = run(*command.format(root / 'Pong').split())
  assert code == 2 and out == listed and is_one_line(err)
  assert 'choose one' in err and not (root / 'x').exists()
