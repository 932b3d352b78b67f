"""Batches as PyTorch tensors, alone and through loaders."""

import copy
import pickle

import pytest

from batch_rl.dataset.sampling import sequences
from batch_rl.tests.dataset import streams
from batch_rl.tests.dataset.streams import numbers, store, take  # noqa: F401

torch = pytest.importorskip('torch', reason='PyTorch is not installed')

from batch_rl.dataset import torch as torch_data  # noqa: E402

DataLoader = torch.utils.data.DataLoader


def make_dataset(source, batch_size=streams.SIZE, **kwargs):
  kind = torch_data.TransitionDataset
  if isinstance(source, sequences.SequenceSampler):
    kind = torch_data.SequenceDataset
  return kind(source, batch_size, **kwargs)


class TestDataset(streams.Contract):
  kind = staticmethod(make_dataset)


def loader(source, workers=0, context=None, kind=DataLoader, **kwargs):
  dataset = make_dataset(source, threads=1, **kwargs)
  options = dict(num_workers=workers, multiprocessing_context=context)
  return kind(dataset, batch_size=None, **options)


def test_tensors_are_views_with_the_dtypes_of_losses(store):  # noqa: F811
  source = streams.transitions(store)
  drawn = source.batch(0, streams.SIZE)
  batch = make_dataset(source)._tensors(drawn)
  drawn.windows[0] = 77
  drawn.reward[0] = 77
  assert (batch.state[0] == 77).all() and (batch.next_state[0] == 77).all()
  assert batch.reward[0] == 77 and batch.reward.dtype == torch.float32
  assert batch.windows.dtype == torch.uint8
  sequences_ = next(iter(loader(streams.steps(store))))
  assert sequences_.state.data_ptr() == sequences_.frames.data_ptr()
  for found in (batch, sequences_):
    assert found.action.dtype == torch.int64
    assert found.terminal.dtype == torch.bool


def test_copies_to_the_host_are_waited_for(store, monkeypatch):  # noqa: F811
  source, waits = streams.transitions(store, horizon=3), {}
  batch = next(iter(make_dataset(source, device='cpu'))).to('cpu')
  here = source.batch(0, streams.SIZE)
  streams.assert_equal(batch, here, ['state', 'next_state'])

  def to(tensor, device, non_blocking):
    waits[torch.device(device).type] = not non_blocking
    return tensor

  monkeypatch.setattr(torch.Tensor, 'to', to)
  for device in ('cpu', 'cuda'):
    batch.to(device)
  assert waits == {'cpu': True, 'cuda': False}


def test_workers_share_the_batches_in_order(store):  # noqa: F811
  """Each epoch has new processes, and none has the same number of batches."""
  source = streams.transitions(store)
  loaded = loader(source, 2, 'fork', batches_per_epoch=5)
  assert len(loaded) == 5
  with pytest.raises(TypeError, match='endless: set batches_per_epoch'):
    len(make_dataset(source))
  for epoch in range(3):
    first = 5 * epoch
    assert numbers(source, loaded) == list(range(first, first + 5))
  with pytest.raises(ValueError, match='Worker processes take the batches'):
    loaded.dataset.state_dict()
  loaded.dataset.load_state_dict({'next_batch': 7})
  assert numbers(source, loaded) == [7, 8, 9]
  workers = {'num_workers': 2, 'persistent_workers': True}
  kept = DataLoader(loaded.dataset, None, **workers)
  for first in 10, 33:
    loaded.dataset.load_state_dict({'next_batch': first})
    assert numbers(source, kept) == [*range(first, first - first % 5 + 5)]


def test_positions_belong_to_one_process(store, monkeypatch):  # noqa: F811
  """Copies have their own; workers of another process would mix theirs."""
  source = streams.transitions(store)
  made = make_dataset(source, threads=1, batches_per_epoch=3)
  for dataset in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
    loaded = DataLoader(dataset, None, num_workers=2)
    assert [numbers(source, loaded) for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
  loaded = DataLoader(made, None, num_workers=2)
  monkeypatch.setattr(made, '_pid', made._pid - 1)  # as in a fork
  with pytest.raises(ValueError, match='make one in each that has workers'):
    next(iter(loaded))
  assert numbers(source, made) == [0, 1, 2]


def test_workers_and_pinned_memory_have_limits(store):  # noqa: F811
  source = streams.transitions(store)
  with pytest.raises(ValueError, match='need num_workers=0'):
    next(iter(loader(source, 1, 'fork', device='cpu')))
  loaded = DataLoader(make_dataset(source))
  with pytest.raises(ValueError, match='pass batch_size=None'):
    next(iter(loaded))
  if not torch.cuda.is_available():
    with pytest.raises(ValueError, match='pin_memory=True needs a GPU'):
      make_dataset(source, pin_memory=True)


@pytest.mark.waits
def test_spawned_workers_open_the_store(store):  # noqa: F811
  source = streams.steps(store)
  for number, batch in enumerate(take(loader(source, 1, 'spawn'), 3)):
    streams.assert_equal(batch, source.batch(number, streams.SIZE), ['state'])


@pytest.mark.parametrize('workers', [0, 2])
def test_torchdata_resumes(store, workers):  # noqa: F811
  stateful = pytest.importorskip(
    'torchdata.stateful_dataloader', reason='torchdata is not installed'
  )
  source = streams.transitions(store)
  options = {'kind': stateful.StatefulDataLoader, 'batches_per_epoch': 5}
  loaded = loader(source, workers, **options)
  epoch = iter(loaded)
  take(epoch, 3)
  state = loaded.state_dict()
  rest = numbers(source, epoch), numbers(source, loaded)
  assert rest == ([3, 4], [5, 6, 7, 8, 9])
  resumed = loader(source, workers, **options)
  resumed.load_state_dict(state)
  assert (numbers(source, resumed), numbers(source, resumed)) == rest
