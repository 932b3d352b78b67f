"""The command `subset`."""

import argparse
from typing import Any

from batch_rl.dataset.commands import argument_types, console
from batch_rl.dataset.sampling import subsets
from batch_rl.dataset.shards import manifests
from batch_rl.dataset.store import store


def add(commands: Any) -> None:
  """Adds the command to a parser's subcommands."""
  command = console.add_command(commands, _subset, 'subset')
  command.formatter_class = argparse.RawDescriptionHelpFormatter
  command.epilog = "subsets, to be combined with '&':\n" + '\n'.join(
    f'  {subsets.usage(function)}\n      {function.__doc__}'
    for function in subsets.SUBSETS.values()
  )
  argument_types.add_run_directory(command)
  command.add_argument(
    'subset',
    nargs='?',
    help="subset, e.g. 'random_trajectories(0.1)'; default: the whole run",
  )


def _subset(arguments: argparse.Namespace) -> int:
  """Shows the size and the hash of a subset of a run.

  The syntax is that of the gin parameter FixedReplayBuffer.subset.
  """
  if arguments.subset is not None:
    subsets.parse(arguments.subset)  # before the run is read
  data = store.Store(console.one_run(arguments).data_dir, pack=False)
  chosen = all_trajectories = subsets.trajectories(data)
  if arguments.subset is not None:
    chosen = subsets.select(chosen, arguments.subset)
  returns = chosen.returns[chosen.selected]
  if not len(returns):
    raise ValueError(f'{arguments.directory} has no agent step.')
  document = {
    'run': arguments.directory,
    'subset': arguments.subset,
    'hash': subsets.hash_of(data, chosen),
    'trajectories': len(returns),
    'transitions': chosen.num_steps,
    'of_transitions': all_trajectories.num_steps,
    'return': manifests.describe_values(returns),
  }
  share = chosen.num_steps / max(document['of_transitions'], 1)
  lines = [
    f'{arguments.directory}, {arguments.subset or "whole run"}',
    f'hash          {document["hash"]}',
    f'trajectories  {len(returns):,} (returns {returns.min():g} to '
    f'{returns.max():g}, mean {returns.mean():.2f})',
    f'agent steps   {chosen.num_steps:,}, {100 * share:.2f} % of the run',
  ]
  console.show(arguments, document, lines)
  return 0
