"""Merges `pip freeze` of several Pythons into one requirements.txt.

python benchmarks/pins.py 3.10=a.txt 3.11=b.txt ... > requirements.txt
"""

import collections
import sys


def main() -> None:
  """Reads `<python>=<file>` arguments, prints pins with markers."""
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
  print('# The versions that the tests ran on; made by benchmarks/pins.py.')
  for name, by_python in sorted(pins.items()):
    if len(by_python) == len(pythons) and len(set(by_python.values())) == 1:
      print(f'{name}=={by_python[pythons[0]]}')
      continue
    for python, version in by_python.items():
      print(f"{name}=={version} ; python_version == '{python}'")


if __name__ == '__main__':
  main()
