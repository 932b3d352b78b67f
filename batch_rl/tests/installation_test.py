"""An installed package is complete."""

import os
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
  packed = zipfile.ZipFile(wheel)
  expected = {
    str(path.relative_to(ROOT))
    for pattern in ('*.py', '*.gin', '*.csv', '*.json', 'py.typed')
    for path in (ROOT / 'batch_rl').rglob(pattern)
  }
  assert len(expected) > 60
  assert expected <= set(packed.namelist())
  # A user's file includes one of the installed package, from any directory.
  packed.extractall(tmp_path / 'site')
  inner = tmp_path / 'site/batch_rl/baselines/configs/inner.gin'
  inner.write_text('capacity = 1000')
  (tmp_path / 'mine.gin').write_text(
    "include 'batch_rl/baselines/configs/inner.gin'"
  )
  code = """
import gin
from batch_rl.runs import gin_files
gin_files.apply(gin_files.read(['mine.gin'], []))
print(gin_files.__file__, gin.query_parameter('capacity/gin.macro.value'))
"""
  printed = subprocess.check_output(
    [sys.executable, '-c', code],
    cwd=tmp_path,
    env={**os.environ, 'PYTHONPATH': str(tmp_path / 'site')},
    text=True,
  )
  file = tmp_path / 'site/batch_rl/runs/gin_files.py'
  assert printed.split() == [str(file), '1000']
