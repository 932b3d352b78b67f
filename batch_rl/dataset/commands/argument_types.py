"""Types and checks of the arguments of `python -m batch_rl.dataset`."""

import argparse
import os
from collections.abc import Callable
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


def number(least: int, most: int) -> Callable[[str], int]:
  """Returns an argument type for integers from `least` to `most`."""

  def parse(text: str) -> int:
    value = int(text)
    if not least <= value <= most:
      raise ValueError
    return value

  parse.__name__ = f'number (at least {least}, at most {most:,})'
  return parse


def add_last_step(parser: Any) -> None:
  """Adds `--last_step`, for TFDS datasets and files of RL Unplugged, to a parser."""
  parser.add_argument(
    '--last_step',
    choices=episode_import.LAST_STEPS,
    help='content of terminal steps in TFDS datasets and RL Unplugged files: a '
    'transition, or only an observation as RLDS defines; default: auto, inferred from '
    'returns',
  )


def add_run_number(parser: Any) -> None:
  """Adds `--run`, for folders with files of RL Unplugged, to a parser."""
  parser.add_argument(
    '--run',
    dest='run_number',
    metavar='N',
    type=number(0, 10**9),
    help='run to read, if a folder has RL Unplugged files of several runs',
  )


def check_outside(destination: str, source: str) -> None:
  """Raises a ValueError if a local destination is in a source, or is the source."""
  if files.is_remote(source):
    return
  inner, outer = os.path.realpath(destination), os.path.realpath(source)
  if os.path.commonpath([inner, outer]) == outer:
    raise ValueError(
      f'{destination} is inside of {source}, which is read; choose another '
      'directory.'
    )
