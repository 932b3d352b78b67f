"""LZ4 blocks: partial decoding, threads, and damage."""

import concurrent.futures
import ctypes
import functools
import subprocess
import sys

import lz4.block
import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_rl.dataset.sampling import batch_kernel
from batch_rl.dataset.store import lz4_blocks

_decode_block = batch_kernel.decode_block


@numba.njit
def decode_block(source, size, target, wanted, dictionary, dictionary_size):
  return _decode_block(
    source, size, target, wanted, dictionary, dictionary_size
  )


def compiled_decoder(dictionary):
  """Like `lz4_blocks.decoder`, of compiled code."""
  address = lz4_blocks.address_of(dictionary)

  def decode(source, size, target, wanted):
    if not decode_block(source, size, target, wanted, address, len(dictionary)):
      raise lz4_blocks.DamagedBlock

  return decode


def decode(decoder, block, wanted):
  """Decodes a block, and checks that memory around the target is unchanged."""
  memory = (ctypes.c_uint8 * (wanted + 200))(*b'\xaa' * (wanted + 200))
  source = ctypes.create_string_buffer(block, len(block))
  target = ctypes.addressof(memory) + 100
  decoder(ctypes.addressof(source), len(block), target, wanted)
  content = bytes(memory)
  assert set(content[:100] + content[100 + wanted :]) == {0xAA}
  return content[100 : 100 + wanted]


# Byte strings with common parts, as in frames.
WORDS = st.lists(
  st.sampled_from(
    [b'', b'\0' * 40, b'frame', b'abcdefgh' * 9, bytes(range(256))]
  ),
  max_size=12,
).map(b''.join)


@settings(max_examples=60, deadline=None)
@given(
  dictionary=WORDS,
  blocks=st.lists(WORDS.filter(bool), min_size=1, max_size=5),
  level=st.sampled_from([3, 5, 9, 12]),
  data=st.data(),
)
def test_blocks_are_decoded_partially(dictionary, blocks, level, data):
  """The package, direct calls and compiled code decode the same blocks."""
  decoders = lz4_blocks.decoder(dictionary), compiled_decoder(dictionary)
  compress = lz4_blocks.compressor(dictionary, level)
  for block in blocks:
    compressed = compress(memoryview(block))
    assert block == lz4.block.decompress(
      compressed, len(block), dict=dictionary
    )
    wanted = data.draw(st.integers(1, len(block)))
    for decoder in decoders:
      assert decode(decoder, compressed, wanted) == block[:wanted]
      assert decode(decoder, compressed, len(block)) == block
      with pytest.raises(lz4_blocks.DamagedBlock):
        decode(decoder, compressed, len(block) + 1)


@st.composite
def written_blocks(draw):
  """Draws a dictionary, a block of any matches, and what it decodes to."""
  dictionary = bytes(i * i % 251 for i in range(draw(st.integers(0, 300))))
  block, content = b'', dictionary
  lengths = st.integers(0, 20) | st.integers(0, 600)
  for i in range(draw(st.integers(1, 8))):
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
  return dictionary, block + b'\x50Atari', content[len(dictionary) :] + b'Atari'


def more_length(count):
  if count < 15:
    return b''
  return b'\xff' * ((count - 15) // 255) + bytes([(count - 15) % 255])


@settings(max_examples=300, deadline=None)
@given(written_blocks(), st.data())
def test_written_blocks_are_decoded(written, data):
  """Compressors do not make all blocks of the format."""
  dictionary, block, content = written
  wanted = data.draw(st.integers(1, len(content)))
  for make in (lz4_blocks.decoder, compiled_decoder):
    decoder = make(dictionary)
    assert decode(decoder, block, wanted) == content[:wanted]
    assert decode(decoder, block, len(content)) == content
    with pytest.raises(lz4_blocks.DamagedBlock):
      decode(decoder, block, len(content) + 1)


def test_threads_share_a_compressor():
  rng = np.random.default_rng(0)
  dictionary = rng.bytes(60_000)
  blocks = [
    dictionary[i : i + 2000] + rng.bytes(100) + dictionary[-i - 500 :][:400]
    for i in range(0, 40_000, 100)
  ]
  compress = lz4_blocks.compressor(dictionary, 5)
  decoder = lz4_blocks.decoder(dictionary)
  with concurrent.futures.ThreadPoolExecutor(8) as threads:
    compressed = list(threads.map(compress, blocks))
    lengths = map(len, blocks)
    decoded = threads.map(
      functools.partial(decode, decoder), compressed, lengths
    )
    assert list(decoded) == blocks
  assert compressed == [compress(block) for block in blocks]


@pytest.mark.parametrize('make', [lz4_blocks.decoder, compiled_decoder])
def test_a_block_that_ends_in_a_length_is_refused(make):
  for length in (b'', b'\xff', b'\xff' * 4):
    with pytest.raises(lz4_blocks.DamagedBlock):
      decode(make(b''), b'\x1fA\x01\0' + length, 9)


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
import ctypes, functools, mmap, os, random
from batch_rl.dataset.store import lz4_blocks
from batch_rl.tests.dataset.store import lz4_blocks_test

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
def beside_guard_pages(words, *block):
  if not lz4_blocks_test.decode_block(*block, words, len(dictionary)):
    raise lz4_blocks.DamagedBlock
child = os.fork()
if not child:
  ctypes.string_at(after, 1)
  os._exit(0)
assert os.WIFSIGNALED(os.waitpid(child, 0)[1])  # A guard page ends the process.
rng = random.Random(1)
dictionary = rng.randbytes(500) + b'frame' * 99
block = (dictionary[100:300] + bytes(400) + rng.randbytes(30)) * 3
good = lz4_blocks.compressor(dictionary, 5)(block)
decoders = [lz4_blocks.decoder(dictionary)]
for words in (words_first, words_after - len(dictionary)):
  ctypes.memmove(words, dictionary, len(dictionary))
  decoders.append(functools.partial(beside_guard_pages, words))
refused = 0
for i in range(60_000):
  decode = decoders[i % 3]
  damaged = lz4_blocks_test.damage(good, rng) if i % 50 > 3 else good
  wanted = rng.randint(1, len(block))
  source = rng.choice([first, after - len(damaged)])
  target = rng.choice([target_first, target_after - wanted])
  ctypes.memmove(source, damaged, len(damaged))
  try:
    decode(source, len(damaged), target, wanted)
  except lz4_blocks.DamagedBlock:
    refused += 1
    assert damaged != good
    continue
  if damaged is good:
    assert ctypes.string_at(target, wanted) == block[:wanted]
print(refused)
"""


def test_damaged_blocks_cause_no_access_out_of_bounds():
  """Blocks and targets lie beside guard pages, in a process of their own."""
  done = subprocess.run(
    [sys.executable, '-c', _DECODE_BESIDE_GUARD_PAGES],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  assert 10_000 < int(done.stdout) < 57_600
