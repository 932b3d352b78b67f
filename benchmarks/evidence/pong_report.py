"""The table and figure of `pong.py`, made from its archived runs."""

import csv
import dataclasses
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Sequence

import numpy as np
from matplotlib import figure

from batch_rl.report import normalisation
from batch_rl.runs import evaluations
from batch_rl.utils import safe_pickle
from benchmarks.evidence import control_report

# Names of the agents by their directories.
AGENTS = {
  'dqn_adam': 'DQN',
  'c51': 'C51',
  'quantile': 'QR-DQN',
  'multi_head_dqn': 'Ensemble-DQN',
  'rem': 'REM',
}
ARCHIVE = 'runs.zip'
UPDATES = 2500  # of an iteration of an offline run: `offline.gin`
ONLINE_UPDATES = 6250  # of an iteration of the online run: `online.gin`
FINAL = 4  # last evaluations of a run whose episodes make its score


@dataclasses.dataclass(frozen=True)
class Run:
  """An offline run.

  Attributes:
    agent: Name of the agent, a value of `AGENTS`.
    seed: Seed of the run.
    returns: Returns of the episodes of each evaluation.
  """

  agent: str
  seed: int
  returns: Sequence[Sequence[float]]

  @property
  def updates(self) -> np.ndarray:
    """Numbers of updates at the evaluations, (evaluations,)."""
    return UPDATES * np.arange(1, len(self.returns) + 1)

  @property
  def means(self) -> np.ndarray:
    """Mean returns of the evaluations, (evaluations,)."""
    return np.array([np.mean(returns) for returns in self.returns])


def unpack(out: pathlib.Path, runs: pathlib.Path) -> None:
  """Unpacks `runs.zip`, if there is one, into a directory; empties it first."""
  shutil.rmtree(runs, ignore_errors=True)
  runs.mkdir(parents=True)
  if (out / ARCHIVE).exists():
    shutil.unpack_archive(out / ARCHIVE, runs)


def pack(runs: pathlib.Path, out: pathlib.Path) -> None:
  """Writes `runs.zip`; the same files always give the same bytes."""
  with zipfile.ZipFile(out / ARCHIVE, 'w') as archive:
    for path in sorted(runs.rglob('*')):
      if path.is_file():
        entry = zipfile.ZipInfo(path.relative_to(runs).as_posix())
        content = path.read_bytes()
        archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def read(runs: pathlib.Path) -> list[Run]:
  """Returns the offline runs in `<runs>/<agent>/seed-<seed>`."""
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
    for path in sorted((runs / agent).glob('seed-*'))
  ]


def online_returns(runs: pathlib.Path) -> list[float]:
  """Returns the mean training return of the online agent, by iteration."""
  (path,) = (runs / 'online/logs').iterdir()
  logged = safe_pickle.loads(path.read_bytes())
  return [iteration['train_average_return'][0] for iteration in logged.values()]


def write_results(runs: Sequence[Run], path: pathlib.Path) -> None:
  """Writes a row for each evaluation to a CSV file."""
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
  """Returns a Markdown table with a line for each run."""
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
  """Plots returns of the offline, online and random agents over updates."""
  fig = figure.Figure(figsize=(7.5, 4.2), layout='constrained')
  ax = fig.subplots()
  grey = {'color': '#666666', 'linewidth': 1.2}
  done = ONLINE_UPDATES * np.arange(1, len(online) + 1)
  ax.plot(
    done, online, linestyle='--', label='online DQN,\nin training', **grey
  )
  random = normalisation.load()['Pong']['random']
  ax.axhline(random, linestyle=':', label='random actions', **grey)
  for label in AGENTS.values():
    of_agent = [run for run in runs if run.agent == label]
    for number, run in enumerate(of_agent):
      ax.plot(
        run.updates,
        run.means,
        color=control_report.COLORS[label],
        linewidth=2,
        label=None if number else label,
      )
  ax.set_title('Pong: offline agents on 311,539 agent steps of an online DQN')
  ax.set_xlabel('updates')
  ax.set_ylabel('return')
  ax.xaxis.set_major_formatter(lambda value, _: f'{value:,.0f}')
  ax.grid(color='#dddddd')
  fig.legend(
    loc='outside right center', frameon=False, title='a line for each run'
  )
  fig.savefig(path, pil_kwargs={'optimize': True})


def report(out: pathlib.Path) -> None:
  """Writes `results.csv`, `summary.md` and `pong.png` from `runs.zip`."""
  with tempfile.TemporaryDirectory() as directory:
    unpacked = pathlib.Path(directory, 'runs')
    unpack(out, unpacked)
    runs, online = read(unpacked), online_returns(unpacked)
  write_results(runs, out / 'results.csv')
  text = summary(runs)
  (out / 'summary.md').write_text(text, encoding='utf-8')
  plot(runs, online, out / 'pong.png')
  print(text)
