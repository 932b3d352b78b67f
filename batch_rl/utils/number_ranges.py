"""Lists of numbers as users type and read them: `1-5,50`."""

import re
from collections.abc import Sequence


def parse(text: str, option: str) -> list[int]:
  """Numbers of runs or shards: '1-5', or '2,4', or both.

  Args:
    text: what the user wrote.
    option: where, for the message.

  Raises:
    ValueError: if it is neither, or has a number twice.
  """
  numbers: list[int] = []
  for part in text.split(','):
    match = re.fullmatch(r'(\d+)(?:-(\d+))?', part.strip())
    if match is None or int(match[2] or match[1]) < int(match[1]):
      raise ValueError(f'{option}={text} is neither like 1-5 nor like 2,4.')
    numbers += range(int(match[1]), int(match[2] or match[1]) + 1)
  if len(set(numbers)) < len(numbers):
    raise ValueError(f'{option}={text} has a number twice.')
  return numbers


def brief(numbers: Sequence[int]) -> str:
  """Ascending numbers, as `parse` takes them: '0-4,50'."""
  spans: list[list[int]] = []
  for number in numbers:
    if spans and number == spans[-1][1] + 1:
      spans[-1][1] = number
    else:
      spans.append([number, number])
  return ','.join(str(a) if a == b else f'{a}-{b}' for a, b in spans) or 'none'


def natural_key(name: str) -> list:
  """Sorts run 10 after run 9."""
  parts = re.split(r'(\d+)', name)
  return [int(part) if part.isdigit() else part for part in parts]
