"""Number lists on the command line, e.g. `1-5,50`, and natural sort order."""

import re
from collections.abc import Sequence

# Far more than the shards of a run.
_MOST = 10_000


def parse(text: str, option: str) -> list[int]:
  """Returns the run or shard numbers in a list such as '1-5,8'.

  Args:
    text: Comma-separated numbers and ranges.
    option: Command-line option named in the error message.

  Raises:
    ValueError: If the text is not such a list, repeats a number, or has more than
      10,000.
  """
  numbers: list[int] = []
  for part in text.split(','):
    match = re.fullmatch(r'([0-9]{1,18})(?:-([0-9]{1,18}))?', part.strip())
    if match is None or int(match[2] or match[1]) < int(match[1]):
      raise ValueError(
        f'{option}={text} is neither a range like 1-5 nor a list like 2,4.'
      )
    span = range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(numbers) + len(span) > _MOST:
      raise ValueError(f'{option}={text} has more than {_MOST:,} numbers.')
    numbers += span
  if len(set(numbers)) < len(numbers):
    raise ValueError(f'{option}={text} repeats a number.')
  return numbers


def brief(numbers: Sequence[int]) -> str:
  """Formats ascending numbers for `parse`, e.g. '0-4,50'; 'none' if empty."""
  spans: list[list[int]] = []
  for number in numbers:
    if spans and number == spans[-1][1] + 1:
      spans[-1][1] = number
    else:
      spans.append([number, number])
  return ','.join(str(a) if a == b else f'{a}-{b}' for a, b in spans) or 'none'


def natural_key(name: str) -> list:
  """Returns a sort key that puts run 10 after run 9."""
  parts = re.split(r'(\d+)', name)
  return [int(part) if part.isdecimal() else part for part in parts]
