"""Command line of `benchmarks.endurance`."""

import sys

from benchmarks import endurance, measuring


def test_the_smallest_form_has_a_work_directory_of_its_own(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['endurance'])
  monkeypatch.setattr(measuring, 'QUICK', True)
  assert endurance.parse().work_dir.name == 'quick'
