"""Damaged manifests and descriptions of stores end in one line, or are reported."""

import functools
import json
import operator

import hypothesis
import pytest
from hypothesis import strategies as st

from batch_rl.dataset.shards import manifests
from batch_rl.tests import shards
from batch_rl.tests.dataset.checks.run_files import flip_a_bit
from batch_rl.tests.dataset.conftest import is_one_line

DAMAGE = {
  'nested': b'[' * 100_000,
  'huge': b'{"truncated_rows": [' + b'9' * 400 + b']}',
  'padding': b'{"format": {"stack_size": 100000000000}}',
  'entry': b'{"shards": [{"suffix": 0, "files": []}]}',
}


@pytest.mark.parametrize('damage', DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_manifest_is_named(root, run, damage):
  directory = root / 'Pong' / '1'
  path = directory / 'replay_logs' / manifests.FILE_NAME
  path.write_bytes(damage)
  for command in ('inspect', 'subset', 'convert', 'import'):
    target = [root / 'new'] if command in ('convert', 'import') else []
    code, _, err = run(command, directory, *target)
    # After a progress bar.
    last = err.rpartition('\r')[2].removeprefix('\x1b[A')
    assert code == 2 and f'{path} is damaged: ' in last, err
    assert err.count('\n') == 1
  out = run.output('verify', '--all', root, code=1)
  assert out.endswith(f'2 runs: PROBLEMS FOUND: {directory}\n')
  assert out.count(f'error: {path} is damaged: ') == 1
  assert run.output('inspect', root).count('\n') == 3  # lists the runs


def test_a_damaged_store_does_not_hide_the_others(root, run):
  stores = root / 'stores'
  for name in '12345':
    run('convert', root / 'Pong' / '1', stores / name)
  (stores / '1' / manifests.FILE_NAME).write_text('[]')
  (stores / '3' / 'store.json').write_bytes(DAMAGE['nested'])
  flip_a_bit(stores / '4' / 'shard-1.bin')
  (stores / '5' / 'dictionary').unlink()
  (stores / '5' / 'dictionary').mkdir()
  assert 'store.json is damaged' in run.error('inspect', stores / '3')
  out = run.output('verify', '--all', stores, code=1)
  wrong = ', '.join(f'{stores}/{name}' for name in '1345')
  assert out.endswith(f'PROBLEMS FOUND: {wrong}\n')
  assert f'error: {stores}/4/shard-1.bin is damaged' in out
  assert f'error: {stores / "1" / manifests.FILE_NAME} is damaged: ' in out
  assert f'{stores}/2: ok' in out
  assert run.output('inspect', stores).count('\n') == 6


SCALARS = st.none() | st.booleans() | st.integers() | st.floats()
VALUES = st.recursive(
  SCALARS | st.sampled_from([10**30, -1, 2**63, '\ud800', 'x', '']),
  lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(), inner),
  max_leaves=4,
)


def places(value, path=()):
  """Yields the path to every value inside a JSON value."""
  if isinstance(value, dict | list):
    for key in value if isinstance(value, dict) else range(len(value)):
      yield (*path, key)
      yield from places(value[key], (*path, key))


@pytest.fixture(scope='module')
def fuzzed_run(tmp_path_factory):
  """A run whose manifest a test may change, and its intact manifest."""
  logs = tmp_path_factory.mktemp('fuzzed') / 'Pong' / '1' / 'replay_logs'
  environment = {'game': 'Pong', 'num_actions': 4, 'frame_skip': 4}
  with shards.make_log(logs, 40, environment=environment, agent='dqn') as log:
    for step in range(24):
      shards.add_row(log, shards.Row(1 + step, 1, 0.0, step == 11))
    log.add([[1, 1], [1, 1]], 1, 0.0, False, truncated=True)
  return logs.parent, json.loads((logs / manifests.FILE_NAME).read_text())


@hypothesis.settings(
  max_examples=40,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(data=st.data(), value=VALUES)
def test_a_changed_manifest_is_read_or_one_line(fuzzed_run, run, data, value):
  directory, intact = fuzzed_run
  changed = json.loads(json.dumps(intact))
  entry = data.draw(st.sampled_from(['environment', 'format', *intact]))
  inside = [(entry,), *places(intact[entry], (entry,))]
  *outer, last = data.draw(st.sampled_from(inside))
  functools.reduce(operator.getitem, outer, changed)[last] = value
  path = directory / 'replay_logs' / manifests.FILE_NAME
  path.write_text(json.dumps(changed))
  for command in ('inspect', 'subset', 'verify'):
    code, out, err = run(command, '--json', directory)
    # `verify` reports damage as a finding.
    assert code in ((0, 1) if command == 'verify' else (0, 2))
    if code == 2:
      assert is_one_line(err) and 'manifest.json is damaged: ' in err
      continue
    # Neither NaN nor Infinity.
    json.loads(out, parse_constant=pytest.fail)
