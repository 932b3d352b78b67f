"""Types and checks of the arguments of `python -m batch_rl.dataset`."""

import argparse
import os
from collections.abc import Iterable
from typing import Any

from batch_rl.dataset.imports import episode_import
from batch_rl.dataset.shards import shard_files
from batch_rl.utils import files


def path(text: str) -> str:
  """Returns a path or URL, unless it is empty or has control characters."""
  if not text.strip():
    raise argparse.ArgumentTypeError('the path is empty')
  if any(ord(character) < 32 or character == '\x7f' for character in text):
    raise argparse.ArgumentTypeError(f'{text!r} has control characters')
  return text


def game(text: str) -> str:
  """Returns a game, unless it cannot be the name of a folder."""
  try:
    shard_files.check_game(text)
  except ValueError as error:
    raise argparse.ArgumentTypeError(str(error)) from None
  return text


def add_path(parser: Any, name: str, meaning: str, **options: Any) -> None:
  """Adds an argument or option that is a path to a parser."""
  parser.add_argument(name, type=path, help=meaning, **options)


def add_run_directory(parser: Any, name: str = 'directory') -> None:
  """Adds an argument for the directory of a run to a parser."""
  add_path(parser, name, 'run directory, <root>/<Game>/<run>, or store')


def add_number(
  parser: Any, name: str, least: int, most: int, meaning: str, **options: Any
) -> None:
  """Adds an option for integers from `least` to `most` to a parser."""

  def parse(text: str) -> int:
    value = int(text)
    if not least <= value <= most:
      raise ValueError
    return value

  parse.__name__ = f'number (at least {least}, at most {most:,})'
  parser.add_argument(name, metavar='N', type=parse, help=meaning, **options)


def add_last_step(parser: Any) -> None:
  """Adds `--last_step`, for TFDS datasets and files of RL Unplugged, to a parser."""
  parser.add_argument(
    '--last_step',
    choices=episode_import.LAST_STEPS,
    help='content of terminal steps in TFDS and RL Unplugged: a transition, or only an '
    'observation, as RLDS defines; default: auto, inferred from returns',
  )


def check_options(
  arguments: argparse.Namespace, wrong: Iterable[str], what: str
) -> None:
  """Raises a ValueError if an option was given that does not apply.

  Args:
    arguments: Parsed arguments.
    wrong: Names of options that do not apply.
    what: Data or option to which they do not apply.
  """
  for name in wrong:
    value = getattr(arguments, name)
    if value is not None and value is not False:  # 0 is given, too.
      raise ValueError(f'--{name} does not apply to {what}; remove it.')


def check_outside(destination: str, source: str) -> None:
  """Raises a ValueError if a local destination is in a source, or is the source."""
  source = source.removeprefix('file://')
  if files.is_remote(source):
    return
  inner, outer = os.path.realpath(destination), os.path.realpath(source)
  if os.path.commonpath([inner, outer]) == outer:
    raise ValueError(
      f'{destination} is inside of {source}, which is read; choose another directory.'
    )
