"""Bindings in the record of a run, the text of `gin_files.config_text`."""

import re
from collections.abc import Mapping

from batch_rl.runs.bindings import settings


def bindings(text: str) -> dict[str, str]:
  """Returns the values by name, `{'[scope/]Class.parameter': value}`.

  Macros are replaced by their values, and left out.

  Args:
    text: Lines `name = value`; a line may be continued after a backslash.
  """
  values = {}
  for line in text.replace('\\\n', ' ').split('\n'):
    name, sign, value = line.partition(' = ')
    if sign and not name.startswith('#'):
      values[name.strip()] = value.strip()
  macros = {name: values.pop(name) for name in list(values) if '.' not in name}

  def resolve(value, left):  # macros may refer to each other
    def of_macro(match):
      known = left and macros.get(match[1])
      return resolve(known, left - 1) if known else match[0]

    return re.sub(r'%([\w/]+)', of_macro, value)

  return {name: resolve(value, len(macros)) for name, value in values.items()}


def value(values: Mapping[str, str], name: str) -> str | None:
  """Returns the value of a binding, also the default of a runner's setting.

  Args:
    values: Values by name.
    name: Name of the binding.
  """
  return values.get(name) or settings.runner_default(name)
