"""LZ4 blocks with a shared dictionary and partial decoding.

The functions of the `lz4` package support neither well: they index the dictionary
again for each block, a third of the compression time, and decode whole blocks into
new memory. The LZ4 library inside the package is therefore called directly.
"""

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any

import lz4
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


def decoder(dictionary: bytes) -> Callable[[int, int, int, int], None]:
  """Returns `decode(source, size, target, wanted)`, which decodes a block's start.

  `decode` reads the `size` bytes at address `source` and writes `wanted` bytes at
  address `target`. It accesses no other memory, however damaged the block is, and
  raises DamagedBlock if the block yields fewer bytes.

  Args:
    dictionary: Dictionary that the blocks were compressed with.
  """
  partial = _library().LZ4_decompress_safe_partial_usingDict
  length = len(dictionary)

  def decode(source: int, size: int, target: int, wanted: int) -> None:
    done = partial(source, target, size, wanted, wanted, dictionary, length)
    if done != wanted:
      raise DamagedBlock(f'LZ4 returned {done}, expected {wanted} bytes')

  return decode


def address_of(dictionary: bytes) -> int:
  """Returns the address of a dictionary, which must stay alive."""
  return ctypes.cast(ctypes.c_char_p(dictionary), ctypes.c_void_p).value or 0


@functools.cache
def _library() -> Any:
  """Returns the LZ4 library inside the package.

  Raises:
    ImportError: If this build of the package does not export its functions.
  """
  pointer, text, integer = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
  path = lz4.block._block.__file__
  library = ctypes.CDLL(path)
  for name, result, *arguments in (
    ('compressBound', integer, integer),
    ('createStreamHC', pointer),
    ('freeStreamHC', integer, pointer),
    ('resetStreamHC_fast', None, pointer, integer),
    ('loadDictHC', integer, pointer, text, integer),
    ('attach_HC_dictionary', None, pointer, pointer),
    ('compress_HC_continue', integer, pointer, text, text, integer, integer),
    (
      'decompress_safe_partial_usingDict',
      integer,
      *(pointer, pointer, integer, integer, integer, text, integer),
    ),
  ):
    try:
      function = getattr(library, f'LZ4_{name}')
    except AttributeError as error:
      raise ImportError(
        f'{path} of lz4 {lz4.__version__} does not export LZ4_{name}: install the '
        'wheel of lz4 from PyPI.'
      ) from error
    function.restype, function.argtypes = result, arguments
  return library
