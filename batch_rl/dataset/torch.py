"""Batches of a run as PyTorch tensors, for `torch.utils.data.DataLoader`.

    run = batch_rl.dataset.open('data/Pong/1')
    dataset = TransitionDataset(run.transitions(seed=1), batch_size=32)
    for batch in DataLoader(dataset, batch_size=None):
      ...

Threads of the process prepare the batches, so `num_workers=0` is the fastest. With
worker processes, each prepares its share, and the order is the same.
"""

import dataclasses
import multiprocessing
import os
from collections.abc import Callable
from typing import Any

import numpy as np

from batch_rl.dataset.sampling import batch_stream, sequences

try:
  import torch
  from torch.utils import data
except ModuleNotFoundError as error:
  if error.name != 'torch':
    raise
  raise ImportError(
    "batch_rl.dataset.torch needs PyTorch: pip install torch, or 'batch_rl[torch]'."
  ) from None

__all__ = [
  'SequenceBatch', 'SequenceDataset', 'TransitionBatch', 'TransitionDataset'
]  # fmt: skip

_MOST_WORKERS = 1024


@dataclasses.dataclass(slots=True)
class _Batch:
  """Base of the batches. No tuples: a `DataLoader` would convert each field."""

  def to(self, device: torch.device | str, non_blocking: bool = True) -> Any:
    """Returns the batch on a device; see `torch.Tensor.to`.

    Copies to the host's memory always block, as nothing else waits for them.
    """
    non_blocking = non_blocking and torch.device(device).type != 'cpu'
    return self._map(lambda x: x.to(device, non_blocking=non_blocking))

  def pin_memory(self) -> Any:
    """Returns a copy in pinned memory; a `DataLoader` calls it if it is asked to."""
    return self._map(torch.Tensor.pin_memory)

  def _map(self, function: Callable[[Any], torch.Tensor]) -> Any:
    values = (getattr(self, field.name) for field in dataclasses.fields(self))
    kinds = torch.Tensor, np.ndarray
    return type(self)(
      *(function(x) if isinstance(x, kinds) else x for x in values)
    )


@dataclasses.dataclass(slots=True)
class TransitionBatch(_Batch):
  """A batch of n transitions as tensors; w is `stack_size + update_horizon`.

  Attributes:
    rows: int64 (n,), row of each transition in the run.
    windows: (n, w, *frame_shape), consecutive frames.
    action: int64 (n,), as `torch.gather` needs.
    reward: float32 (n,), n-step return.
    terminal: bool (n,), whether the episode terminates within the steps.
    steps: int64 (n,), `update_horizon`, or fewer if the episode ends earlier.
    stack_size: Number of frames in a state.
  """

  rows: torch.Tensor
  windows: torch.Tensor
  action: torch.Tensor
  reward: torch.Tensor
  terminal: torch.Tensor
  steps: torch.Tensor
  stack_size: int

  @property
  def state(self) -> torch.Tensor:
    """States (n, stack_size, *frame_shape), oldest frame first: a view."""
    return self.windows[:, : self.stack_size]

  @property
  def next_state(self) -> torch.Tensor:
    """Next states, like `state`: a view.

    With n-step returns it is a copy if an episode of the batch ends earlier, or the
    frames are not in the host's memory, where a look at `steps` would wait for them.
    """
    windows, steps, size = self.windows, self.steps, self.stack_size
    horizon, device = windows.shape[1] - size, steps.device
    if horizon == 1 or (device.type == 'cpu' and (steps == horizon).all()):
      return windows[:, horizon:]
    places = steps[:, None] + torch.arange(size, device=device)
    return windows[torch.arange(len(steps), device=device)[:, None], places]


@dataclasses.dataclass(slots=True)
class SequenceBatch(_Batch):
  """A batch of n sequences of `length` agent steps; see `sequences.SequenceBatch`.

  Attributes:
    rows: int64 (n, length), row of each step in the run; -1 for padding.
    frames: (n, length + stack_size - 1, *frame_shape), consecutive frames.
    action: int64 (n, length).
    reward: float32 (n, length), rewards as logged.
    terminal: bool (n, length), whether the episode terminates with the step.
    timestep: int64 (n, length), agent steps since the trajectory's first logged step.
    return_to_go: float32 (n, length).
    mask: bool (n, length), whether a step is in the trajectory.
  """

  rows: torch.Tensor
  frames: torch.Tensor
  action: torch.Tensor
  reward: torch.Tensor
  terminal: torch.Tensor
  timestep: torch.Tensor
  return_to_go: torch.Tensor
  mask: torch.Tensor

  @property
  def state(self) -> torch.Tensor:
    """Stacks of frames, (n, length, stack_size, *frame_shape): a view."""
    stack_size = self.frames.shape[1] - self.rows.shape[1] + 1
    return self.frames.unfold(1, stack_size, 1).movedim(-1, 2)


def _refuse_batches(batch: Any, **options: Any) -> Any:
  raise ValueError(
    'The dataset yields whole batches: pass batch_size=None to the DataLoader.'
  )


# PyTorch's table for classes that it cannot collate.
data._utils.collate.default_collate_fn_map[_Batch] = _refuse_batches


class TransitionDataset(batch_stream.BatchStream, data.IterableDataset):
  """An endless dataset of batches of transitions, `TransitionBatch`.

  Batch k is that of `sampler.batch(k, batch_size)`, and its tensors share the memory of
  its arrays, but for `action`. Pass the dataset to a `DataLoader` with
  `batch_size=None`, or iterate over it. See `BatchStream` for iterations and epochs.

  Each worker process has its own position, as long as the number of workers stays the
  same. Workers prepare batches ahead. If you leave an iteration early, these are lost,
  and the next iteration may be shorter or in another order: call `load_state_dict`.

  A pickled or deep copy has positions of its own. Worker processes need a dataset made
  in the process that starts them.

  Args:
    sampler: Sampler of the run, e.g. `run.transitions(seed=1)`.
    batch_size: Number of transitions in a batch, at least 1.
    threads: Number of threads that prepare batches, at least 1; of each worker
      process, if there are some.
    ahead: Number of batches prefetched, at least 1; of small ones, up to
      `ahead / threads - 1` more.
    batches_per_epoch: Number of batches after which an iteration ends, at least 1;
      None for an endless one. The next iteration has the batches that follow.
    pin_memory: Whether the threads copy the batches into pinned memory.
    device: Device to which the threads copy the batches; None for none.

  Raises:
    ValueError: If an argument is out of range, `pin_memory` is True without an
      accelerator, or the run cannot be packed.
  """

  def __init__(
    self,
    sampler: batch_stream.NumberedSampler,
    batch_size: int = 32,
    *,
    pin_memory: bool = False,
    device: torch.device | str | None = None,
    **kwargs: Any,
  ):
    if pin_memory and not torch.cuda.is_available():
      raise ValueError(
        'pin_memory=True needs a GPU, and PyTorch finds none here.'
      )
    self._pins = pin_memory
    self._device = None if device is None else torch.device(device)
    if self._device == torch.device('cuda'):
      # Each thread has a current device of its own.
      self._device = torch.device('cuda', torch.cuda.current_device())
    # The workers' positions: their number, the epoch, and the next batch. Each worker
    # writes its row. The last row has that of this process. The memory is shared,
    # because loaders start new workers for each epoch, or keep them.
    self._own(torch.zeros((_MOST_WORKERS, 3), dtype=torch.int64))
    super().__init__(sampler, batch_size, **kwargs)

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__dict__.update(state)
    if not self._places.is_shared():
      self._own(self._places)  # A copy, not for a new worker.

  def __len__(self) -> int:
    """Returns the number of batches in an epoch."""
    if self.batches_per_epoch is None:
      raise TypeError('The dataset is endless: set batches_per_epoch.')
    return self.batches_per_epoch

  def state_dict(self) -> dict[str, int]:
    """Returns the position, and the identity of the batches.

    Raises:
      ValueError: If worker processes take the batches. torchdata's
        `StatefulDataLoader.state_dict` asks them; without it, pass the number of
        batches taken, `{'next_batch': number}`, to `load_state_dict`.
    """
    if data.get_worker_info() is None and self._places[:-1].any():
      raise ValueError(
        "Worker processes take the batches: use the state_dict of torchdata's "
        "StatefulDataLoader, or count the batches: {'next_batch': number}."
      )
    return super().state_dict()

  def load_state_dict(self, state: dict[str, int]) -> None:
    """Moves to a position, for the next iteration.

    Args:
      state: Result of `state_dict`, or `{'next_batch': number}`.

    Raises:
      ValueError: As that of `BatchStream`.
    """
    super().load_state_dict(state)
    if data.get_worker_info() is None:
      self._places[:-1].zero_()

  def _convert(self, batch):
    if self._pins:
      batch = self._receive(batch).pin_memory()
    if self._device is not None:
      batch = self._receive(batch).to(self._device)
    return batch

  def _receive(self, batch):
    # Tensors of arrays are made here. In the threads it takes several times as long,
    # as decoding fills their caches, and it holds the interpreter's lock.
    return batch if isinstance(batch, _Batch) else self._tensors(batch)

  def _tensors(self, batch: Any) -> _Batch:
    """Returns a batch of arrays as tensors that share their memory."""
    is_sequences = isinstance(batch, sequences.SequenceBatch)
    kind: type[Any] = SequenceBatch if is_sequences else TransitionBatch
    batch = batch._replace(
      action=batch.action.astype(np.int64), terminal=batch.terminal.view(bool)
    )
    arrays = kind(*(getattr(batch, f.name) for f in dataclasses.fields(kind)))
    return arrays._map(torch.from_numpy)

  def _own(self, places: torch.Tensor) -> None:
    """Copies positions for this process and its workers."""
    self._places, self._pid = places.clone().share_memory_(), os.getpid()

  def _part(self):
    worker = data.get_worker_info()
    if worker is None:
      if os.getpid() != self._pid:
        self._own(self._places)
      return 0, 1
    parent = multiprocessing.parent_process()
    if parent is None or parent.pid != self._pid:
      raise ValueError(
        'The dataset was made in another process: make one in each that has workers.'
      )
    if self._pins or self._device is not None:
      raise ValueError(
        'Worker processes cannot use an accelerator: pin_memory and device need '
        'num_workers=0. Pass pin_memory=True to the DataLoader instead.'
      )
    return worker.id, worker.num_workers

  def _position(self):
    worker = data.get_worker_info()
    if worker is None:
      return super()._position()
    workers, epoch, number = self._places[worker.id].tolist()
    if workers != worker.num_workers:  # This worker has not begun.
      _, epoch, number = self._places[-1].tolist()
      number += worker.id
    return epoch, number

  def _move(self, epoch, number):
    worker = data.get_worker_info()
    if worker is None:
      super()._move(epoch, number)
    count, place = (worker.num_workers, worker.id) if worker else (0, -1)
    self._places.numpy()[place] = count, epoch, number


class SequenceDataset(TransitionDataset):
  """An endless dataset of batches of sequences, `SequenceBatch`.

  Like `TransitionDataset`, with a sampler such as `run.sequences(length=30, seed=1)`.
  """
