"""Command line of the training programs: flags, gin configuration, errors.

A user's mistake ends the program with one line on stderr and exit code 2. Exit codes:

| code | meaning                                                                  |
| ---- | ------------------------------------------------------------------------ |
| 0    | finished                                                                 |
| 1    | an error in the user's own code, or in this package, with a traceback    |
| 2    | a mistake in flags, files or data, a full disk, too little memory, or a  |
|      | loss that is not finite, in one line                                     |
| 130  | stopped by Ctrl-C; the same command continues                            |
| 143  | stopped by SIGTERM, e.g. a pre-empted job; the same command continues    |
"""

import contextlib
import functools
import itertools
import logging as std_logging
import os
import secrets
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import gin
from absl import app, flags, logging

from batch_rl.agents import registry
from batch_rl.dataset.shards import shard_reader
from batch_rl.dataset.store import store_directory
from batch_rl.runs import games, interruption, run_record
from batch_rl.runs import gin_files as gin_files_lib
from batch_rl.runs.bindings import (
  any_agent,
  bound,
  files_of_2020,
  gin_internals,
)
from batch_rl.utils import choices, programs
from batch_rl.utils.user_code import user_modules

_ATARI = 'dopamine.discrete_domains.atari_lib.'
# Help of flags with a text, and of those that can be repeated.
_TEXTS = {
  'base_dir': 'Directory of checkpoints, logs and TensorBoard files; local or gs://...',
  'agent_name': 'Agent, or a class of your own as my_module.MyAgent; overrides the gin '
  'files.',
  'init_checkpoint_dir': 'base_dir of another run, for the initial weights.',
  'config': "Name of one of the package's gin files of this program, e.g. rem; it is read "
  'before gin_files.',
}
_LISTS = {
  'module_dirs': 'Folders of your own modules, in addition to the current directory and '
  'those of the gin files.',
  'gin_files': 'gin configuration files. Paths that start with batch_rl/, and names in '
  "the program's folder of configs, are found in the installed package.",
  'gin_bindings': 'gin bindings that override the files, e.g. "A.b=1".',
}


def define(texts: Mapping[str, str], lists: Mapping[str, str]) -> None:
  """Defines flags of a text, None by default, and flags that can be repeated.

  Args:
    texts: Help of the flags of a text, by name.
    lists: Help of the flags that can be repeated.
  """
  for name, text in texts.items():
    flags.DEFINE_string(name, None, text)
  for name, text in lists.items():
    flags.DEFINE_multi_string(name, [], text)


@functools.cache
def define_flags() -> None:
  """Defines the flags shared by the training programs.

  Importing this module must not define them, because programs that import an agent
  may define flags of the same names.
  """
  define(_TEXTS, _LISTS)
  text = 'Continue a run even if its settings or data have changed.'
  flags.DEFINE_bool('accept_changes', False, text)
  text = 'Seed of everything random; if unset, one is drawn and recorded.'
  flags.DEFINE_integer('seed', None, text)


def run(main: Callable, takes_arguments: bool = False) -> None:
  """Parses and checks the flags, then runs a program.

  Args:
    main: Function of the program, without arguments.
    takes_arguments: Whether the command line has arguments that are no flags; `main`
      gets the list of them.
  """

  def parse(argv):
    for flag in flags.FLAGS.get_flags_for_module(__name__):
      flags.FLAGS.register_key_flag_for_module(argv[0], flag)  # for --help
    try:
      rest = flags.FLAGS(argv)
      if rest[1:] and not takes_arguments:
        raise flags.Error(
          f'unexpected argument {rest[1]!r}{_repetition(argv, rest)}'
        )
      for name in flags.FLAGS:  # Shells leave the ~ of --base_dir=~/x.
        flag = flags.FLAGS[name]
        if name.endswith(('_dir', 'out')) and isinstance(flag.value, str):
          flag.value = os.path.expanduser(flag.value)
      return rest
    except SystemExit:  # --help
      sys.exit(0)
    except (flags.Error, ValueError) as error:
      fail(error)

  def start(argv):
    if not flags.FLAGS['verbosity'].present:
      logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(
      std_logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S')
    )
    if logging.get_verbosity() <= logging.INFO:
      handler.addFilter(_not_dopamine_chatter)
    try:
      main(*([argv[1:]] if takes_arguments else []))
    except KeyboardInterrupt:
      logging.warning('Interrupted.')
      sys.exit(130)

  programs.spare_garbage_collection()
  app.run(start, flags_parser=parse)


def take_flags() -> types.SimpleNamespace:
  """Returns the values of the flags, which the user's modules may now define, too."""
  values = types.SimpleNamespace(**flags.FLAGS.flag_values_dict())
  for module in (sys.argv[0], __name__):  # the program's, and those of `define`
    names = [flag.name for flag in flags.FLAGS.get_flags_for_module(module)]
    flags.FLAGS.remove_flag_values(names)
  return values


def _repetition(argv: list[str], rest: list[str]) -> str:
  """Returns the advice to repeat a flag that is followed by two values, or ''.

  Args:
    argv: Command line.
    rest: The program's name, and the end of the command line that was not parsed.
  """
  before = argv[1 : len(argv) - len(rest) + 1]
  given = [word for word in before if word.startswith('-')]
  name = given[-1].lstrip('-').partition('=')[0] if given else ''
  if name in flags.FLAGS and isinstance(flags.FLAGS[name], flags.MultiFlag):
    return f': repeat the flag for each value, --{name}={rest[1]!r}'
  return ''


def require(names: Iterable[str], given: Any = flags.FLAGS) -> None:
  """Checks that flags are given.

  Raises:
    ValueError: If one is missing.
  """
  missing = [f'--{name}' for name in names if not getattr(given, name)]
  if missing:
    raise ValueError(f'missing {", ".join(missing)}')


def _not_dopamine_chatter(record: std_logging.LogRecord) -> bool:
  """Drops Dopamine's log of its arguments; run.json has the gin config."""
  from_dopamine = f'{os.sep}dopamine{os.sep}' in record.pathname
  return record.levelno > std_logging.INFO or not from_dopamine


def fail(error: Exception) -> None:
  """Ends the program with the error on one line."""
  program = os.path.basename(sys.argv[0])
  print(f'{program}: error: {programs.one_line(error)}', file=sys.stderr)
  sys.exit(2)


_SYSTEM = OSError, MemoryError
# Includes the errors of gin, e.g. KeyError for an ambiguous name.
_MISSING = ImportError, NotImplementedError
MISTAKES = (ValueError, TypeError, KeyError, SyntaxError, *_MISSING, *_SYSTEM)
# Errors of a run that has started.
FAILURES = (
  *(shard_reader.DataError, programs.MistakeError, FloatingPointError),
  *_SYSTEM,
)


@contextlib.contextmanager
def user_errors(
  kinds: tuple[type[Exception], ...] = MISTAKES,
) -> Iterator[None]:
  """Reports a mistake in flags, files or configs in one line; exit code 2.

  An error raised in the user's own code keeps its traceback.

  Args:
    kinds: Classes of the errors that are mistakes.
  """
  try:
    yield
  except kinds as error:
    if user_modules.is_raised_by_user(error):
      raise
    logging.debug('', exc_info=error)  # with --verbosity=1
    fail(error)


@contextlib.contextmanager
def run_errors() -> Iterator[None]:
  """Reports mistakes, interruptions, damaged data, a full disk or a NaN in one line.

  The program ends with the exit code of the module's table.
  An error raised in the user's own code keeps its traceback.
  """
  try:
    with user_errors(FAILURES):
      yield
  except interruption.Interrupted as interrupted:
    logging.warning('%s', interrupted)
    sys.exit(interrupted.exit_code)


def read_gin(
  agents: registry.Registry, given: Any = flags.FLAGS
) -> list[gin_files_lib.Source]:
  """Reads the gin files and bindings of the flags before anything slow is imported.

  Modules of the user are found from now on.

  Args:
    agents: Agents by name.
    given: The flags, or an object with attributes of their names.

  Returns:
    The files and bindings, for `configure`.

  Raises:
    ValueError: If there is no agent `--agent_name`, a file is missing, or gin cannot
      read a line.
  """
  add_module_dirs(given.module_dirs)
  sources = gin_files_lib.read(_gin_files(agents, given), given.gin_bindings)
  if given.agent_name:
    agents.check(given.agent_name)
  return sources


def add_module_dirs(folders: Iterable[str]) -> None:
  """Finds modules of the user in the folders of `--module_dirs` from now on.

  Raises:
    ValueError: If one is not a directory.
  """
  for folder in folders:
    if not os.path.isdir(folder):
      raise ValueError(f'--module_dirs={folder} is not a directory.')
    user_modules.add_folder(folder)


def _gin_files(agents: registry.Registry, given: Any) -> list[str]:
  """Returns the paths of `--config` and `--gin_files`."""
  paths = []
  if given.config:
    known = agents.configs
    paths.append(known[choices.choose('config', given.config, known)])
  for path in given.gin_files:
    shipped = f'{agents.config_folder}/{path}'
    is_shipped = not gin_files_lib.find(path) and gin_files_lib.find(shipped)
    paths.append(shipped if is_shipped else path)
  return paths


def agent_of_flags(create_agent: str) -> dict[str, str | None]:
  """Returns the arguments `agent_name` and `init_checkpoint_dir` of the flags or gin.

  Args:
    create_agent: Configurable with these arguments.
  """
  given = flags.FLAGS.flag_values_dict() if flags.FLAGS.is_parsed() else {}
  bound_name = bound.query(f'{create_agent}.agent_name')
  name = given.get('agent_name') or bound_name or 'dqn'
  weights = given.get('init_checkpoint_dir')
  return {'agent_name': name, 'init_checkpoint_dir': weights}


def configure(
  sources: Iterable[gin_files_lib.Source],
  create_agent: str,
  agents: registry.Registry,
  given: Any = flags.FLAGS,
) -> str:
  """Applies the configuration given by the flags.

  Args:
    sources: gin files and bindings from `read_gin`.
    create_agent: Configurable with the parameter `agent_name`.
    agents: Agents by name.
    given: The flags, or an object with attributes of their names.

  Returns:
    The name of the agent.

  Raises:
    ValueError: If a name or agent is unknown, or a value is not allowed.
  """
  if given.agent_name:
    agents.find(given.agent_name)  # gin knows the class from now on
  # The runner itself writes to the console, to TensorBoard and to logs; Dopamine's
  # collectors would make empty files.
  gin.parse_config('CollectorDispatcher.collectors = ()')
  bindings = gin_files_lib.apply(sources)
  name = given.agent_name or bound.query(f'{create_agent}.agent_name')
  if name is None:
    name = files_of_2020.agent_name(bindings, agents)
    if name is None:
      raise ValueError(
        f'No agent: name one ({", ".join(sorted(agents.modules))}) with --agent_name, '
        f'or give a gin file that binds {create_agent}.agent_name.'
      )
    logging.info('Agent: %s, by the bindings.', agents.current(name))
  agent_class = agents.find(name)
  name = agents.current(name)
  bind(f'{create_agent}.agent_name', name)
  for line in files_of_2020.adapt(bindings, agents, agent_class):
    logging.info('%s', line)
  games.check_runner(agents.kind)
  any_agent.bind(bindings, agents, agent_class)
  return name


def start_run(
  agent: str, given: Any = flags.FLAGS, **settings: str
) -> dict[str, Any]:
  """Starts or resumes the run of the flags, after `configure`.

  Args:
    agent: Name of the agent.
    given: The flags, or an object with attributes of their names.
    **settings: Further settings that a resumed run may not change.

  Returns:
    The run's record, not yet written (see `run_record.start`).

  Raises:
    ValueError: If the game or its emulator is not there, or `base_dir` is in use or
      holds a run with different settings.
  """
  games.check_configured()
  seed = bound.query('run_seed.seed') if given.seed is None else given.seed
  run_record.lock(given.base_dir)
  weights = given.init_checkpoint_dir
  record = run_record.start(
    given.base_dir,
    seed,
    given.accept_changes,
    agent=agent,
    gin_config=gin_files_lib.config_text(),
    init_checkpoint_dir=weights and store_directory.absolute(weights),
    **settings,
  )
  bind('run_seed.seed', record.setdefault('seed', secrets.randbits(31)))
  return record


def bind(parameter: str, value: Any) -> None:
  """Binds a value that a program computes.

  Raises:
    ValueError: If it is not allowed.
  """
  line = f'{parameter} = {value!r}'
  with gin.unlock_config():
    gin_files_lib.apply(gin_files_lib.read([], [line]), lock=False)


def finish(runner: Any) -> None:
  """Runs the experiment.

  Args:
    runner: A `RecordedRunner`.
  """
  warn_of_unused_bindings()
  with run_errors():
    runner.run_experiment()
  logging.info('Results: %s', runner._base_dir)


def warn_of_unused_bindings() -> None:
  """Names the gin bindings that nothing has read, after everything is built.

  A class has one line: a file may bind the parameters of many agents.
  """
  for owner, names in itertools.groupby(
    unused_bindings(), lambda name: name.rpartition('.')[0]
  ):
    first, *more = (name.removeprefix(owner) for name in names)
    listed = ', '.join([owner + first, *more])
    words = f's {listed} have' if more else f' {listed} has'
    logging.warning('The gin binding%s no effect on this run.', words)


def unused_bindings() -> list[str]:
  """Returns the gin bindings that nothing has read, as `Configurable.parameter`.

  It is called after everything is built. Bindings of Atari in the agents'
  gin files are left out in another environment.
  """
  others = () if games.has_atari() else (_ATARI,)
  given = gin_internals.bound_values()
  read = set()
  for (scope, selector), parameters in gin_internals.read_values().items():
    # A call in the scope a/b has the bindings of a/b, of a, and those without a scope.
    scopes = ['', *itertools.accumulate(scope.split('/'), '{}/{}'.format)]
    for parameter in parameters:
      found = [s for s in scopes if parameter in given.get((s, selector), ())]
      read.add((*found[-1:], selector, parameter))
  return sorted(
    f'{scope and f"{scope}/"}{gin_internals.short_name(selector)}.{parameter}'
    for (scope, selector), parameters in given.items()
    for parameter in parameters
    if (scope, selector, parameter) not in read
    and selector != 'gin.macro'
    and not selector.startswith(others)
  )
