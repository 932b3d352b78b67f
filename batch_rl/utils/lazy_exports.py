"""Names of a package that are imported at their first use (PEP 562).

The imports stand once, where type checkers read them:

    if TYPE_CHECKING:
      from .logged_run import LoggedRun

    __all__ = ['LoggedRun']
    lazy_exports.install(__name__)
"""

import importlib
import sys
from typing import Any


def install(package: str) -> None:
  """Lets a package import the names of its `__all__` when they are first used.

  Args:
    package: Name of the package, which imports them under `if TYPE_CHECKING`.
  """
  module = sys.modules[package]
  content = vars(module)

  def find(name: str) -> Any:
    if name not in module.__all__:
      message = f'module {package!r} has no attribute {name!r}'
      raise AttributeError(message, name=name, obj=module)
    import ast  # late, so that `import batch_rl` is cheap
    import inspect

    for node in ast.walk(ast.parse(inspect.getsource(module))):
      if isinstance(node, ast.ImportFrom):
        if name in [alias.name for alias in node.names]:
          home = f'{"." * node.level}{node.module}'
          found = importlib.import_module(home, package)
          if not hasattr(found, name):  # a module
            importlib.import_module(f'{home}.{name}', package)
          content[name] = getattr(found, name)
    return content[name]

  content['__getattr__'] = find
  content['__dir__'] = lambda: sorted({*content, *module.__all__})
