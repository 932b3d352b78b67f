"""Measures the errors of each agent against its paper's equations.

The cases are those of `batch_rl/tests/equations_test.py`: the agent of a shipped
config, on a small network, beside a float64 transcription in NumPy, whose gradients are
central differences, with fixed weights and two batches. An error is max |ours -
expected| / max |expected|, the largest over all variables:

  loss, gradient: errors of both updates;
  weights k: errors of the weights after k updates;
  step k: errors of the change by k updates, over weights that were zero before. For
    the others float32 keeps only a few digits of the change, so `weights k` is a weak
    check.

Further rows are updates on batches from a log on disk, including n-step returns and the
synchronisation of the target network. With `--update`, the table goes to
`correctness.csv`, too.
"""

import batch_rl.agents  # noqa: F401  isort: skip  (before Dopamine)

import itertools
import os
import tempfile

import tqdm

from batch_rl.tests import correctness
from benchmarks import measuring

_CSV = os.path.join(os.path.dirname(__file__), 'correctness.csv')
_MEASURES = ('loss', 'gradient', 'weights 1', 'step 1', 'weights 2', 'step 2')
_COLUMNS = ('agent', 'n', 'data', 'config', 'optimiser', *_MEASURES)


def main() -> None:
  """Prints the table as Markdown and, if asked, writes it as CSV."""
  parser = measuring.parser(__doc__)
  measuring.add_out(parser, _CSV, 'printed only')
  out = parser.parse_args().out
  cases = itertools.islice(_rows(), 1 if measuring.QUICK else None)
  rows = list(tqdm.tqdm(cases, unit='case'))
  cells = [[str(row.get(name, '')) for name in _COLUMNS] for row in rows]
  print(measuring.markdown(_COLUMNS, cells), end='')
  if out:
    measuring.write_csv(out, rows)


def _rows():
  for case in correctness.CASES.values():
    yield _row(case, 'fixed', correctness.find_errors(case))
  with tempfile.TemporaryDirectory() as directory:
    correctness.write_log(directory)
    for name in correctness.CASES_ON_LOG:
      case = correctness.CASES[name]
      yield _row(case, 'log', correctness.compare_on_log(case, directory))


def _row(case, data, errors):
  return {
    'agent': case.name,
    'n': case.horizon,
    'data': data,
    'config': case.path.removeprefix('../'),
    'optimiser': _describe(case.optimizer),
    **{name: f'{error:.1e}' for name, error in errors.items()},
  }


def _describe(optimizer):
  instance = optimizer()
  name = type(instance).__name__
  return f'{name} {instance.learning_rate:g}, {instance.epsilon:g}'


if __name__ == '__main__':
  main()
