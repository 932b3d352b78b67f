"""Command line and criteria of `benchmarks.endurance`."""

import os
import sys

import pandas as pd
import pytest

from benchmarks import endurance, measuring


def test_the_smallest_form_has_a_work_directory_of_its_own(monkeypatch):
  monkeypatch.setattr(sys, 'argv', ['endurance'])
  monkeypatch.setattr(measuring, 'QUICK', True)
  assert endurance.parse().work_dir.name == 'quick'


def test_the_files_of_a_log_are_not_counted(tmp_path):
  count = endurance.open_files(os.getpid(), str(tmp_path))
  with (tmp_path / 'action').open('w'), open(os.devnull, encoding='utf-8'):
    assert endurance.open_files(os.getpid(), str(tmp_path)) == count + 1


def make_samples(last=None):
  """Samples of a steady run; the columns in `last` grow by a factor at the end."""
  state = endurance.Sample(0, 60, 500, 60, 9, 600, 700, 5, 12, 0.1)
  samples = pd.DataFrame([state] * 9).astype(float)
  samples.loc[:2, ['lowest', 'highest', 'trained']] /= 2  # it only begins
  for column, factor in (last or {}).items():
    samples.loc[6:, column] *= factor
  counts = ['cpu_seconds', 'updates', 'trained']
  samples[counts] = samples[counts].cumsum()
  return samples


# Factors of the last third's columns, and what the summary then says.
CHANGES = {
  'none': ({}, {}),
  'lowest memory': ({'lowest': 1.03}, {'memory %': 3}),
  'highest memory': ({'highest': 1.03}, {'memory %': 3}),
  'less memory': ({'lowest': 0.9, 'highest': 0.9}, {}),
  'files': ({'files': 1.2}, {'more files': 1}),
  'slower': ({'trained': 1.25}, {'rate %': -20}),
  'faster': ({'trained': 0.8}, {'rate %': 25}),
  'slower machine': ({'trained': 1.25, 'reference': 1.25}, {'machine %': -20}),
  'slower than it': ({'trained': 1.5, 'reference': 1.2}, {'rate %': -20}),
}


@pytest.mark.parametrize('change', CHANGES)
def test_what_is_steady(change):
  factors, said = CHANGES[change]
  summary = endurance.summary(make_samples(factors))
  is_steady = change in ('none', 'less memory', 'slower machine')
  assert summary['steady'] == ('yes' if is_steady else 'no')
  for name, value in said.items():
    assert summary[name] == pytest.approx(value)


def test_a_checkpoint_in_each_third_is_no_growth():
  samples = make_samples()
  samples.loc[[4, 7], 'highest'] = 800
  assert endurance.summary(samples)['steady'] == 'yes'


def test_iterations_that_end_in_few_samples_do_not_change_the_rate():
  samples = make_samples()
  ends = ['updates', 'trained']
  # After the last iteration that ends, a sample says the same of it.
  samples.loc[[4, 6, 7], ends] = samples.loc[[3, 5, 5], ends].to_numpy()
  assert endurance.summary(samples)['rate %'] == pytest.approx(0)


def test_a_third_without_an_iteration_is_not_steady():
  samples = make_samples()
  samples.loc[5:, ['updates', 'trained']] = [3000, 360]
  assert endurance.summary(samples)['steady'] == 'no'
