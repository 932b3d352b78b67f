"""Compiled decoding of LZ4 blocks: of a part, with a dictionary, and of damage."""

import ctypes

import numba
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import batch_kernel


@numba.njit
def decode_block(*arguments):
  return batch_kernel.decode_block(*arguments)


class Damaged(Exception):
  """A block that does not decode to as many bytes."""


def decode(dictionary, block, wanted):
  """Decodes a block, and checks that memory around the target is unchanged."""
  memory = (ctypes.c_uint8 * (wanted + 200))(*b'\xaa' * (wanted + 200))
  source = ctypes.create_string_buffer(block, len(block))
  words = ctypes.create_string_buffer(dictionary, len(dictionary))
  read = ctypes.addressof(source), len(block)
  known = ctypes.addressof(words), len(dictionary)
  target = ctypes.addressof(memory) + 100
  if not decode_block(*read, target, wanted, *known):
    raise Damaged
  content = bytes(memory)
  assert set(content[:100] + content[100 + wanted :]) == {0xAA}
  return content[100 : 100 + wanted]


@st.composite
def written_blocks(draw):
  """Draws a dictionary, a block of any matches, and what it decodes to."""
  dictionary = bytes(i * i % 251 for i in range(draw(st.integers(0, 300))))
  block, content = b'', dictionary
  lengths = st.integers(0, 20) | st.integers(0, 600)
  for i in range(draw(st.integers(0, 8))):
    literals = bytes((7 * i + j) % 256 for j in range(draw(lengths) + (not i)))
    content += literals
    offset = draw(st.integers(1, min(100, len(content)))) if i % 2 else None
    offset = offset or draw(st.integers(1, len(content)))
    count = draw(lengths)  # and 4 more
    tokens = min(len(literals), 15) << 4 | min(count, 15)
    block += bytes([tokens]) + more_length(len(literals)) + literals
    block += offset.to_bytes(2, 'little') + more_length(count)
    for _ in range(count + 4):
      content += content[-offset].to_bytes(1, 'little')
  last = b'Atari' * draw(st.integers(1, 9))
  block += bytes([min(len(last), 15) << 4]) + more_length(len(last)) + last
  return dictionary, block, content[len(dictionary) :] + last


def more_length(count):
  if count < 15:
    return b''
  return b'\xff' * ((count - 15) // 255) + bytes([(count - 15) % 255])


@settings(max_examples=300)
@given(written_blocks(), st.data())
def test_written_blocks_are_decoded(written, data):
  dictionary, block, content = written
  wanted = data.draw(st.integers(1, len(content)))
  assert decode(dictionary, block, wanted) == content[:wanted]
  assert decode(dictionary, block, len(content)) == content
  with pytest.raises(Damaged):
    decode(dictionary, block, len(content) + 1)


def test_a_block_that_ends_in_a_length_is_refused():
  for length in (b'', b'\xff', b'\xff' * 4):
    with pytest.raises(Damaged):
      decode(b'', b'\x1fA\x01\0' + length, 9)


def damage(block, rng):
  """Truncates, changes or extends a block at some places."""
  content = bytearray(block)
  for _ in range(rng.randint(1, 4)):
    at = rng.randrange(len(content) + 1)
    insert = rng.randbytes(rng.randrange(9))
    content[at : at + rng.choice([0, 1, 9, 9999])] = insert
  for _ in range(rng.randrange(3) * bool(content)):
    content[rng.randrange(len(content))] ^= rng.choice([1, 16, 128, 255])
  return bytes(content)


_DECODE_BESIDE_GUARD_PAGES = """
import ctypes, lz4.block, mmap, os, random
from batch_rl.tests.dataset.sampling import lz4_blocks_test
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE

def guarded_pages():
  # The first and the last page can be neither read nor written.
  memory = mmap.mmap(-1, 6 * page)
  start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
  for at in (start, start + 5 * page):
    assert libc.mprotect(ctypes.c_void_p(at), page, 0) == 0
  return memory, start + page, start + 5 * page

keep_source, first, after = guarded_pages()
keep_target, target_first, target_after = guarded_pages()
keep_words, words_first, words_after = guarded_pages()
child = os.fork()
if not child:
  ctypes.string_at(after, 1)
  os._exit(0)
assert os.WIFSIGNALED(os.waitpid(child, 0)[1])  # A guard page ends the process.
rng = random.Random(1)
dictionary = rng.randbytes(500) + b'frame' * 99
block = (dictionary[100:300] + bytes(400) + rng.randbytes(30)) * 3
options = {'compression': 5, 'store_size': False, 'dict': dictionary}
good = lz4.block.compress(block, 'high_compression', **options)
places = words_first, words_after - len(dictionary)
for words in places:
  ctypes.memmove(words, dictionary, len(dictionary))
refused = 0
for i in range(40_000):
  damaged = lz4_blocks_test.damage(good, rng) if i % 50 > 3 else good
  wanted = rng.randint(1, len(block))
  source = rng.choice([first, after - len(damaged)])
  target = rng.choice([target_first, target_after - wanted])
  ctypes.memmove(source, damaged, len(damaged))
  if not lz4_blocks_test.decode_block(
    source, len(damaged), target, wanted, places[i % 2], len(dictionary)
  ):
    refused += 1
    assert damaged != good
  elif damaged is good:
    assert ctypes.string_at(target, wanted) == block[:wanted]
print(refused)
"""


def test_damaged_blocks_cause_no_access_out_of_bounds(run_code):
  """Blocks and targets lie beside guard pages, in a process of their own."""
  assert 6_000 < int(run_code(_DECODE_BESIDE_GUARD_PAGES).stdout) < 38_400
