"""Private names of gin that have no public counterpart; used nowhere else.

The tests of bindings fail if another gin lacks one.
"""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from gin import config

PARSER_DELEGATE = config.ParserDelegate(False)  # makes references and macros


def bound_values() -> dict[tuple[str, str], dict[str, Any]]:
  """Returns gin's bindings, `{(scope, full name): {parameter: value}}`."""
  return config._CONFIG


def read_values() -> dict[tuple[str, str], dict[str, Any]]:
  """Returns the values that calls have read, in the form of `bound_values`."""
  return config._OPERATIVE_CONFIG


def find(name: str) -> Any:
  """Returns gin's entry of a class or function; None if it is unknown.

  Its `selector` is the full name, its `wrapped` the class or function.
  """
  return config._REGISTRY.get_match(name)


def short_name(selector: str) -> str:
  """Returns the shortest name that gin takes for a full name."""
  return config._REGISTRY.minimal_selector(selector)


def all_known() -> dict[str, Callable]:
  """Returns all classes and functions known to gin by their full names."""
  return {name: known.wrapped for name, known in config._REGISTRY.items()}


def selector_of(configurable: Callable) -> str | None:
  """Returns the full name of a class or function; None if gin does not know it."""
  known = config._INVERSE_REGISTRY.get(configurable)
  return known.selector if known else None


@contextlib.contextmanager
def separate_config() -> Iterator[None]:
  """Gives gin an empty configuration within; afterwards it has the earlier one again."""
  values = config._CONFIG, config._OPERATIVE_CONFIG
  parts = *values, config._IMPORTS, config._SINGLETONS
  before = [part.copy() for part in parts]
  was_locked = config.config_is_locked()
  config.clear_config()
  try:
    with config.config_scope(None):  # without the scopes of a call under way
      yield
  finally:
    config.clear_config()
    for part, content in zip(parts, before, strict=True):
      part.update(content)
    config._set_config_is_locked(was_locked)


@contextlib.contextmanager
def parse_scope() -> Iterator[Any]:
  """Yields the context of a file's statements; its `process_import` imports.

  `gin.config_str` lists the imports.
  """
  with config._parse_scope() as context:
    yield context
    config._IMPORTS.update(context.imports)
