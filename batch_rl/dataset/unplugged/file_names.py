"""Names of RL Unplugged's Atari files.

The ordered copy, `atari_episodes_ordered/<Game>/run_<run>-<number>-of-<count>`, has one
file for each checkpoint of a run, in order of time. The copy `atari/<Game>/...` holds the
same transitions in random order, in 100 files.

Source: TFDS, `rl_unplugged/atari_utils.py` and `rl_unplugged/rlu_common.py`.
"""

import dataclasses
import re

# Name of the bucket, and of the format in manifests.
NAME = 'rl_unplugged'
FOLDER = 'atari_episodes_ordered'
SHUFFLED_COUNT = 100
# Games of the DQN Replay Dataset that RL Unplugged has.
GAMES = tuple(
  """
  Alien Amidar Assault Asterix Atlantis BankHeist BattleZone BeamRider
  Boxing Breakout Carnival Centipede ChopperCommand CrazyClimber
  DemonAttack DoubleDunk Enduro FishingDerby Freeway Frostbite Gopher
  Gravitar Hero IceHockey Jamesbond Kangaroo Krull KungFuMaster MsPacman
  NameThisGame Phoenix Pong Pooyan Qbert Riverraid RoadRunner Robotank
  Seaquest SpaceInvaders StarGunner TimePilot UpNDown VideoPinball
  WizardOfWor YarsRevenge Zaxxon
  """.split()
)
_COUNT = 50
# Their runs have one checkpoint fewer.
_SHORT_GAMES = ('Carnival', 'Gravitar', 'StarGunner')
_NAME = re.compile(r'run_([0-9]{1,9})-([0-9]{5})-of-([0-9]{5})')


@dataclasses.dataclass(frozen=True, order=True)
class FileName:
  """Name of a file.

  Attributes:
    run: Number of the run, 1 to 5 in RL Unplugged.
    number: Number of the file, from 0: the checkpoint, in the ordered copy.
    count: Number of files of the run.
  """

  run: int
  number: int
  count: int


def parse(name: str) -> FileName | None:
  """Returns the parts of a file's name; None if it is not such a name."""
  match = _NAME.fullmatch(name)
  if match is None:
    return None
  parts = FileName(int(match[1]), int(match[2]), int(match[3]))
  return parts if parts.number < parts.count else None


def format(run: int, number: int, count: int) -> str:
  """Returns the name of a file, e.g. `run_1-00049-of-00050`."""
  return f'run_{run}-{number:05d}-of-{count:05d}'


def count_of(game: str) -> int:
  """Returns the number of files of a run in the ordered copy: 50, or 49."""
  return _COUNT - (game in _SHORT_GAMES)
