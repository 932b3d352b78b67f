"""LZ4 blocks that share a dictionary, decoded as far as they are needed.

The `lz4` package can do neither: for each block that it compresses it indexes the
dictionary anew, a third of the time, and it decodes whole blocks, into new memory.
So the LZ4 library that the package brings is called directly. Where its functions
are out of reach (another build of the package), the package is used as it is: the
same blocks, slower.
"""

import ctypes
import ctypes.util
import threading
from collections.abc import Callable
from typing import Any

import lz4.block


class DamagedBlock(ValueError):
  """What should be a block is not one."""


def compressor(dictionary: bytes, level: int) -> Callable[[Any], bytes]:
  """Returns a function that compresses one block; threads may share it.

  Args:
    dictionary: at most 64 KB that blocks may refer to.
    level: 3 to 12; higher is smaller and slower.
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
  # It refers to the dictionary, which must stay.
  index.dictionary = dictionary
  library.LZ4_loadDictHC(index.pointer, dictionary, len(dictionary))
  mine = threading.local()

  def compress(block: Any) -> bytes:
    if not hasattr(mine, 'stream'):
      mine.stream = _Stream(library)
      mine.room = ctypes.create_string_buffer(0)
    block = bytes(block)
    bound = library.LZ4_compressBound(len(block))
    if len(mine.room) < bound:
      mine.room = ctypes.create_string_buffer(bound)
    stream = mine.stream.pointer
    library.LZ4_resetStreamHC_fast(stream, level)
    library.LZ4_attach_HC_dictionary(stream, index.pointer)
    size = library.LZ4_compress_HC_continue(
      stream, block, mine.room, len(block), bound
    )
    if size <= 0:
      raise RuntimeError(f'LZ4 failed on a block of {len(block)} bytes.')
    return ctypes.string_at(mine.room, size)

  return compress


class _Stream:
  """LZ4's state for compressing, 262 KB, freed with this object."""

  dictionary = b''

  def __init__(self, library: Any):
    self._free = library.LZ4_freeStreamHC
    self.pointer = ctypes.c_void_p(library.LZ4_createStreamHC())

  def __del__(self):
    self._free(self.pointer)


def decoder(dictionary: bytes, block_size: int) -> Callable[..., None]:
  """Returns `decode(source, size, target, wanted)`, which decodes a block's start.

  `source` and `target` are addresses, of `size` bytes to read and room for
  `wanted` bytes to write. It raises DamagedBlock if the block has less than that,
  and reads and writes nowhere else, however damaged the block is.

  Args:
    dictionary: the one that the blocks were compressed with.
    block_size: bytes in a whole block.
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
        raise DamagedBlock(f'{len(data)} bytes in place of {wanted}')
      ctypes.memmove(target, data, wanted)

    return decode

  partial = library.LZ4_decompress_safe_partial_usingDict
  length = len(dictionary)

  def decode_part(source: int, size: int, target: int, wanted: int) -> None:
    done = partial(source, target, size, wanted, wanted, dictionary, length)
    if done != wanted:
      raise DamagedBlock(f'LZ4 says {done} in place of {wanted} bytes')

  return decode_part


def _library() -> Any:
  """The LZ4 library inside the package, or None if it is out of reach."""
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
