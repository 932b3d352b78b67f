import argparse
import importlib
import pathlib
import re
import shlex
import types

import gin
import pytest

from batch_rl.__main__ import COMMANDS
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.store import store
from batch_rl.runs import command_line, gin_files
from batch_rl.sweep import plan
from batch_rl.tests import gin_lines

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted(ROOT.glob('docs/**/*.md'))
PROTOCOLS = ROOT / 'batch_rl/fixed_replay/configs/protocols'
MEMORY = 'WrappedFixedReplayBuffer'
TEXTS = [ROOT / 'README.md', ROOT / 'CONTRIBUTING.md', *PAGES]
BLOCK = re.compile(
  r'(?:<!-- (not run: \S.+?) -->\n)?^```(\w*)\n(.*?)^```$', re.M | re.S
)
SNIPPET = re.compile(r'^--8<-- "(.+?)(?::\w+)?"$', re.M)
FLAG = re.compile(  # Calls, and the keys of tables.
  r"(?:(?:DEFINE_\w+|add|add_argument)\(\s*.(?:--)?|^  '(?=\w+': ))(\w+)", re.M
)
PARSED = 'batch_rl.dataset', 'batch_rl.report', 'batch_rl.sweep'


class ParsedError(BaseException):
  """Ends a program after its command line was parsed."""


def check_program(module, arguments, monkeypatch):
  """Checks that a program of the repository knows the flags of a command."""
  path = ROOT / module.replace('.', '/')
  source = path / '__main__.py' if path.is_dir() else path.with_suffix('.py')
  if module in PARSED:
    parse = argparse.ArgumentParser.parse_args

    def parse_only(*args, **kwargs):
      parse(*args, **kwargs)
      raise ParsedError

    with monkeypatch.context() as patch, pytest.raises(ParsedError):
      patch.setattr(argparse.ArgumentParser, 'parse_args', parse_only)
      importlib.import_module(f'{module}.__main__').main(arguments)
    return
  text = source.read_text()
  if source.name == 'train.py':
    text += (ROOT / 'batch_rl/runs/command_line.py').read_text()
  used = {a[2:].split('=')[0] for a in arguments if a.startswith('--')}
  assert used <= {*FLAG.findall(text)}, (module, used)
  if source.name == 'train.py' and 'my_' not in str(arguments):
    check_gin(module.removesuffix('.train'), arguments)


def check_gin(package, arguments):
  """Checks that a training program accepts the settings of its flags."""
  found = {'gin_files': [], 'gin_bindings': [], 'config': [], 'agent_name': []}
  for name, _, value in (a[2:].partition('=') for a in arguments):
    found.get(name, []).append(value)
  given = types.SimpleNamespace(**found, module_dirs=())
  given.config = ''.join(given.config)
  given.agent_name = ''.join(given.agent_name)
  gin.clear_config()
  importlib.import_module(f'{package}.run_experiment')
  registry = importlib.import_module(f'{package}.agents').REGISTRY
  sources = command_line.read_gin(registry, given)
  create = f'create_{"offline" if "fixed" in package else "online"}_agent'
  command_line.configure(sources, create, registry, given)


def check_command(line, is_marked, monkeypatch):
  """Checks a command of a shell; only marked blocks have others than Python's."""
  words = shlex.split(line, comments=True)
  if words[:1] == ['batch-rl']:
    words[:2] = ['python', '-m', COMMANDS[words[1]]]
  if words[:2] in (['python', '-m'], ['python', '-um']):
    words = words[: words.index('>')] if '>' in words else words
    check_program(words[2], words[3:], monkeypatch)
  elif words[:1] == ['python']:
    assert (ROOT / words[1]).is_file(), line
  else:
    assert is_marked or not words, f'lacks `<!-- not run: ... -->`: {line}'


def check_block(marker, language, code, folder, monkeypatch):
  if language == 'python':
    compile(code, '<docs>', 'exec')
  elif language == 'gin':
    gin_files.read([], [code])
  elif language == 'yaml':
    (folder / 'sweep.yaml').write_text(code)
    assert plan.read(str(folder / 'sweep.yaml'), {}).cells
  elif language == 'bash':
    for line in code.replace('\\\n', '').splitlines():
      check_command(line, marker, monkeypatch)
  else:
    assert language == 'text' or marker, f'{language}: lacks a marker'


@pytest.mark.parametrize('page', TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_blocks_and_links_of_a_page_are_right(page, tmp_path, monkeypatch):
  monkeypatch.chdir(ROOT)
  text = SNIPPET.sub(lambda m: (ROOT / m[1]).read_text(), page.read_text())
  blocks = BLOCK.findall(text)
  assert 2 * len(blocks) == len(re.findall('^```', text, re.M))
  for marker, language, code in blocks:
    marker = marker or page not in PAGES
    check_block(marker, language, code, tmp_path, monkeypatch)
  prose = BLOCK.sub('', text)
  for link in re.findall(r'\]\((?!https?:)([^)#]+)', prose):
    assert (page.parent / link).exists(), link
  for path in re.findall(r'`((?:batch_rl|benchmarks|examples)/[^`<]*)`', prose):
    assert [*ROOT.glob(path)], path


def load_protocol(name, parameter):
  """Returns a parameter that a protocol sets beside the file of an agent."""
  importlib.import_module('batch_rl.fixed_replay.run_experiment')
  gin.clear_config()
  paths = PROTOCOLS.parent / 'bc.gin', PROTOCOLS / f'{name}.gin'
  gin_lines.load(map(str, paths), [])
  return gin.query_parameter(parameter)


def test_the_table_of_protocols_has_their_subsets_and_hashes():
  text = (ROOT / 'docs/data/tools.md').read_text()
  logs = ROOT / 'data/MinAtar-Breakout/1/replay_logs'
  data = store.Store(str(logs), pack=False)
  found = re.findall(r'`(\w+)` \| `(.+?)` .* `(\w{16})`', text)
  for name, subset, digits in found:
    assert load_protocol(name, 'FixedReplayBuffer.subset') == subset
    chosen = subsets.select(subsets.trajectories(data), subset)
    assert subsets.hash_of(data, chosen) == digits
  assert load_protocol('paper_2020', f'{MEMORY}.num_buffers') == 5
  shipped = {path.stem for path in PROTOCOLS.glob('*.gin')}
  assert shipped == {'paper_2020', *(name for name, *_ in found)}
