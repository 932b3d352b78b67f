"""Decision Transformer in PyTorch (Chen et al., 2021, arXiv 2106.01345), for MinAtar.

To train and to play: python decision_transformer.py data/MinAtar-Breakout/1
"""

import argparse
import functools
import itertools
import math

import numpy as np
import torch
import tqdm
from torch import nn

from batch_rl import dataset
from batch_rl.dataset import torch as torch_data
from batch_rl.minatar import MinAtarEnvironment

OPTIONS = dict(
  context=10,  # agent steps that the model sees; in the paper 30, in Pong 50
  width=64,  # 128 in the paper
  layers=3,  # 6 in the paper
  heads=4,  # 8 in the paper
  batch_size=64,  # 128 in the paper
  learning_rate=2e-3,  # 6e-4 in the paper
  warm_up=100,  # updates until the learning rate is reached
  updates=3000,
  episodes=40,  # for each target return
  seed=1,
)
LEAST = dict(learning_rate=0, episodes=2, seed=0)  # 1 for the others


class DecisionTransformer(nn.Module):
  def __init__(self, planes, actions, timesteps, best, width, layers, heads):
    super().__init__()
    self.best, self.heads = best, heads  # Returns are in units of the best one.
    self.embed_return = nn.Linear(1, width)
    self.embed_state = nn.Sequential(
      nn.Conv2d(planes, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1024, width)
    )
    self.embed_action = nn.Embedding(actions, width)
    self.embed_timestep = nn.Embedding(timesteps, width)
    # Late steps are rare: their embeddings hardly change.
    nn.init.normal_(self.embed_timestep.weight, std=0.02)
    self.begin = nn.Sequential(nn.LayerNorm(width), nn.Dropout(0.1))
    make = functools.partial(nn.TransformerEncoderLayer, activation='gelu')
    self.blocks = nn.ModuleList(  # of GPT-2
      make(width, heads, 4 * width, batch_first=True, norm_first=True)
      for _ in range(layers)
    )
    self.end = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, actions))

  def forward(self, return_to_go, state, action, timestep, mask):
    """Returns the logits of the actions, (n, length, actions).

    Those of step t see neither action t nor later steps. The arguments are columns of
    `torch_data.SequenceBatch`; states are (n, length, 10, 10, planes).
    """
    last = self.embed_timestep.num_embeddings - 1
    time = self.embed_timestep(timestep.clamp(max=last))
    state = self.embed_state(state.flatten(0, 1).movedim(-1, 1).float())
    tokens = (
      self.embed_return(return_to_go[..., None] / self.best) + time,
      state.unflatten(0, action.shape) + time,
      self.embed_action(action) + time,
    )
    # Return to go, state, action, return to go, ...
    x = self.begin(torch.stack(tokens, 2).flatten(1, 2))
    # A token sees itself and what precedes it, without padding. Padding sees itself,
    # as a softmax over nothing is NaN.
    visible = mask.repeat_interleave(3, 1)[:, None].expand(-1, x.shape[1], -1)
    visible = visible.tril() | torch.eye(x.shape[1], dtype=torch.bool)
    hidden = ~visible.repeat_interleave(self.heads, 0)
    for block in self.blocks:
      x = block(x, hidden)
    return self.end(x[:, 1::3])  # where the states are


def train(model, batches, updates, learning_rate, warm_up):
  """Returns the loss of each update."""
  adam = torch.optim.AdamW(
    model.parameters(), learning_rate, betas=(0.9, 0.95), weight_decay=0.1
  )

  def schedule(update):  # warm-up, and a cosine down to a tenth
    cosine = math.cos(math.pi * update / updates)
    return min(1, (update + 1) / warm_up) * (0.55 + 0.45 * cosine)

  rates, losses = torch.optim.lr_scheduler.LambdaLR(adam, schedule), []
  bar = tqdm.tqdm(itertools.islice(batches, updates), 'train', updates)
  for b in bar:
    state = b.state[:, :, 0]  # the only frame of each stack
    logits = model(b.return_to_go, state, b.action, b.timestep, b.mask)
    loss = nn.functional.cross_entropy(logits[b.mask], b.action[b.mask])
    adam.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    adam.step()
    rates.step()
    losses.append(loss.item())
    bar.set_postfix(loss=f'{np.mean(losses[-100:]):.3f}', refresh=False)
  return losses


@torch.no_grad()
def play(model, games, target, context, seed):
  """Plays one episode in each game, all in parallel; returns their returns."""
  model.eval()
  random, n = torch.Generator().manual_seed(seed), len(games)
  first = np.stack([game.reset(seed + i) for i, game in enumerate(games)])
  state = torch.zeros((n, context, *first.shape[1:]), dtype=torch.uint8)
  to_go, mask = torch.zeros(n, context), torch.zeros(n, context).bool()
  action, timestep = torch.zeros((2, n, context), dtype=torch.int64)
  state[:, -1], to_go[:, -1], mask[:, -1] = torch.tensor(first), target, True
  # The last step of each column is the present.
  columns = to_go, state, action, timestep, mask
  returns, playing = np.zeros(n), torch.arange(n)
  for step in tqdm.tqdm(itertools.count(1), f'target {target:g}', leave=False):
    logits = model(*(column[playing] for column in columns))[:, -1]
    chosen = torch.multinomial(logits.softmax(1), 1, generator=random)
    action[playing, -1] = chosen[:, 0]
    for column in columns:
      column[:, :-1] = column[:, 1:].clone()
    timestep[:, -1] = step
    for i in playing.tolist():
      observation, reward, _, _ = games[i].step(int(action[i, -1]))
      returns[i] += reward
      to_go[i, -1] -= min(max(reward, -1), 1)  # Logged rewards are clipped.
      state[i, -1] = torch.from_numpy(observation)
    playing = torch.tensor([i for i in playing if not games[i].game_over])
    if not len(playing) or step == 27_000:  # the limit in runs of batch_rl
      return returns


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('directory', help='e.g. data/MinAtar-Breakout/1')
  targets = dict(type=float, nargs='+', default=[5, 10, 20])
  parser.add_argument('--targets', **targets, help='target returns')
  for name, value in OPTIONS.items():
    about = dict(type=type(value), default=value, help=f'default: {value}')
    parser.add_argument(f'--{name}', **about)
  args = parser.parse_args()
  for name, least in {**dict.fromkeys(OPTIONS, 1), **LEAST}.items():
    if getattr(args, name) < least:
      parser.error(f'--{name}={getattr(args, name)} is less than {least}.')
  if args.width % args.heads:
    parser.error(f'--width={args.width} is no multiple of {args.heads} heads.')
  torch.manual_seed(args.seed)
  run = dataset.open(args.directory)
  log = run.trajectories()
  games = [MinAtarEnvironment(log.game) for _ in range(args.episodes)]
  lengths, returns = np.array([(len(e.reward), e.logged_return) for e in log]).T
  model = DecisionTransformer(
    run.store.frame_shape[-1],
    log.num_actions,
    int(lengths.max()),
    max(1.0, returns.max()),
    *(args.width, args.layers, args.heads),
  )
  sampler = run.sequences(args.context, stack_size=1, seed=args.seed)
  batches = torch_data.SequenceDataset(sampler, args.batch_size)
  losses = train(model, batches, args.updates, args.learning_rate, args.warm_up)
  last = np.mean(losses[-100:])
  print(f'loss: {losses[0]:.3f} at first, {last:.3f} over the last 100 updates')
  print(f'log: mean return {returns.mean():.2f}, best {returns.max():g}')
  for target in args.targets:
    returns = play(model, games, target, args.context, args.seed)
    error = returns.std(ddof=1) / len(returns) ** 0.5
    print(f'target {target:g}: mean return {returns.mean():.2f} +- {error:.2f}')


if __name__ == '__main__':
  main()
