"""Merges the `pip freeze` of several Pythons into one requirements.txt.

python benchmarks/pins.py 3.10=a.txt 3.11=b.txt ... > requirements.txt
"""

import collections
import itertools
import sys


def main() -> None:
  """Reads `<python>=<file>` arguments and prints pins with markers."""
  pins = collections.defaultdict(dict)
  pythons = []
  for argument in sys.argv[1:]:
    python, path = argument.split('=', 1)
    pythons.append(python)
    with open(path, encoding='utf-8') as file:
      for line in file:
        name, _, version = line.strip().partition('==')
        if version:
          pins[name.lower().replace('_', '-')][python] = version
  print('# The tested versions; made by benchmarks/pins.py.')
  for name, by_python in sorted(pins.items()):
    if len(by_python) == len(pythons) and len(set(by_python.values())) == 1:
      print(f'{name}=={by_python[pythons[0]]}')
      continue
    groups = itertools.groupby(pythons, by_python.get)
    for version, group in groups:
      group, conditions = list(group), []
      if group[0] != pythons[0]:
        conditions.append(f"python_version >= '{group[0]}'")
      if group[-1] != pythons[-1]:
        after = pythons[pythons.index(group[-1]) + 1]
        conditions.append(f"python_version < '{after}'")
      if version:
        print(f'{name}=={version} ; {" and ".join(conditions)}')


if __name__ == '__main__':
  main()
