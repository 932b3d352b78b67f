"""Losses and updates of d3rlpy and TorchRL, in an environment of their own.

`benchmarks.peers` runs it; it does not import batch_rl.

  python theirs.py losses INPUT.npz OUTPUT.npz
  python theirs.py updates EPISODES.npz UPDATES   # a round for each line of stdin
"""

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

import d3rlpy
import numpy as np
import torch
from d3rlpy import algos
from d3rlpy.models import QRQFunctionFactory, VectorEncoderFactory
from d3rlpy.torch_utility import TorchMiniBatch
from tensordict import TensorDict
from torch import nn
from torchrl import objectives

Inputs = dict[str, Any]  # columns: tensors; networks: lists of arrays
# A loss, and the parameters that it trains.
Loss = tuple[torch.Tensor, Sequence[torch.Tensor]]


def of_d3rlpy(
  config: Any, inputs: Inputs, penalty: float = 0, **settings: Any
) -> Loss:
  """Returns the loss of an algorithm, plus a penalty of the imitator's logits."""
  (features, units), num_actions = inputs['online'][0].shape, inputs['actions']
  encoder = VectorEncoderFactory([units])
  algorithm = config(
    gamma=inputs['gamma'], encoder_factory=encoder, **settings
  ).create(device='cpu:0')
  algorithm.create_impl((features,), num_actions)
  impl = algorithm.impl
  trained = load(impl.modules.q_funcs[0], inputs['online'])
  load(impl.modules.targ_q_funcs[0], inputs['target'])
  column = {k: inputs[k][:, None] for k in ('action', 'reward', 'terminal')}
  batch = TorchMiniBatch(
    observations=inputs['state'],
    actions=column['action'],
    rewards=column['reward'],
    next_observations=inputs['next_state'],
    next_actions=column['action'],  # not used
    returns_to_go=column['reward'],  # not used
    terminals=column['terminal'].float(),
    intervals=torch.ones_like(column['reward']),
    device='cpu:0',
  )
  loss = 0.0
  if imitator := getattr(impl.modules, 'imitator', None):
    # It shares the encoder.
    trained += load(imitator._fc, inputs['behaviour'])
    logits = imitator._fc(imitator._encoder(inputs['state']))
    loss = penalty * (logits**2).mean()
  target = impl.compute_target(batch)
  return loss + impl.compute_loss(batch, target).loss, trained


def of_torchrl(
  module: Any, inputs: Inputs, weights: dict[str, float], **settings: Any
) -> Loss:
  """Returns the weighted sum of the losses of a module."""
  (features, units), num_actions = inputs['online'][0].shape, inputs['actions']
  network = nn.Sequential(
    nn.Linear(features, units), nn.ReLU(), nn.Linear(units, num_actions)
  )
  load(network, inputs['target'])
  settings = {'loss_function': 'smooth_l1', **settings}
  # Copies the target network.
  losses = module(network, action_space='categorical', **settings)
  losses.make_value_estimator(gamma=inputs['gamma'])
  trained = load(network, inputs['online'])
  terminal = inputs['terminal'][:, None].bool()
  following = {
    'observation': inputs['next_state'],
    'reward': inputs['reward'][:, None],
    'done': terminal,
    'terminated': terminal,
  }
  columns = {'observation': inputs['state'], 'action': inputs['action']}
  found = losses(TensorDict({**columns, 'next': following}, [len(terminal)]))
  return sum(w * found[name] for name, w in weights.items()), trained


def load(module: nn.Module, arrays: Sequence[np.ndarray]) -> list[torch.Tensor]:
  """Sets and returns parameters; kernels are those of TensorFlow, transposed."""
  parameters = list(module.parameters())
  for parameter, array in zip(parameters, arrays, strict=True):
    parameter.data.copy_(torch.as_tensor(array.T))
  return parameters


def quantiles(count: int) -> dict[str, Any]:
  """Returns the settings of QR-DQN."""
  return {'q_func_factory': QRQFunctionFactory(n_quantiles=count)}


# Functions with their arguments, by the names of `ours.CASES`.
LOSSES: dict[str, tuple[Any, Any, dict[str, Any]]] = {
  'd3rlpy DQN': (of_d3rlpy, algos.DQNConfig, {}),
  'd3rlpy DoubleDQN': (of_d3rlpy, algos.DoubleDQNConfig, {}),
  'd3rlpy DiscreteCQL': (of_d3rlpy, algos.DiscreteCQLConfig, {}),
  'd3rlpy DiscreteCQL, quantiles': (
    of_d3rlpy,
    algos.DiscreteCQLConfig,
    quantiles(20),
  ),
  'd3rlpy DiscreteBCQ': (
    of_d3rlpy,
    algos.DiscreteBCQConfig,
    {'beta': 0.0, 'penalty': 0.01},
  ),
  'TorchRL DQNLoss': (of_torchrl, objectives.DQNLoss, {'weights': {'loss': 1}}),
  'TorchRL DQNLoss, double': (
    of_torchrl,
    objectives.DQNLoss,
    {'weights': {'loss': 1}, 'double_dqn': True},
  ),
  'TorchRL DiscreteCQLLoss': (
    of_torchrl,
    objectives.DiscreteCQLLoss,
    {'weights': {'loss_qvalue': 2, 'loss_cql': 1}},
  ),
}
ALGORITHMS = {
  'DQN': algos.DQNConfig(),
  'CQL on QR-DQN': algos.DiscreteCQLConfig(**quantiles(200)),
  'BCQ': algos.DiscreteBCQConfig(),
}


def compute_losses(source: str, destination: str) -> None:
  """Computes the losses of arrays, and their gradients, in TensorFlow's layout."""
  with np.load(source) as arrays:
    loaded = dict(arrays)
  inputs: Inputs = {'gamma': float(loaded['gamma'])}
  inputs['actions'] = int(loaded['actions'])
  for key in ('state', 'next_state', 'action', 'reward', 'terminal'):
    inputs[key] = torch.as_tensor(loaded[key])
  for key in loaded:  # '<network>/<index>'
    if '/' in key:
      inputs.setdefault(key.split('/')[0], []).append(loaded[key])
  found = {}
  for name, (function, kind, settings) in LOSSES.items():
    own = dict(inputs)
    if 'quantiles' in name:
      own |= {k: inputs[f'{k} quantiles'] for k in ('online', 'target')}
    loss, trained = function(kind, own, **settings)
    loss.backward()
    found[f'{name}/loss'] = loss.detach().numpy()
    for i, parameter in enumerate(trained):
      found[f'{name}/{i}'] = parameter.grad.numpy().T
  np.savez(destination, **found)


def make_updates(source: str, updates: str) -> None:
  """Makes updates of each algorithm for each line of stdin, and prints their seconds.

  The network is that of Mnih et al., 2015, d3rlpy's default for images.
  """
  with np.load(source) as arrays:
    loaded = dict(arrays)
  episodes = [
    d3rlpy.dataset.Episode(
      *(
        loaded[f'{i}/{k}'][:, None] for k in ('observation', 'action', 'reward')
      ),
      terminated=True,
    )
    for i in range(len(loaded) // 3)
  ]
  stacks = d3rlpy.dataset.FrameStackTransitionPicker(4)
  memory = d3rlpy.dataset.create_infinite_replay_buffer(episodes, stacks)
  scaler = d3rlpy.preprocessing.PixelObservationScaler()
  trained = {}
  for name, config in ALGORITHMS.items():
    config = dataclasses.replace(config, observation_scaler=scaler)
    trained[name] = config.create(device='cpu:0')
    trained[name].create_impl((4, 84, 84), 6)
  for _ in sys.stdin:
    seconds = {}
    for name, algorithm in trained.items():
      begin = time.perf_counter()
      for _ in range(int(updates)):
        algorithm.update(memory.sample_transition_batch(32))
      seconds[name] = time.perf_counter() - begin
    print(json.dumps(seconds), flush=True)


if __name__ == '__main__':
  torch.set_num_threads(1)
  command, *arguments = sys.argv[1:]
  {'losses': compute_losses, 'updates': make_updates}[command](*arguments)
