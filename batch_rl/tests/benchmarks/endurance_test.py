"""Command line and criteria of `benchmarks.endurance`."""

import sys

import pandas as pd
import pytest

from benchmarks import endurance, measuring


def test_the_smallest_form_has_a_work_directory_of_its_own(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['endurance'])
  monkeypatch.setattr(measuring, 'QUICK', True)
  assert endurance.parse().work_dir.name == 'quick'


# Factors of the last third's columns, and what the summary then says.
CHANGES = {
  'none': ({}, {}),
  'lowest memory': ({'lowest': 1.03}, {'memory %': 3}),
  'highest memory': ({'highest': 1.03}, {'memory %': 3}),
  'less memory': ({'lowest': 0.9, 'highest': 0.9}, {}),
  'files': ({'files': 1.2}, {'more files': 1}),
  'slower': ({'training': 1.25}, {'rate %': -20}),
  'faster': ({'training': 0.8}, {'rate %': 25}),
  # The time of evaluations, and that of a run's begin, do not count.
  'evaluations': ({'cpu_seconds': 1.5, 'updates': 1.5}, {}),
  'slower machine': ({'training': 1.25, 'reference': 1.25}, {'machine %': -20}),
  'slower than the machine': (
    {'training': 1.5, 'reference': 1.2},
    {'rate %': -20},
  ),
}


@pytest.mark.parametrize('change', CHANGES)
def test_what_is_steady(change):
  factors, said = CHANGES[change]
  samples = pd.DataFrame(
    [endurance.Sample(0, 60, 500, 500, 50, 9, 600, 700, 5, 12, 0.1)] * 9
  ).astype(float)
  samples.loc[:2, ['lowest', 'highest', 'training']] /= 2  # it only begins
  for column, factor in factors.items():
    samples.loc[6:, column] *= factor
  summary = endurance.summary(samples)
  is_steady = change in ('none', 'less memory', 'evaluations', 'slower machine')
  assert summary['steady'] == ('yes' if is_steady else 'no')
  for name, value in said.items():
    assert summary[name] == pytest.approx(value)


def test_a_checkpoint_in_each_third_is_no_growth():
  samples = pd.DataFrame(
    [endurance.Sample(0, 60, 500, 500, 50, 9, 600, 700, 5, 12, 0.1)] * 9
  )
  samples.loc[[4, 7], 'highest'] = 800
  assert endurance.summary(samples)['steady'] == 'yes'
