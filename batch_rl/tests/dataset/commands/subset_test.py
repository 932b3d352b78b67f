"""The command `subset`: size and hash of a part of a run."""

import json

import pytest

from batch_rl.dataset.sampling import sampler, subsets
from batch_rl.dataset.store import store
from batch_rl.tests.dataset.conftest import is_one_line


def test_a_subset_has_the_size_and_hash_that_training_reports(root, run):
  text = 'random_trajectories(0.5)'
  code, out, err = run('subset', '--json', root / 'Pong' / '1', text)
  document = json.loads(out)
  assert code == 0 and not err and document['subset'] == text
  assert document['trajectories'] == 1 and document['transitions'] == 30
  assert document['of_transitions'] == 60
  opened = store.Store(str(root / 'Pong' / '1' / 'replay_logs'), pack=False)
  expected = sampler.Sampler(opened, 4, subset=text, seed=0).subset_hash()
  assert document['hash'] == expected


def test_without_a_subset_it_is_the_whole_run(root, run):
  code, out, _ = run('subset', root / 'Pong' / '1')
  assert code == 0 and 'transitions   60, 100.00 % of the run' in out


@pytest.mark.parametrize('text', ['half()', ''])
def test_a_wrong_subset_is_one_line(root, run, text):
  code, _, err = run('subset', root / 'Pong' / '1', text)
  assert code == 2 and is_one_line(err) and 'random_trajectories' in err


def test_help_explains_every_subset(run):
  code, out, _ = run('subset', '--help')
  assert code == 0
  for function in subsets.SUBSETS.values():
    assert subsets.usage(function) in out and function.__doc__ in out
