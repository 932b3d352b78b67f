"""Mutations of files: pure functions of the content and a random generator."""

import gzip
import io
import json
import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

Mutation = Callable[[bytes, np.random.Generator], bytes]


def flip_bits(content: bytes, random: np.random.Generator) -> bytes:
  """Flips one to three bits."""
  out = bytearray(content)
  for _ in range(random.integers(1, 4)):
    out[random.integers(len(out))] ^= 1 << int(random.integers(8))
  return bytes(out)


def overwrite_range(content: bytes, random: np.random.Generator) -> bytes:
  """Replaces up to 64 bytes by random ones."""
  start, stop = _range(content, random, 64)
  return content[:start] + random.bytes(stop - start) + content[stop:]


def zero_range(content: bytes, random: np.random.Generator) -> bytes:
  """Replaces a part by zeros, as a crash of the machine does."""
  start, stop = _range(content, random, len(content))
  return content[:start] + bytes(stop - start) + content[stop:]


def swap_ranges(content: bytes, random: np.random.Generator) -> bytes:
  """Swaps two parts of equal length."""
  length = _length(random, len(content) // 2)
  first = int(random.integers(0, max(len(content) - 2 * length, 0) + 1))
  second = int(
    random.integers(
      first + length, max(len(content) - length, first + length) + 1
    )
  )
  a, b = content[first : first + length], content[second : second + length]
  parts = (content[:first], b, content[first + length : second], a)
  return b''.join(parts) + content[second + length :]


def truncate(content: bytes, random: np.random.Generator) -> bytes:
  """Removes the end."""
  return content[: random.integers(len(content))]


def extend(content: bytes, random: np.random.Generator) -> bytes:
  """Appends zeros, random bytes, or the file's own first bytes."""
  count = int(random.integers(1, 100))
  tails = bytes(count), random.bytes(count), content[:count]
  return content + tails[random.integers(3)]


def make_empty(content: bytes, random: np.random.Generator) -> bytes:
  """Removes everything."""
  del content, random
  return b''


SAME_SIZE: dict[str, Mutation] = {
  'bit flips': flip_bits,
  'overwritten': overwrite_range,
  'zeroed': zero_range,
  'swapped ranges': swap_ranges,
}
ANY_SIZE: dict[str, Mutation] = {
  **SAME_SIZE,
  'truncated': truncate,
  'extended': extend,
  'empty': make_empty,
}


def append_member(content: bytes, random: np.random.Generator) -> bytes:
  """Appends a gzip member: the same again, or a few bytes."""
  if random.random() < 0.5:
    return content + content
  return content + gzip.compress(random.bytes(int(random.integers(1, 50))))


def edit_header(content: bytes, random: np.random.Generator) -> bytes:
  """Changes the header of a gzipped `.npy`, and compresses the file again."""
  stream = io.BytesIO(gzip.decompress(content))
  magic = stream.read(8)
  header = stream.read(int.from_bytes(stream.read(2), 'little')).decode()
  rest = stream.read()
  edit = random.choice(['shape', 'dtype', 'order', 'version', 'length'])
  if edit == 'shape':
    sizes = re.findall(r'\d+', header.partition("'shape':")[2])
    claims = ['0', '1', '3', '-1', '2147483647', '4000000000', '9' * 25]
    other = [str(random.choice([*claims, size])) for size in sizes]
    if random.random() < 0.3 or not sizes:
      other.append(str(random.choice(claims)))
    shape = f"'shape': ({', '.join(other)},)"
    header = re.sub(r"'shape': \([^)]*\)", shape, header)
  elif edit == 'dtype':
    names = ['|u1', '|i1', '<i4', '<u4', '<f4', '>i4', '<i8', '<f8', '|O']
    names += ['|b1', '<c16', '|S4', '|V7056', '<f2', 'x', '<U99999999']
    header = re.sub(r"'[<>|=][^']*'", f"'{random.choice(names)}'", header)
  elif edit == 'order':
    header = header.replace('False', str(random.choice(['True', 'None'])))
  elif edit == 'version':
    magic = magic[:6] + random.bytes(2)
  length = len(header)
  if edit == 'length':
    length = int(random.integers(1 << 16))
  return gzip.compress(
    magic + length.to_bytes(2, 'little') + header.encode() + rest, mtime=0
  )


_DEEP = '@deep@'
# Values that a reader does not expect; some are JSON, but not Python.
_ODD: tuple[Any, ...] = (
  *(None, True, False, 0, -1, 1, 0.5, 1 << 63, -(1 << 70), 10**400),
  *('@1e999@', '@-1e999@', '@NaN@', _DEEP, '', 'x', 'x' * 5000, '\0', '../..'),
  *([], {}, [None], [[]], {'': None}, [1, 'x'], '7', ' 7 '),
)


def change_value(content: bytes, random: np.random.Generator) -> bytes:
  """Replaces, wraps, removes or repeats one value of a JSON document."""
  document = [json.loads(content)]
  holder, key = _pick(document, random)
  action = random.choice(['replace', 'replace', 'remove', 'wrap', 'twice'])
  value = _ODD[random.integers(len(_ODD))]
  if action == 'remove' and holder is not document:
    del holder[key]
  elif action == 'wrap':
    holder[key] = [holder[key]] if random.random() < 0.5 else {'x': holder[key]}
  elif action == 'twice' and isinstance(holder, dict):
    holder[f'{key}@twice@'] = value
  else:
    holder[key] = value
  text = json.dumps(document[0], indent=1).replace('@twice@', '')
  text = re.sub(r'"@(-?1e999|NaN)@"', r'\1', text)
  return text.replace(f'"{_DEEP}"', '[' * 100_000 + ']' * 100_000).encode()


def _pick(document: list, random: np.random.Generator) -> tuple[Any, Any]:
  """Returns a container in a document and the key of one of its values."""
  places: list[tuple[Any, Any]] = []
  waiting: list[Any] = [document]
  while waiting:
    holder = waiting.pop()
    keys = holder if isinstance(holder, dict) else range(len(holder))
    for key in keys:
      places.append((holder, key))
      if isinstance(holder[key], dict | list):
        waiting.append(holder[key])
  # Outer values are picked as often as the many inner ones.
  if random.random() < 0.3:
    places = places[: 1 + len(document[0])]
  return places[random.integers(len(places))]


def mutate(
  content: bytes, random: np.random.Generator, mutations: dict[str, Mutation]
) -> tuple[str, bytes]:
  """Applies a random mutation that changes the content.

  Args:
    content: Content of a file, not empty.
    random: Generator of all random numbers.
    mutations: Mutations by name.

  Returns:
    The name of the mutation, and the other content.
  """
  while True:
    name = str(random.choice(list(mutations)))
    other = mutations[name](content, random)
    if other != content:
      return name, other


def describe_change(before: bytes, after: bytes, shown: int = 24) -> str:
  """Returns the first place at which two contents differ."""
  at = next(
    (
      i
      for i, pair in enumerate(zip(before, after, strict=False))
      if pair[0] != pair[1]
    ),
    min(len(before), len(after)),
  )
  start = max(at - shown // 2, 0)
  old, new = (c[start : start + shown] for c in (before, after))
  return f'at byte {at} of {len(before)}, {old!r} is {new!r}'


def choose(random: np.random.Generator, items: Iterable[Any]) -> Any:
  """Returns a random item, as it is: NumPy would convert it."""
  items = list(items)
  return items[random.integers(len(items))]


def _range(content, random, longest) -> tuple[int, int]:
  length = _length(random, min(longest, len(content)))
  start = int(random.integers(0, len(content) - length + 1))
  return start, start + length


def _length(random, longest) -> int:
  """Returns a length from 1 on; short ones are as likely as long ones."""
  return int(np.exp(random.uniform(0, np.log(max(longest, 1)))))
