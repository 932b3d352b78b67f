import pytest

from batch_rl.report import aggregates, comparison, run_results
from batch_rl.tests.report import made_up_runs


@pytest.fixture(autouse=True, scope='package')
def few_bootstrap_samples():
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(aggregates, 'REPETITIONS', 200)
    yield


@pytest.fixture
def compare(tmp_path):
  """Returns a function that writes runs and compares them."""

  def make(*descriptions, iterations=None):
    for i, (returns, options) in enumerate(descriptions):
      made_up_runs.write(tmp_path / f'run{i}', returns, **options)
    directories, _ = run_results.find_runs([str(tmp_path)])
    runs = [run_results.read_run(path) for path in directories]
    return comparison.compare(runs, iterations)

  return make
