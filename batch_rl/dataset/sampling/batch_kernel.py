"""Compiled function that makes whole batches without the interpreter's lock.

Threads that call `make_batch` run in parallel: drawing rows, reading small columns,
checking and decoding blocks, and stacking frames are one call. `compiled_batches` loads
this module and prepares the arguments. `Sampler.reference` has the same algorithm in
Python; the tests compare both.

Addresses come from packed shards whose offsets were validated (`PackedShard.check`).
`decode_block` reads and writes only within the sizes that it is given, so a damaged
block does no harm.

Numba compiles again if this file changes, so functions that it calls are here, too.
"""

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from batch_rl.utils.native import compiled_code

DONE = 0
FAILED = 1  # Python repeats the batch and raises the error.
NO_ROOM = 2  # The copy of mapped blocks needs a larger buffer.

# Columns of `plan`, which has a row for each stretch of consecutive blocks.
_SHARD, _ENTRY, _LAST, _SKIP, _COUNT, _FRAME, _SOURCE = range(7)
_MAX_RANGES = 1024  # `pwritev` accepts no more a call.
_AHEAD = 4  # Number of stretches whose blocks are prefetched.
_LINE = 64  # Size of a cache line.
_LOW = np.uint64(0xFFFFFFFF)
_PHILOX_MULTIPLIERS = (
  np.uint64(0xD2E7470EE14C6C93),
  np.uint64(0xCA5A826395121157),
)
_PHILOX_INCREMENTS = (
  np.uint64(0x9E3779B97F4A7C15),
  np.uint64(0xBB67AE8584CAA73B),
)


# --- what Numba does not offer ------------------------------------------------

_NOT_VOLATILE = ir.Constant(ir.IntType(1), 0)


@intrinsic
def _high_product(context, a, b):
  """Returns the upper 64 bits of the product of two uint64."""

  def generate(context, builder, signature, arguments):
    wide = ir.IntType(128)
    a, b = (builder.zext(argument, wide) for argument in arguments)
    high = builder.lshr(builder.mul(a, b), ir.Constant(wide, 64))
    return builder.trunc(high, ir.IntType(64))

  return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def _byte(context, address):
  """Returns the byte at an address."""

  def generate(context, builder, signature, arguments):
    pointer = context.get_value_type(types.voidptr)
    byte = builder.load(builder.inttoptr(arguments[0], pointer))
    return builder.zext(byte, ir.IntType(64))

  return types.int64(types.int64), generate


@intrinsic
def _call_pwritev(context, function, descriptor, ranges, count, offset):
  """Calls `pwritev`."""
  return compiled_code.c_call(
    types.int64, types.int32, types.int64, types.int32, types.int64
  )


@intrinsic
def _call_crc32(context, function, crc, address, size):
  """Calls a function of `checksums.crc32_address`."""
  return compiled_code.c_call(
    types.int64, types.int64, types.int64, types.int64
  )


def _llvm_call(name, kinds, constants):
  """Returns the result of an intrinsic that calls one of LLVM's.

  Args:
    name: Name of LLVM's intrinsic, without the types of its arguments.
    kinds: Bits of each argument; 0 for an address.
    constants: Constants of LLVM that follow the arguments.
  """

  def generate(context, builder, signature, values):
    pointer = context.get_value_type(types.voidptr)
    arguments = [
      builder.trunc(value, ir.IntType(bits))
      if bits
      else builder.inttoptr(value, pointer)
      for value, bits in zip(values, kinds, strict=True)
    ]
    # The full name has the types, except that of a byte, which is always the same.
    named = [x.type for x in arguments if x.type != ir.IntType(8)]
    arguments += constants
    kind = ir.FunctionType(ir.VoidType(), [x.type for x in arguments])
    function = builder.module.declare_intrinsic(name, named, kind)
    builder.call(function, arguments)
    return context.get_dummy_value()

  return types.void(*[types.int64] * len(kinds)), generate


@intrinsic
def _copy_bytes(context, target, source, size):
  """Copies bytes: a small constant number directly, others by the C library's `memcpy`.

  That writes large blocks without reading their old content into the cache, which takes
  less than half the time of a loop.
  """
  return _llvm_call('llvm.memcpy', (0, 0, 64), [_NOT_VOLATILE])


@intrinsic
def _fill_bytes(context, target, value, size):
  """Sets bytes to a value by the C library's `memset`."""
  return _llvm_call('llvm.memset', (0, 8, 64), [_NOT_VOLATILE])


@intrinsic
def _prefetch(context, address):
  """Asks for the cache line at an address, without waiting for it."""
  # For reading, into the second cache, data.
  options = [ir.Constant(ir.IntType(32), n) for n in (0, 2, 1)]
  return _llvm_call('llvm.prefetch', (0,), options)


# --- drawing ------------------------------------------------------------------


@compiled_code.inner
def _philox(counter, number, key, words):
  """Writes four words of Philox4x64-10 (Salmon et al., 2011)."""
  a, b, c, d = np.uint64(counter), np.uint64(number), np.uint64(0), np.uint64(0)
  key_0, key_1 = key[0], key[1]
  for _ in range(10):
    high_0 = _high_product(_PHILOX_MULTIPLIERS[0], a)
    high_1 = _high_product(_PHILOX_MULTIPLIERS[1], c)
    low_0, low_1 = _PHILOX_MULTIPLIERS[0] * a, _PHILOX_MULTIPLIERS[1] * c
    a, b, c, d = high_1 ^ b ^ key_0, low_1, high_0 ^ d ^ key_1, low_0
    key_0 += _PHILOX_INCREMENTS[0]
    key_1 += _PHILOX_INCREMENTS[1]
  words[0], words[1], words[2], words[3] = a, b, c, d


@compiled_code.inner
def draw_numbers(
  key: np.ndarray, number: int, total: int, out: np.ndarray
) -> None:
  """Draws as `row_ranges.draw_numbers` does: Lemire's method (2019).

  Args:
    key: Key, uint64 (2,).
    number: Number of the batch, the second word of the counter.
    total: Upper bound, exclusive, from 1 to 2^32.
    out: Receives the numbers, int64 (n,).
  """
  words = np.empty(4, np.uint64)
  bound = np.uint64(total)
  threshold = (np.uint64(2**32) - bound) % bound
  used = np.uint64(0)  # halves of words
  i = 0
  while i < len(out):
    at = used >> np.uint64(1)
    half = used & np.uint64(1)
    if not used & np.uint64(7):
      _philox((at >> np.uint64(2)) + np.uint64(1), number, key, words)
    word = words[at & np.uint64(3)]
    used += np.uint64(1)
    product = ((word >> (np.uint64(32) * half)) & _LOW) * bound
    if product & _LOW >= threshold:
      out[i] = np.int64(product >> np.uint64(32))
      i += 1


@compiled_code.inner
def _draw_rows(key, number, first, cumulative, rows):
  """Draws the valid rows of a batch (see `Ranges.draw`)."""
  draw_numbers(key, number, cumulative[-1], rows)
  for i in range(len(rows)):
    at = np.searchsorted(cumulative, rows[i], 'right')
    rows[i] += first[at] - (cumulative[at - 1] if at else 0)


# --- small columns ------------------------------------------------------------


@compiled_code.inner
def _read_columns(ends, action, reward, discounts, columns):
  """Fills the columns of transitions (see `columns.py`)."""
  rows, actions, rewards, next_actions, next_rewards, terminals, steps = columns
  horizon = len(discounts)
  for i in range(len(rows)):
    row = rows[i]
    at = np.searchsorted(ends, row)
    to_end = ends[at] - row if at < len(ends) else horizon
    count = min(to_end + 1, horizon)
    total = np.float32(0)
    for j in range(count):
      total += discounts[j] * np.float32(reward[min(row + j, len(action) - 1)])
    following = min(row + count, len(action) - 1)
    actions[i] = action[row]
    rewards[i] = total
    next_actions[i] = action[following]
    next_rewards[i] = reward[following]
    terminals[i] = to_end < horizon
    steps[i] = count


# --- LZ4 ----------------------------------------------------------------------

# A few literals, and a match of up to `_MATCH` bytes, are copied without a branch on
# their length, which the processor would often predict wrongly: so many bytes always
# are. The rest of a longer match follows in chunks.
_LITERALS, _MATCH, _CHUNK = 16, 128, 64


@compiled_code.inner
def decode_block(
  source: int,
  size: int,
  target: int,
  wanted: int,
  dictionary: int,
  dictionary_size: int,
) -> bool:
  """Decodes the beginning of an LZ4 block.

  Whatever the block contains, only the block, the dictionary and the target are read,
  and only the wanted bytes of the target are written. It takes three quarters of the
  time of LZ4's own decoder, which is made for shorter matches than frames have.

  Source of the format: LZ4 Block Format Description.

  Args:
    source: Address of the block.
    size: Size of the block.
    target: Address to decode to.
    wanted: Number of bytes to decode, at least 1.
    dictionary: Address of the dictionary.
    dictionary_size: Size of the dictionary.

  Returns:
    Whether the block has as many bytes. It must end in literals, as any block of LZ4
    does.
  """
  end, start, stop = source + size, target, target + wanted
  gap = start - (dictionary + dictionary_size)
  while source < end:
    token = _byte(source)
    source += 1
    count = token >> 4
    if count < 15 and end - source >= _LITERALS and stop - target >= _LITERALS:
      _copy_bytes(target, source, _LITERALS)
    else:
      if count == 15:
        source, count = _add_length(source, end, count)
      count = min(count, stop - target)
      if count > end - source:
        return False
      _copy_bytes(target, source, count)
      if count == stop - target:
        return True
    source += count
    target += count
    if end - source < 3:
      return False
    offset = _byte(source) | _byte(source + 1) << 8
    source += 2
    count = token & 15
    # Most lengths have at most one byte of their own.
    is_long = count == 15
    extra = _byte(source) * is_long
    source += is_long
    count += 4 + extra
    if extra == 255:
      source, count = _add_length(source, end, count)
    origin = target - offset
    if source >= end or offset == 0 or origin < start - dictionary_size:
      return False
    before = start - origin  # Bytes that lie in the dictionary, if positive.
    if (
      (count < stop - target - _MATCH)
      & (offset >= _CHUNK)
      & ((before <= 0) | (before >= count + _MATCH))
    ):
      _copy_chunks(target, origin - (gap if before > 0 else 0), count)
    else:
      count = min(count, stop - target)
      _copy_match(target, origin, count, start, gap)
      if count == stop - target:
        return True
    target += count
  return False


@compiled_code.inner
def _add_length(source, end, count):
  """Adds the bytes of a length that is at least 15; returns where they end, and it."""
  while source < end:
    extra = _byte(source)
    source += 1
    count += extra
    if extra < 255:
      break
  return source, count


@compiled_code.inner
def _copy_chunks(target, origin, count):
  """Copies a match, and up to `_MATCH` more bytes."""
  _copy_bytes(target, origin, _CHUNK)
  _copy_bytes(target + _CHUNK, origin + _CHUNK, _CHUNK)
  for at in range(_MATCH, count, _CHUNK):
    _copy_bytes(target + at, origin + at, _CHUNK)


@compiled_code.inner
def _copy_match(target, origin, count, start, gap):
  """Copies exactly a match, which may begin in the dictionary, or repeat itself."""
  if origin < start:
    size = min(count, start - origin)
    _copy_bytes(target, origin - gap, size)
    target, origin, count = target + size, start, count - size
  if target - origin == 1:
    _fill_bytes(target, _byte(origin), count)
    return
  while count > 0:
    size = min(count, target - origin)
    _copy_bytes(target, origin, size)
    target, count = target + size, count - size


# --- frames -------------------------------------------------------------------


@compiled_code.inner
def _plan(rows, length, back, frames, plan):
  """Lists the stretches of blocks to decode, beginning with the last window's.

  Almost all windows are one stretch. Those across shards or a ring's end have one for
  each frame.

  Returns:
    Number of stretches.
  """
  addresses, segments, stops, shift, breaks, offsets = frames[:6]
  block_rows = frames[7][4]
  n = 0
  for i in range(len(rows) - 1, -1, -1):
    row = rows[i] - back
    segment = np.searchsorted(segments, row, 'right') - 1
    count = length
    if row < 0 or row + length > stops[segment] or not addresses[segment >> 1]:
      count = 1
    stop = stops[-1]
    at = np.searchsorted(breaks, row, 'right')
    if at < len(breaks):
      stop = min(stop, breaks[at])
    for j in range(length - count, -1, -1):
      frame = row + j
      if count == 1:
        segment = np.searchsorted(segments, frame, 'right') - 1
      plan[n, _FRAME] = i * length + j
      plan[n, _SHARD] = -1  # All zero, unless it is in the run.
      if 0 <= frame < stop and addresses[segment >> 1]:
        position = frame + shift[segment]
        entry = position // block_rows
        skip = position - entry * block_rows
        plan[n, _SHARD] = segment >> 1
        plan[n, _ENTRY] = entry
        plan[n, _LAST] = entry + (skip + count + block_rows - 1) // block_rows
        plan[n, _SKIP] = skip
        plan[n, _COUNT] = count
        plan[n, _SOURCE] = addresses[segment >> 1] + offsets[entry]
      n += 1
  return n


@compiled_code.inner
def _copy(plan, offsets, pwritev, descriptor, buffer, room):
  """Copies the blocks of mapped files into a buffer (see `mapped_files`).

  Returns:
    DONE, NO_ROOM or FAILED.
  """
  ranges = np.empty((len(plan), 2), np.int64)
  n = total = 0
  for k in range(len(plan)):
    if plan[k, _SHARD] >= 0:
      size = _size(plan[k], offsets)
      ranges[n, 0], ranges[n, 1] = plan[k, _SOURCE], size
      plan[k, _SOURCE] = buffer + total
      total += size
      n += 1
  if total > room:
    return NO_ROOM
  done = 0
  for first in range(0, n, _MAX_RANGES):
    count = min(n - first, _MAX_RANGES)
    size = 0
    for k in range(first, first + count):
      size += ranges[k, 1]
    address = ranges.ctypes.data + first * ranges.itemsize * 2
    if size != _call_pwritev(pwritev, descriptor, address, count, done):
      return FAILED
    done += size
  return DONE


@compiled_code.inner
def _check(plan, offsets, running, crc32):
  """Whether the checksums of all stretches are right.

  All are checked before the first is decoded: decoding is slower after instructions
  that use the widest registers.
  """
  for k in range(-_AHEAD, len(plan)):
    if k + _AHEAD < len(plan) and plan[k + _AHEAD, _SHARD] >= 0:
      ahead = plan[k + _AHEAD]
      for at in range(0, _size(ahead, offsets), _LINE):
        _prefetch(ahead[_SOURCE] + at)
    if k >= 0 and plan[k, _SHARD] >= 0:
      before = np.int64(running[plan[k, _ENTRY]])
      size = _size(plan[k], offsets)
      found = _call_crc32(crc32, before, plan[k, _SOURCE], size)
      if np.uint32(found) != running[plan[k, _LAST]]:
        return False
  return True


@compiled_code.inner
def _size(stretch, offsets):
  """Returns the size of the blocks of a stretch."""
  return offsets[stretch[_LAST]] - offsets[stretch[_ENTRY]]


@compiled_code.inner
def _decode(stretch, offsets, target, calls):
  """Decodes a stretch so that its wanted frames begin at `target`.

  The frames before them land before `target`.
  """
  frame_bytes, dictionary, dictionary_size = calls[0], calls[1], calls[2]
  block_bytes = calls[4] * frame_bytes
  source, entry = stretch[_SOURCE], stretch[_ENTRY]
  target -= stretch[_SKIP] * frame_bytes
  left = (stretch[_SKIP] + stretch[_COUNT]) * frame_bytes
  while left > 0:
    size = offsets[entry + 1] - offsets[entry]
    wanted = min(left, block_bytes)
    if not decode_block(
      source, size, target, wanted, dictionary, dictionary_size
    ):
      return False
    source += size
    target += wanted
    left -= wanted
    entry += 1
  return True


@compiled_code.inner
def _stack(window, first, out):
  """Interleaves the frames of a window from `first` on: (pixels, stack_size)."""
  pixels, stack_size = out.shape
  if stack_size == 4:
    # The compiler makes vector instructions of this.
    a = window[first * pixels :]
    b, c, d = a[pixels:], a[2 * pixels :], a[3 * pixels :]
    for p in range(pixels):
      out[p, 0] = a[p]
      out[p, 1] = b[p]
      out[p, 2] = c[p]
      out[p, 3] = d[p]
  else:
    for j in range(stack_size):
      for p in range(pixels):
        out[p, j] = window[(first + j) * pixels + p]


@compiled_code.kept
def make_batch(
  draw: tuple,
  run: tuple,
  frames: tuple,
  copying: tuple,
  columns: tuple,
  length: int,
  stack_size: int,
  count: int,
  outputs: np.ndarray,
) -> int:
  """Makes consecutive batches of n transitions.

  Args:
    draw: Key of the seed, uint64 (2,); number of the first batch; first row of each
      range of valid rows, and number of valid rows up to its end, int64 (ranges,);
      without ranges, the rows in `columns` are used.
    run: Ends, actions, rewards, discounts.
    frames: `frame_blocks.Tables`.
    copying: Descriptor, address and size of the buffer for mapped blocks.
    columns: Receives the columns `compiled_batches.COLUMNS` of all batches.
    length: Number of frames in a window: those in a state, plus `update_horizon`.
    stack_size: Number of frames in a state, to stack them; 0 for windows.
    count: Number of transitions in a batch, n.
    outputs: Address of each batch's frames, int64 (batches,); empty for no frames.
      Windows are uint8 (n, length * frame bytes). States and next states are uint8
      (2, n, frame bytes, stack_size).

  Returns:
    DONE, FAILED or NO_ROOM.
  """
  key, number, first, cumulative = draw
  ends, action, reward, discounts = run
  offsets, calls = frames[5], frames[7]
  rows, steps = columns[0], columns[6]
  if len(first):
    for k in range(len(rows) // count):
      drawn = rows[k * count : (k + 1) * count]
      _draw_rows(key, number + np.uint64(k), first, cumulative, drawn)
  for row in rows:
    if row < 0 or row >= len(action):
      return FAILED
  _read_columns(ends, action, reward, discounts, columns)
  if not len(outputs):
    return DONE
  room = np.empty((len(rows) * length, 7), np.int64)
  back = length - len(discounts) - 1
  plan = room[: _plan(rows, length, back, frames, room)]
  if calls[3]:
    copied = _copy(plan, offsets, calls[3], copying[0], copying[1], copying[2])
    if copied != DONE:
      return copied
  if not _check(plan, offsets, frames[6], calls[5]):
    return FAILED
  frame_bytes = calls[0]
  size = length * frame_bytes
  # A window is decoded in the cache. Frames that are not wanted land before it.
  before = (calls[4] - 1) * frame_bytes
  window = np.empty(before + size, np.uint8)[before:]
  address = window.ctypes.data
  stack = np.empty((frame_bytes, stack_size), np.uint8)  # in the cache, too
  for k in range(len(plan)):
    i = plan[k, _FRAME] // length
    first = (plan[k, _FRAME] - i * length) * frame_bytes
    if plan[k, _SHARD] < 0:
      _fill_bytes(address + first, 0, frame_bytes)
    elif not _decode(plan[k], offsets, address + first, calls):
      return FAILED
    if first:
      continue  # Earlier frames of the window follow.
    output, place = outputs[i // count], i % count
    if not stack_size:
      _copy_bytes(output + place * size, address, size)
    for j in range(2 if stack_size else 0):
      _stack(window, steps[i] * j, stack)
      target = output + (j * count + place) * stack.size
      _copy_bytes(target, stack.ctypes.data, stack.size)
  return DONE
