"""Names of agents in the literature, in the paper's order."""

import re
from collections.abc import Mapping
from typing import Any

from batch_rl.agents import registry

# By `transform_strategy`.
_ENSEMBLES = {
  'IDENTITY': 'Ensemble-DQN',
  'AVERAGE': 'Averaged Ensemble-DQN',
  'STOCHASTIC': 'REM',
}
_NAMES = {'c51': 'C51', 'quantile': 'QR-DQN'}
# Names in the paper's order.
_ORDER = 'DQN (Nature)', 'DQN (Adam)', *_NAMES.values(), *_ENSEMBLES.values()


def rank(name: str) -> int:
  """Returns the position of a name, or a name that begins with it, in the paper."""
  ranks = [i for i, known in enumerate(_ORDER) if name.startswith(known)]
  return min(ranks, default=len(_ORDER))


def of_agent(agent: Any) -> str:
  """Returns the name of an agent in tables and figures, e.g. `REM`.

  It is the attribute `display_name`; by default, the name in the literature of one of
  the package's agents, else the name of the class without `FixedReplay`, `Logged` and
  `Agent`.
  """
  if given := getattr(agent, 'display_name', None):
    return str(given)
  name = registry.name_of(type(agent))
  if name == 'dqn':
    kind = type(agent.optimizer).__name__.removesuffix('Optimizer')
    return f'DQN ({"Nature" if kind == "RMSProp" else kind})'
  if name in ('multi_head_dqn', 'multi_network_dqn'):
    suffix = ' (networks)' if name == 'multi_network_dqn' else ''
    return _ENSEMBLES[agent.transform_strategy] + suffix
  parts = r'^(FixedReplay|Logged)|(?<=.)Agent$'
  return _NAMES.get(name) or re.sub(parts, '', type(agent).__name__) or name


def of_record(record: Mapping[str, Any]) -> str:
  """Returns the name of a run's agent, '' if unknown.

  Args:
    record: Record of the run (see `run_record`).

  Returns:
    Its `display_name`, or else its `agent`, with `, online` for a run without logged
    data.
  """
  name = record.get('display_name') or record.get('agent', '')
  is_online = name and name != 'Random' and 'replay_dir' not in record
  return f'{name}, online' if is_online else name
