"""An installed package has what the repository has."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.skipif(
  not (ROOT / 'setup.py').exists(), reason='needs the repository, not a wheel'
)
def test_a_wheel_has_every_module_config_and_table(tmp_path):
  subprocess.run(
    [
      *(sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps'),
      *('--wheel-dir', str(tmp_path), str(ROOT)),
    ],
    check=True,
  )
  (wheel,) = tmp_path.glob('*.whl')
  packed = set(zipfile.ZipFile(wheel).namelist())
  expected = {
    str(path.relative_to(ROOT))
    for pattern in ('*.py', '*.gin', '*.csv', 'py.typed')
    for path in (ROOT / 'batch_rl').rglob(pattern)
  }
  assert len(expected) > 60
  assert expected <= packed
