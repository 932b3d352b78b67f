import ast
import importlib.metadata
import os
import pathlib
import re
import runpy
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.skipif(
  not (ROOT / '.git').exists(), reason='needs a clone, whose files git lists'
)
def test_an_sdist_is_a_clone_and_its_wheel_the_package(tmp_path):
  """The wheel has every module, config and table, but no tests."""
  line = ['git', 'ls-files', '-z']
  tracked = subprocess.check_output(line, cwd=ROOT, text=True)
  code = f'from setuptools import build_meta; build_meta.build_sdist({str(tmp_path)!r})'
  subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True)
  (sdist,) = tmp_path.glob('*.tar.gz')
  with tarfile.open(sdist) as packed:
    names = {name.partition('/')[2] for name in packed.getnames()}
  assert set(tracked.split('\0')) <= names
  line = sys.executable, '-m', 'pip', 'wheel', '--quiet', '--no-deps'
  subprocess.run([*line, '--wheel-dir', str(tmp_path), str(sdist)], check=True)
  (wheel,) = tmp_path.glob('*.whl')
  packed = zipfile.ZipFile(wheel)
  names = {name for name in packed.namelist() if name.startswith('batch_rl/')}
  assert names == {
    name
    for name in tracked.split('\0')
    if name.startswith('batch_rl/') and not name.startswith('batch_rl/tests/')
  }
  folders = {os.path.dirname(name) for name in names if name.endswith('.gin')}
  assert {f'{folder}/__init__.py' for folder in folders} <= names
  # A user's file includes one of the installed package, from any directory.
  packed.extractall(tmp_path / 'site')
  inner = 'batch_rl/baselines/configs/inner.gin'
  (tmp_path / 'site' / inner).write_text('capacity = 1000')
  (tmp_path / 'mine.gin').write_text(f"include '{inner}'")
  code = """
import gin
from batch_rl.runs import gin_files
gin.parse_config_file('mine.gin'); gin.clear_config()
gin_files.apply(gin_files.read(['mine.gin'], []))
print(gin_files.__file__, gin.query_parameter('capacity/gin.macro.value'))
"""
  environment = {**os.environ, 'PYTHONPATH': str(tmp_path / 'site')}
  printed = subprocess.check_output(
    [sys.executable, '-c', code], cwd=tmp_path, env=environment, text=True
  )
  file = tmp_path / 'site/batch_rl/runs/gin_files.py'
  assert printed.split() == [str(file), '1000']


# Of some formats and frameworks: extras have them, or the user. llvmlite and urllib3
# come with numba and requests.
OPTIONAL = {
  *('torch', 'jax', 'tensorflow', 'tensorflow_datasets', 'gin'),
  *('minari', 'h5py', 'ale_py', 'gymnasium', 'llvmlite', 'urllib3'),
}


def test_data_only_requires_what_the_data_import():
  lines = runpy.run_path(str(ROOT / 'setup.py'))['DATA']
  declared = {re.match(r'[\w-]+', line)[0] for line in lines}
  providers = {}
  for found in importlib.metadata.distributions():
    for top in {f.parts[0].removesuffix('.py') for f in found.files or ()}:
      providers.setdefault(top, []).append(found.metadata['Name'])
  providers['google'] = ['protobuf']
  paths = [*(ROOT / 'batch_rl').glob('[du]*/**/*.py')]  # dataset, utils
  for path in paths:  # and what they import
    for node in ast.walk(ast.parse(path.read_text())):
      names = []
      if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
      elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [f'{node.module}.{alias.name}' for alias in node.names]
      for name in names:
        top, *own = name.split('.')
        if top == 'batch_rl':
          own = [] if own == ['__version__'] else own
          allowed = {'dataset', 'utils', 'atari', 'minatar', 'dopamine_compat'}
          assert {*own[:1]} <= allowed, path
          imported = ROOT / name.replace('.', '/')
          found = [p.with_suffix('.py') for p in (imported, imported.parent)]
          paths += [p for p in found if p.exists() and p not in paths]
        elif top not in {*OPTIONAL, *sys.stdlib_module_names}:
          found = {d.replace('_', '-') for d in providers.get(top, ())}
          assert found & declared, f'DATA in setup.py lacks {name} of {path}'
