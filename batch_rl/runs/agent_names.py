"""Names of agents in the literature, in the paper's order."""

import re
from collections.abc import Mapping
from typing import Any

from batch_rl.runs import run_record

_ENSEMBLES = {
  'IDENTITY': 'Ensemble-DQN',
  'AVERAGE': 'Averaged Ensemble-DQN',
  'STOCHASTIC': 'REM',
}
# Suffix of the name, class name in gin bindings, and default strategy.
_ENSEMBLE_AGENTS = {
  'multi_head_dqn': ('', 'MultiHeadDQNAgent', 'IDENTITY'),
  'multi_network_dqn': (' (networks)', 'MultiNetworkDQNAgent', 'STOCHASTIC'),
}
_NAMES = {'c51': 'C51', 'quantile': 'QR-DQN', 'random': 'Random'}
_value = run_record.value_of
# Names in the paper's order.
_ORDER = (
  *('DQN (Nature)', 'DQN (Adam)', 'C51', 'QR-DQN'),
  *_ENSEMBLES.values(),
)


def rank(name: str) -> int:
  """Returns the position of a name, or a name that begins with it, in the paper."""
  ranks = [i for i, known in enumerate(_ORDER) if name.startswith(known)]
  return min(ranks, default=len(_ORDER))


def of_record(record: Mapping[str, Any]) -> str:
  """Returns the name of a run's agent in tables and figures, e.g. `REM`.

  It is the `display_name` that gin binds, the name in the literature, the
  `display_name` of an agent's class, or the `agent` of the record, whichever is first.

  Args:
    record: Record of the run (see `run_record`).

  Returns:
    The name, with `, online` for a run without logged data; '' if unknown.
  """
  bindings = run_record.bindings(record.get('gin_config') or '')
  name = record.get('agent', '')
  if given := _value(bindings, 'display_name', r'\w*Agent'):
    name = given
  elif name == 'dqn':
    bound = _of_agent(bindings, 'optimizer', 'DQNAgent')
    optimizer = re.search(r'(\w+?)(Optimizer)?\(', bound)
    kind = optimizer[1] if optimizer else 'RMSProp'  # Dopamine's default.
    name = f'DQN ({"Nature" if kind == "RMSProp" else kind})'
  elif name in _ENSEMBLE_AGENTS:
    suffix, class_name, default = _ENSEMBLE_AGENTS[name]
    strategy = _of_agent(bindings, 'transform_strategy', class_name) or default
    known = _ENSEMBLES.get(strategy)
    name = known + suffix if known else strategy
  else:
    name = _NAMES.get(name) or record.get('display_name') or name
  is_online = name and name != 'Random' and 'replay_dir' not in record
  return f'{name}, online' if is_online else name


def _of_agent(bindings: Mapping[str, str], name: str, base: str) -> str:
  """Returns the value of an agent's parameter, which replaces its base class's."""
  own = _value(bindings, name, f'(FixedReplay|Logged){base}')
  return own or _value(bindings, name, base)
