"""LZ4 blocks with a shared dictionary and partial decoding.

The `lz4` package supports neither well: it indexes the dictionary again for each
block, a third of the compression time, and it decodes whole blocks into new memory.
The LZ4 library inside the package is therefore called directly. If its functions
are not exported (another build of the package), the package itself is used, which
makes the same blocks more slowly.
"""

import ctypes
import ctypes.util
import functools
import threading
from collections.abc import Callable
from typing import Any

import lz4.block


class DamagedBlock(ValueError):
  """A block that cannot be decoded to the wanted length."""


def compressor(dictionary: bytes, level: int) -> Callable[[Any], bytes]:
  """Returns a thread-safe function that compresses one block.

  Args:
    dictionary: Shared dictionary of at most 64 KB.
    level: LZ4 level from 3 to 12; higher levels are smaller and slower.
  """
  library = _library()
  if library is None or not dictionary:
    return lambda block: lz4.block.compress(
      block,
      mode='high_compression',
      compression=level,
      store_size=False,
      dict=dictionary,
    )
  index = _Stream(library)
  library.LZ4_resetStreamHC_fast(index.pointer, level)
  # LZ4 keeps a pointer to the dictionary, so the object must stay alive.
  index.dictionary = dictionary
  library.LZ4_loadDictHC(index.pointer, dictionary, len(dictionary))
  local = threading.local()

  def compress(block: Any) -> bytes:
    if not hasattr(local, 'stream'):
      local.stream = _Stream(library)
      local.output = ctypes.create_string_buffer(0)
    block = bytes(block)
    bound = library.LZ4_compressBound(len(block))
    if len(local.output) < bound:
      local.output = ctypes.create_string_buffer(bound)
    stream = local.stream.pointer
    library.LZ4_resetStreamHC_fast(stream, level)
    library.LZ4_attach_HC_dictionary(stream, index.pointer)
    size = library.LZ4_compress_HC_continue(
      stream, block, local.output, len(block), bound
    )
    if size <= 0:
      raise RuntimeError(f'LZ4 failed on a block of {len(block)} bytes.')
    return ctypes.string_at(local.output, size)

  return compress


class _Stream:
  """LZ4's compression state of 262 KB, freed with this object."""

  dictionary = b''

  def __init__(self, library: Any):
    self._free = library.LZ4_freeStreamHC
    self.pointer = ctypes.c_void_p(library.LZ4_createStreamHC())

  def __del__(self):
    self._free(self.pointer)


def decoder(dictionary: bytes, block_size: int) -> Callable[..., None]:
  """Returns `decode(source, size, target, wanted)`, which decodes a block's start.

  `decode` reads the `size` bytes at address `source` and writes `wanted` bytes at
  address `target`. It accesses no other memory, however damaged the block is, and
  raises DamagedBlock if the block yields fewer bytes.

  Args:
    dictionary: Dictionary that the blocks were compressed with.
    block_size: Number of bytes in a whole decoded block.
  """
  library = _library()
  if library is None:

    def decode(source: int, size: int, target: int, wanted: int) -> None:
      try:
        data = lz4.block.decompress(
          ctypes.string_at(source, size), block_size, False, dictionary
        )
      except lz4.block.LZ4BlockError as error:
        raise DamagedBlock(str(error)) from error
      if len(data) < wanted:
        raise DamagedBlock(f'it has {len(data)} bytes, expected {wanted}')
      ctypes.memmove(target, data, wanted)

    return decode

  partial = library.LZ4_decompress_safe_partial_usingDict
  length = len(dictionary)

  def decode_part(source: int, size: int, target: int, wanted: int) -> None:
    done = partial(source, target, size, wanted, wanted, dictionary, length)
    if done != wanted:
      raise DamagedBlock(f'LZ4 returned {done}, expected {wanted} bytes')

  return decode_part


def address_of(dictionary: bytes) -> int:
  """Returns the address of a dictionary, which must stay alive."""
  return ctypes.cast(ctypes.c_char_p(dictionary), ctypes.c_void_p).value or 0


@functools.cache
def _library() -> Any:
  """Returns the LZ4 library inside the package, or None if it is not exported."""
  pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
  try:
    library = ctypes.CDLL(lz4.block._block.__file__)
    for name, result, arguments in (
      ('LZ4_compressBound', integer, [integer]),
      ('LZ4_createStreamHC', pointer, []),
      ('LZ4_freeStreamHC', integer, [pointer]),
      ('LZ4_resetStreamHC_fast', None, [pointer, integer]),
      ('LZ4_loadDictHC', integer, [pointer, text, integer]),
      ('LZ4_attach_HC_dictionary', None, [pointer, pointer]),
      (
        'LZ4_compress_HC_continue',
        integer,
        [pointer, text, text, integer, integer],
      ),
      (
        'LZ4_decompress_safe_partial_usingDict',
        integer,
        [pointer, pointer, integer, integer, integer, text, integer],
      ),
    ):
      function = getattr(library, name)
      function.restype, function.argtypes = result, arguments
    return library
  except (OSError, AttributeError):
    return None
