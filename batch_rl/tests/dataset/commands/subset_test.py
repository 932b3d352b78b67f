"""The command `subset`: size and hash of a part of a run."""

import json

from batch_rl.dataset.sampling import sampler
from batch_rl.dataset.store import store


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
  code, out, _ = run('subset', root / 'Pong' / '1')
  assert code == 0 and 'transitions   60, 100.00 % of the run' in out
