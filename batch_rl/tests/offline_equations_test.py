"""Agents of later papers against their equations: loss, gradient and two updates."""

import pytest

from batch_rl.tests import offline_correctness, offline_equations


@pytest.mark.parametrize('name', offline_equations.LOSSES)
@pytest.mark.usefixtures('own_folder')
def test_agents_do_what_the_equations_say(name):
  errors = offline_correctness.compare(name)
  assert len(errors) == 6 and max(errors.values()) < 1e-5, errors


@pytest.mark.parametrize(
  ('name', 'other'),
  [
    ('dr3', 'dqn_adam'),
    ('cql_dr3', 'cql'),
    ('munchausen_iqn', 'iqn'),
    ('two_hot', 'hl_gauss'),
    ('iql', 'weighted_bc'),
    ('bcq', 'double'),
    ('sarsa', 'monte_carlo'),
  ],
)
def test_another_equation_is_noticed(monkeypatch, name, other):
  losses = {**offline_equations.LOSSES, 'dqn_adam': offline_equations.dqn}
  monkeypatch.setitem(offline_equations.LOSSES, name, losses[other])
  errors = offline_correctness.compare(name)
  assert errors['loss'] > 1e-4 and errors['gradient'] > 1e-3
