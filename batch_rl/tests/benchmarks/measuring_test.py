"""The command line that benchmarks share."""

import pathlib
import sys

import pytest

from benchmarks import endurance, measuring


@pytest.mark.parametrize('quick', [False, True])
def test_the_smallest_form_has_a_work_directory_of_its_own(monkeypatch, quick):
  monkeypatch.setattr(sys, 'argv', ['endurance', '--work_dir=runs'])
  monkeypatch.setattr(measuring, 'QUICK', quick)
  expected = 'runs/quick' if quick else 'runs'
  assert endurance.parse().work_dir == pathlib.Path(expected)
