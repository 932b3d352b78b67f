"""DQN in PyTorch. To train: python pytorch_dqn.py data/Pong/1 [UPDATES]."""

import sys

import torch
from torch import nn

import batch_rl.dataset
from batch_rl.dataset import torch as torch_data

GAMMA = 0.99


class NatureNetwork(nn.Sequential):  # Mnih et al., 2015
  def __init__(self, num_actions):
    super().__init__(
      nn.Conv2d(4, 32, 8, 4),
      nn.ReLU(),
      nn.Conv2d(32, 64, 4, 2),
      nn.ReLU(),
      nn.Conv2d(64, 64, 3, 1),
      nn.ReLU(),
      nn.Flatten(),
      nn.Linear(64 * 7 * 7, 512),
      nn.ReLU(),
      nn.Linear(512, num_actions),
    )

  def forward(self, frames):  # uint8 (n, 4, 84, 84)
    return super().forward(frames.float() / 255)


def main(directory, updates):
  device = 'cuda' if torch.cuda.is_available() else 'cpu'
  run = batch_rl.dataset.open(directory)
  sampler = run.transitions(stack_size=4, gamma=GAMMA, seed=1)
  dataset = torch_data.TransitionDataset(sampler, pin_memory=device == 'cuda')
  num_actions = int(run.store.action.max()) + 1
  online, target = (NatureNetwork(num_actions).to(device) for _ in range(2))
  adam = torch.optim.Adam(online.parameters(), lr=6.25e-5, eps=1.5e-4)
  loader = torch.utils.data.DataLoader(dataset, batch_size=None)
  for update, batch in zip(range(updates), loader, strict=False):
    if update % 2000 == 0:
      target.load_state_dict(online.state_dict())
    batch = batch.to(device)
    q = online(batch.state).gather(1, batch.action[:, None])[:, 0]
    with torch.no_grad():
      best = target(batch.next_state).amax(1)
      goal = batch.reward + GAMMA * ~batch.terminal * best
    loss = nn.functional.smooth_l1_loss(q, goal)
    adam.zero_grad()
    loss.backward()
    adam.step()
    if update % 100 == 0:
      print(update, loss.item())


if __name__ == '__main__':
  main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000)
