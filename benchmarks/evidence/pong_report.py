"""Table and figure of `pong.py`, made of what its runs have left.

python -m benchmarks.evidence.pong_report [benchmarks/evidence/pong]
"""

import csv
import dataclasses
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
from matplotlib import figure

from batch_rl.report import normalisation
from batch_rl.runs import evaluations
from batch_rl.utils import safe_pickle
from benchmarks.evidence import control_report

# By the names of their directories.
AGENTS = {
  'dqn_adam': 'DQN',
  'c51': 'C51',
  'quantile': 'QR-DQN',
  'multi_head_dqn': 'Ensemble-DQN',
  'rem': 'REM',
}
UPDATES = 2500  # in an offline run's iteration: `offline.gin`
ONLINE_UPDATES = 6250  # in the online run's: `online.gin`
FINAL = 4  # the last evaluations of a run, whose episodes are its score


@dataclasses.dataclass(frozen=True)
class Run:
  """An offline run.

  Attributes:
    agent: one of `AGENTS`.
    seed: of the run.
    returns: of the episodes of each evaluation.
  """

  agent: str
  seed: int
  returns: Sequence[Sequence[float]]

  @property
  def updates(self) -> np.ndarray:
    """After which it was evaluated, (evaluations,)."""
    return UPDATES * np.arange(1, len(self.returns) + 1)

  @property
  def means(self) -> np.ndarray:
    """Of the evaluations, (evaluations,)."""
    return np.array([np.mean(returns) for returns in self.returns])


def read(out: pathlib.Path) -> list[Run]:
  """The offline runs in `<out>/runs/<agent>/seed-<seed>`."""
  return [
    Run(
      label,
      int(path.name.removeprefix('seed-')),
      [
        [episode['undiscounted_return'] for episode in content['episodes']]
        for content in evaluations.read(str(path)).values()
      ],
    )
    for agent, label in AGENTS.items()
    for path in sorted((out / 'runs' / agent).glob('seed-*'))
  ]


def online_returns(out: pathlib.Path) -> list[float]:
  """Mean return in training of the agent that made the data, by iteration."""
  (path,) = (out / 'runs/online/logs').iterdir()
  logged = safe_pickle.loads(path.read_bytes())
  return [iteration['train_average_return'][0] for iteration in logged.values()]


def write_results(runs: Sequence[Run], path: pathlib.Path) -> None:
  """Writes a row for each evaluation."""
  with open(path, 'w', newline='', encoding='utf-8') as file:
    writer = csv.writer(file, lineterminator='\n')
    writer.writerow(('agent', 'seed', 'updates', 'mean_return', 'episodes'))
    for run in runs:
      for updates, mean, returns in zip(
        run.updates, run.means, run.returns, strict=True
      ):
        row = (run.agent, run.seed, updates, f'{mean:.3f}', len(returns))
        writer.writerow(row)


def summary(runs: Sequence[Run]) -> str:
  """A line for each run, in Markdown."""
  lines = [
    f'| agent | seed | updates | last {FINAL} evaluations | best evaluation |',
    '| --- | --- | --- | --- | --- |',
  ]
  for run in runs:
    last = np.concatenate(run.returns[-FINAL:])
    error = last.std(ddof=1) / len(last) ** 0.5
    lines.append(
      f'| {run.agent} | {run.seed} | {run.updates[-1]:,} | {last.mean():.1f} ± '
      f'{error:.1f} ({len(last)} episodes) | {run.means.max():.1f} |'
    )
  return '\n'.join(lines) + '\n'


def plot(
  runs: Sequence[Run], online: Sequence[float], path: pathlib.Path
) -> None:
  """Draws returns over updates: offline, online, and of random actions."""
  fig = figure.Figure(figsize=(7.5, 4.2), layout='constrained')
  ax = fig.subplots()
  grey = {'color': '#666666', 'linewidth': 1.2}
  done = ONLINE_UPDATES * np.arange(1, len(online) + 1)
  ax.plot(
    done, online, linestyle='--', label='online DQN,\nin training', **grey
  )
  random = normalisation.random_score('Pong')
  ax.axhline(random, linestyle=':', label='random actions', **grey)
  for label in AGENTS.values():
    mine = [run for run in runs if run.agent == label]
    for number, run in enumerate(mine):
      ax.plot(
        run.updates,
        run.means,
        color=control_report.COLORS[label],
        linewidth=2,
        label=None if number else label,
      )
  ax.set_title('Pong: offline agents on 300,000 agent steps of an online DQN')
  ax.set_xlabel('updates')
  ax.set_ylabel('return')
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:,.0f}')
  ax.grid(color='#dddddd')
  fig.legend(
    loc='outside right center', frameon=False, title='a line for each run'
  )
  fig.savefig(path, pil_kwargs={'optimize': True})


def report(out: pathlib.Path) -> None:
  """Writes `results.csv`, `summary.md` and `pong.png` into the runs' directory."""
  runs = read(out)
  write_results(runs, out / 'results.csv')
  text = summary(runs)
  (out / 'summary.md').write_text(text, encoding='utf-8')
  plot(runs, online_returns(out), out / 'pong.png')
  print(text)


def main(arguments: Sequence[str]) -> None:
  """Reports on the directory that is named, or the usual one."""
  report(pathlib.Path(*(arguments or ['benchmarks/evidence/pong'])))


if __name__ == '__main__':
  main(sys.argv[1:])
