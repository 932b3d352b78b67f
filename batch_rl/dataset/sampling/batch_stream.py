"""Batches of a sampler in order, prefetched and resumable, for any framework."""

import types
from collections.abc import Iterator
from typing import Any, Protocol

from batch_rl.dataset.sampling import prefetch, row_sampler
from batch_rl.dataset.sampling import sampler as sampler_lib


class NumberedSampler(Protocol):
  """A sampler whose batch k is a function of its seed and k, such as `Sampler`."""

  def batch(self, number: int, count: int) -> Any:
    """Returns batch `number` with `count` entries; threads call it at once."""


class BatchStream:
  """Batches 0, 1, 2, ... of a sampler, which threads prepare ahead.

  An iteration continues after the batch taken last, by an earlier iteration or before
  `state_dict`. The batches are the same for any `threads` and `ahead`. The threads of
  an iteration end with it. A subclass converts the batches to its framework's arrays.

  Args:
    sampler: Source of the batches, a `Sampler` or `SequenceSampler`.
    batch_size: Number of entries in a batch, at least 1.
    threads: Number of threads that prepare batches, at least 1.
    ahead: Number of batches prefetched, at least 1; of small ones, up to
      `ahead / threads - 1` more.
    batches_per_epoch: Number of batches after which an iteration ends, at least 1;
      None for an endless one. The next iteration has the batches that follow.

  Raises:
    ValueError: If an argument is out of range, or the run cannot be packed.
  """

  def __init__(
    self,
    sampler: NumberedSampler,
    batch_size: int = 32,
    *,
    threads: int = 2,
    ahead: int = 8,
    batches_per_epoch: int | None = None,
  ):
    if not hasattr(sampler, 'batch'):
      raise ValueError(
        f'sampler={sampler!r} has no batches: pass e.g. run.transitions(seed=1), '
        'where run is batch_rl.dataset.open(DIRECTORY).'
      )
    row_sampler.check_counts(
      batch_size=batch_size, threads=threads, ahead=ahead
    )
    if batches_per_epoch is not None:
      row_sampler.check_counts(batches_per_epoch=batches_per_epoch)
    self.sampler = sampler
    self.batch_size = batch_size
    # Python's integers, so that `state_dict` can be written as JSON.
    self.batches_per_epoch = batches_per_epoch and int(batches_per_epoch)
    self._threads = threads
    self._ahead = ahead
    self._epoch = 0
    self._next = 0
    # Whether the position was reached by taking batches.
    self._has_taken = False
    if hasattr(sampler, 'store'):
      sampler.store.wait()  # A forked worker has no thread that packs.

  def __iter__(self) -> Iterator[Any]:
    """Returns an iterator over the following batches, to the end of the epoch."""
    (index, count), (epoch, number) = self._part(), self._position()
    size = self.batches_per_epoch
    if size and self._has_taken and number >= (epoch + 1) * size:
      # A loop that counts batches does not ask for the end.
      epoch, number = epoch + 1, (epoch + 1) * size + index
    return self._batches(index, count, epoch, number)

  def state_dict(self) -> dict[str, int]:
    """Returns the position, and the identity of the batches, JSON-serialisable."""
    epoch, number = self._position()
    return {'epoch': epoch, 'next_batch': number, **self._identity()}

  def _identity(self) -> dict[str, int]:
    """Returns numbers of which one differs if the batches do, as a rule."""
    identity: dict[str, int] = getattr(self.sampler, 'identity', dict)()
    return {'batch_size': int(self.batch_size), **identity}

  def load_state_dict(self, state: dict[str, Any]) -> None:
    """Moves to a position, for the next iteration.

    Args:
      state: Result of `state_dict`, or `{'next_batch': number}`.

    Raises:
      ValueError: If a number is missing or not an integer of at least 0, or the epochs of
        the state have another size, or its batches other rows, another seed or size.
    """
    number: Any = state.get('next_batch')
    row_sampler.check_counts(0, next_batch=number)
    for name, own in self._identity().items():
      if (theirs := state.get(name, own)) != own:
        raise ValueError(
          f'The state is of different batches, {name}={theirs} rather than {own}: use the '
          'same run, subset, weighting, batch_size and seed (not None), or pass '
          f"{{'next_batch': {number}}} alone."
        )
    size = self.batches_per_epoch or number + 1
    epoch = state.get('epoch', number // size)
    row_sampler.check_counts(0, epoch=epoch)
    # A position at the end of an epoch is valid: each worker begins the next one itself.
    if not epoch * size <= number < (epoch + 1) * size + self._part()[1]:
      raise ValueError(
        f'epoch={epoch} has no next_batch={number} if batches_per_epoch='
        f"{self.batches_per_epoch}: pass {{'next_batch': {number}}} alone."
      )
    self._move(int(epoch), int(number))
    self._has_taken = False

  def _batches(
    self, index: int, count: int, epoch: int, number: int
  ) -> Iterator[Any]:
    """Yields every `count`-th batch from `number` on; `index` is the share's."""
    size = self.batches_per_epoch
    end = None if size is None else (epoch + 1) * size
    sampler: Any = self.sampler
    batch_size, ahead, threads = self.batch_size, self._ahead, self._threads
    together, plain = 1, types.MethodType(sampler_lib.Sampler.batch, sampler)
    if count == 1 and sampler.batch == plain:  # not a method of one's own
      together = prefetch.together(batch_size, ahead, threads)

    def load(step: int, wanted: int) -> list[Any]:
      start = first + step * count
      inside = wanted if end is None else max(0, min(wanted, end - start))
      if together > 1 and inside:
        batches = sampler.batches(start, batch_size, inside)
      else:
        batches = [sampler.batch(start, batch_size) for _ in range(inside)]
      return [*map(self._convert, batches), *[None] * (wanted - inside)]

    first = number
    prefetcher = prefetch.Prefetcher(load, ahead, threads, together)
    try:
      while end is None or number < end:
        batch = prefetcher.take()
        number += count
        self._move(epoch, number)
        self._has_taken = True
        batch = self._receive(batch)
        yield batch
        del batch  # Its memory is free for the next one.
    finally:
      prefetcher.stop()
    self._move(epoch + 1, end + index)

  def _convert(self, batch: Any) -> Any:
    """Returns a batch as the framework's arrays; called in the threads."""
    return batch

  def _receive(self, batch: Any) -> Any:
    """Returns a converted batch as it is yielded; called by the iteration."""
    return batch

  # Worker processes of PyTorch have positions of their own.

  def _part(self) -> tuple[int, int]:
    """Returns the index of this process among the workers, and their number."""
    return 0, 1

  def _position(self) -> tuple[int, int]:
    """Returns the epoch, and the number of the next batch."""
    return self._epoch, self._next

  def _move(self, epoch: int, number: int) -> None:
    """Sets the epoch, and the number of the next batch."""
    self._epoch, self._next = epoch, number
