"""`make figures`: when, and on which commit, each figure of the docs was measured.

  python -um benchmarks.figures                      # the table, with today's counts
  python -um benchmarks.figures --only pong peer_losses   # measures these again, too
  python -um benchmarks.figures --check

`benchmarks/measured/figures.csv` has a row for each figure. `--only` runs a row's command in
its documented form, and records commit, date and machine; what was printed goes to
`benchmarks/measured/<name>.txt`, from which you take the page's figures. `docs/help/figures.md`
shows the rows, with the number of commits since then that changed the measured code.
`--check` changes nothing: it fails if the page lacks a row, or a page of the docs names a
program without one.
"""

import argparse
import datetime
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

from batch_rl.utils import choices, files, machine, programs
from benchmarks import measuring

ROOT = pathlib.Path(__file__).absolute().parents[1]
DOCS = ROOT / 'docs'
PAGE = DOCS / 'help' / 'figures.md'
FOLDER = ROOT / 'benchmarks' / 'measured'
CSV = FOLDER / 'figures.csv'
HEAD = ('figure', 'commits since', 'date', 'commit', 'program', 'machine')
# Programs that pages name without a figure.
WITHOUT_FIGURES = {'frames_on_device'}


def read() -> dict[str, dict[str, str]]:
  """Returns the rows of the CSV file by name.

  Returns:
    Of each figure: `pages` below `docs/`, the `figure` in words, the `command`, the measured
    `code`, and `commit`, `date` and `machine`. A date `by ...` is that of the commit that
    stated the figure.
  """
  return {row['name']: row for row in files.read_csv(CSV)}


def git(*arguments: str) -> str:
  """Returns what a command of git prints; '' if it fails."""
  command = ['git', '-C', str(ROOT), *arguments]
  done = subprocess.run(command, capture_output=True, text=True, check=False)
  return done.stdout.strip()


def measure(row: dict[str, str], name: str) -> None:
  """Runs the command of a row, and records it.

  Raises:
    ValueError: If the command fails, or the code has none today.
  """
  words = shlex.split(row['command'])
  if words[0] != 'python':
    raise ValueError(f'{name} cannot be measured: {row["command"]}')
  # Programs continue work that they find.
  earlier = [ROOT / 'runs' / words[2].rpartition('.')[2]]
  earlier += [ROOT / word for word in words if word.startswith('runs/')]
  for path in earlier:
    if path.exists():
      raise ValueError(
        f'{path} has earlier results: move them, or remove them.'
      )
  print(f'$ {row["command"]}', flush=True)
  printed = []
  with subprocess.Popen(
    [sys.executable, *words[1:]], stdout=subprocess.PIPE, text=True, cwd=ROOT
  ) as process:
    for line in process.stdout:
      print(line, end='', flush=True)
      printed.append(line)
  if process.returncode:
    raise ValueError(f'{name}: the command ended with {process.returncode}.')
  row['commit'] = git('rev-parse', '--short=8', 'HEAD')
  row['date'] = datetime.date.today().isoformat()
  row['machine'] = this_machine()
  path = FOLDER / f'{name}.txt'
  files.write_bytes(str(path), ''.join(printed).encode())
  print(f'{path}: {", ".join(row["pages"].split())}')


def this_machine() -> str:
  """Returns the names of the GPU and the processor, and the number of processors."""
  try:
    text = pathlib.Path('/proc/cpuinfo').read_text(encoding='utf-8')
  except OSError:
    text = ''
  found = re.search(r'^model name\s*: (.+)', text, re.M)
  name = found[1] if found else 'unknown'
  parts = [name, f'{machine.num_cpus()} processors']
  if shutil.which('nvidia-smi'):  # may be there without a GPU
    query = ['nvidia-smi', '--query-gpu=name', '--format=csv,noheader']
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    if done.returncode == 0:
      parts = [*done.stdout.splitlines()[:1], *parts]
  return ', '.join(parts)


def lines(rows: dict[str, dict[str, str]]) -> list[str]:
  """Returns the page's table."""
  table = []
  for row in rows.values():
    first, *others = row['pages'].split()
    since = git(
      'rev-list',
      '--count',
      f'{row["commit"]}..HEAD',
      '--',
      *row['code'].split(),
    )
    words = row['command'].split()
    program = row['command']
    if words[0] == 'python':
      program = words[2] if words[1].startswith('-') else words[1]
    table.append(
      (
        f'[{row["figure"]}](../{first})'
        + ''.join(
          f', [{pathlib.Path(page).stem}](../{page})' for page in others
        ),
        since,
        row['date'],
        row['commit'],
        f'`{program}`',
        row['machine'],
      )
    )
  return measuring.markdown(HEAD, table).splitlines()


def split_page() -> tuple[str, list[str]]:
  """Returns the page's text above its table, and the lines of the table."""
  above, bar, below = PAGE.read_text(encoding='utf-8').partition('\n|')
  return above, (bar + below).splitlines()[1:]


def problems(rows: dict[str, dict[str, str]]) -> list[str]:
  """Returns what the page or the CSV file lacks."""
  _, shown = split_page()
  found = [
    f'{PAGE}: lacks this row, run `make figures`: {line}'
    for line in lines(rows)
    if _without_count(line) not in map(_without_count, shown)
  ]
  for path in sorted(DOCS.rglob('*.md')):
    page = str(path.relative_to(DOCS))
    commands = ' '.join(
      row['command'] for row in rows.values() if page in row['pages'].split()
    )
    named = {*re.findall(r'-u?m benchmarks\.([\w.]+)', path.read_text())}
    has = {*re.findall(r'benchmarks\.([\w.]+)', commands)} | WITHOUT_FIGURES
    found += [
      f'{page}: {CSV} has no figure of benchmarks.{name}'
      for name in sorted(named - has)
      if path != PAGE
    ]
  return found


def _without_count(line: str) -> str:
  first, _, *others = line.strip('|').split(' | ')
  return ' | '.join((first, *others))


def main() -> int:
  """Measures the chosen rows, and writes the page; or checks it."""
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', nargs='+', default=[], help='names of rows')
  parser.add_argument('--check', action='store_true')
  options = parser.parse_args()
  rows = read()
  if options.check:
    found = problems(rows)
    print(*found, f'{len(rows)} figures, {len(found)} problems', sep='\n')
    return int(bool(found))
  for name in options.only:
    choices.choose('figure', name, rows)
  if not git('rev-parse', 'HEAD'):
    raise ValueError(
      f'{ROOT} is not a git repository, whose commits are recorded.'
    )
  changed = git(
    *('status', '--porcelain', 'batch_rl', 'examples'),
    *(f'benchmarks/*.{ending}' for ending in ('py', 'gin', 'yaml', 'sh')),
  )
  if options.only and changed:
    raise ValueError(
      f'Commit your changes first, a figure names its commit: {changed.split()[1]}'
    )
  for name in options.only:
    measure(rows[name], name)
    measuring.write_csv(CSV, rows.values())
  table = lines(rows)
  above, _ = split_page()
  files.write_bytes(str(PAGE), ('\n'.join([above, *table]) + '\n').encode())
  for name, line in zip(rows, table[2:], strict=True):
    print(
      f'{name:21} {rows[name]["date"]:13} commits since: {line.split(" | ")[1]}'
    )
  return 0


if __name__ == '__main__':
  sys.exit(programs.run(main))
