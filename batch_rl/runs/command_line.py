"""What the programs of this package share: flags, configs, errors.

A user's mistake ends in one line on stderr and exit code 2.
"""

import contextlib
import difflib
import functools
import glob
import logging as std_logging
import os
import pathlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import gin
from absl import app, flags, logging

import batch_rl
from batch_rl.atari import roms
from batch_rl.dataset.shards import shard_reader
from batch_rl.runs import interruption, run_record

_GAME_NAME = 'atari_lib.create_atari_environment.game_name'
PACKAGE_PARENT = str(pathlib.Path(batch_rl.__file__).parents[1])


@functools.cache
def define_flags() -> None:
  """Defines the flags of both programs.

  Not at import: who imports an agent may have flags of these names.
  """
  flags.DEFINE_string(
    'base_dir', None, 'Directory for checkpoints, logs and TensorBoard files.'
  )
  flags.DEFINE_string('agent_name', None, "Overrides the gin file's agent.")
  flags.DEFINE_multi_string(
    'gin_files',
    [],
    'gin configuration files; a path that starts with batch_rl/ is found '
    'wherever the package is.',
  )
  flags.DEFINE_multi_string(
    'gin_bindings', [], 'gin bindings that override the files, e.g. "A.b=1".'
  )
  flags.DEFINE_bool(
    'accept_changes',
    False,
    'Go on with a run even if its settings or data have changed.',
  )
  flags.DEFINE_integer(
    'seed', None, 'Seed of everything random; drawn and recorded if unset.'
  )


def run(main: Callable, required: Iterable[str]) -> None:
  """Runs a program: `main()` after the flags are parsed and checked.

  Args:
    main: takes no arguments.
    required: names of the flags that must be given.
  """

  def parse(argv):
    try:
      rest = flags.FLAGS(argv)
      missing = [
        f'--{name}' for name in required if not flags.FLAGS[name].value
      ]
      if missing:
        raise flags.Error(f'missing {", ".join(missing)}')
      if rest[1:]:
        raise flags.Error(f'unexpected argument {rest[1]!r}')
      return rest
    except flags.Error as error:
      fail(error)

  def start(_):
    if not flags.FLAGS['verbosity'].present:
      logging.set_verbosity(logging.INFO)
    handler = logging.get_absl_handler()
    handler.setFormatter(
      std_logging.Formatter('%(asctime)s %(message)s', '%H:%M:%S')
    )
    if logging.get_verbosity() <= logging.INFO:
      handler.addFilter(_not_dopamine_chatter)
    try:
      main()
    except KeyboardInterrupt:
      logging.warning(
        'Interrupted. The same command continues after the last checkpoint.'
      )
      sys.exit(130)

  app.run(start, flags_parser=parse)


def _not_dopamine_chatter(record: std_logging.LogRecord) -> bool:
  """Drops what Dopamine logs of its arguments; run.json has the gin config."""
  chatter = record.levelno <= std_logging.INFO or 'DEPRECATION' in str(
    record.msg
  )
  return not (chatter and f'{os.sep}dopamine{os.sep}' in record.pathname)


def fail(error: Exception) -> None:
  """Ends the program with the error on one line."""
  # gin appends where in the configuration an exception passed by.
  message = str(error).split('\n  In call to configurable')[0]
  program = os.path.basename(sys.argv[0])
  print(f'{program}: error: {" ".join(message.split())}', file=sys.stderr)
  sys.exit(2)


# Among them are what gin raises: KeyError for a name that fits two things.
MISTAKES = (
  ValueError,
  TypeError,
  KeyError,
  OSError,
  SyntaxError,
  ImportError,
)


class user_errors:  # noqa: N801 (a context manager)
  """Turns a mistake in flags, files or configs into one line and exit code 2."""

  def __enter__(self):
    return self

  def __exit__(self, kind, error, traceback):
    if isinstance(error, MISTAKES):
      logging.debug('', exc_info=error)  # with --verbosity=1
      fail(error)


@contextlib.contextmanager
def run_errors() -> Iterator[None]:
  """Says in a line why a run ended: asked to, or for the data, disk or loss."""
  try:
    yield
  except interruption.Interrupted as asked:
    logging.warning('%s', asked)
  except (
    shard_reader.DataError,
    FloatingPointError,
    MemoryError,
    OSError,
  ) as error:
    logging.debug('', exc_info=error)  # with --verbosity=1
    fail(error)


def choose(kind: str, name: str | None, choices: Iterable[str]) -> str:
  """Returns the name, or raises ValueError with the choices."""
  choices = sorted(choices)
  if name is not None and name in choices:
    return name
  near = difflib.get_close_matches(str(name), choices, 1)
  hint = f' (did you mean {near[0]}?)' if near else ''
  raise ValueError(
    f'Unknown {kind} {name!r}{hint}; choose {", ".join(choices)}.'
  )


def load_gin(gin_files: list[str], gin_bindings: list[str]) -> None:
  """Loads gin files and bindings.

  Args:
    gin_files: paths; those that start with `batch_rl/` are found in the package.
    gin_bindings: override the files.

  Raises:
    ValueError: if a file does not exist or a name in it is unknown.
  """
  gin.add_config_file_search_path(PACKAGE_PARENT)  # for `include`
  # The runner itself writes to the console, to TensorBoard, as Dopamine's collector
  # writes nothing in graph mode, and to logs, which resume as pickles do not.
  gin.parse_config('CollectorDispatcher.collectors = ()')
  gin.parse_config_files_and_bindings(
    [_find_gin_file(path) for path in gin_files], gin_bindings
  )


def _find_gin_file(path: str) -> str:
  packaged = os.path.join(PACKAGE_PARENT, path)
  for candidate in (path, packaged):
    if '://' in candidate or os.path.exists(candidate):
      return candidate
  there = sorted(
    os.path.basename(found)
    for folder in (path, packaged)
    for found in glob.glob(os.path.join(os.path.dirname(folder), '*.gin'))
  )
  raise ValueError(
    f'There is no gin file {path}'
    + (f'; in that folder are {", ".join(there)}.' if there else '.')
  )


def start_run(
  create_agent: str, agents: Iterable[str], **settings: str
) -> dict[str, Any]:
  """Loads the configuration that the flags name, and starts or finds the run.

  Args:
    create_agent: the configurable whose `agent_name` `--agent_name` overrides.
    agents: names of the agents that there are.
    **settings: more that a resumed run may not change.

  Returns:
    The run's record, not yet written (`run_record.start`).

  Raises:
    ValueError: if a gin file, name, agent or game is unknown, or `base_dir` is in
      use or holds a run with other settings.
  """
  load_gin(flags.FLAGS.gin_files, flags.FLAGS.gin_bindings)
  if flags.FLAGS.agent_name:
    _bind(f'{create_agent}.agent_name', flags.FLAGS.agent_name)
  agent_name = query_gin(f'{create_agent}.agent_name')
  if agent_name is None:
    raise ValueError(
      f'No agent: name one ({", ".join(agents)}) with --agent_name, or give a '
      f'gin file that binds {create_agent}.agent_name.'
    )
  choose('agent', agent_name, agents)
  if game := atari_game():
    roms.find_rom(game, query_gin('make_atari.rom_set') or 'auto')
  elif 'create_environment_fn' not in gin.config_str():
    raise ValueError(f'No game: bind {_GAME_NAME}, e.g. to "Pong".')
  seed = flags.FLAGS.seed
  if seed is None:
    seed = query_gin('run_seed.seed')
  run_record.lock(flags.FLAGS.base_dir)
  record = run_record.start(
    flags.FLAGS.base_dir,
    seed,
    flags.FLAGS.accept_changes,
    agent=agent_name,
    gin_config=_gin_config(),
    **settings,
  )
  _bind('run_seed.seed', record['seed'])
  _bind('run_seed.drawn', record['seed_drawn'])
  return record


def _gin_config() -> str:
  """What is bound, a line each however long: they are compared line by line."""
  lines = gin.config_str(max_line_length=10**6).split('\n')
  # Rulers are as long as the longest line may be.
  return '\n'.join(line for line in lines if not line.startswith('# ==='))


def _bind(parameter: str, value) -> None:
  with gin.unlock_config():
    gin.bind_parameter(parameter, value)


def query_gin(parameter: str) -> Any:
  """The value bound to a gin parameter, or None."""
  try:
    return gin.query_parameter(parameter)
  except ValueError:
    return None


def atari_game() -> str | None:
  """The game that Dopamine's Atari environment is configured for, or None."""
  return query_gin(_GAME_NAME)


def report(where: dict[str, str]) -> None:
  """Says where the results of a run are."""
  for what, path in where.items():
    logging.info('%s: %s', what, path)


def warn_of_unused_bindings() -> list[str]:
  """Logs gin bindings that nothing has read; returns them.

  Call it once everything is built.
  """
  unused = unused_bindings()
  for name in unused:
    logging.warning('The gin binding %s has no effect on this run.', name)
  return unused


def unused_bindings() -> list[str]:
  """The gin bindings, as `Configurable.parameter`, that nothing has read."""
  # No public way: gin prints what was read, but does not return it.
  given, read = gin.config._CONFIG, gin.config._OPERATIVE_CONFIG
  return sorted(
    f'{"/".join(filter(None, scope_and_selector))}.{parameter}'
    for scope_and_selector, parameters in given.items()
    for parameter in parameters
    if parameter not in read.get(scope_and_selector, {})
    and scope_and_selector[1] != 'gin.macro'
  )
