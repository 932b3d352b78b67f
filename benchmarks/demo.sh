#!/usr/bin/env bash
# `make demo`: logs a little data online, verifies it, trains REM offline on the shipped
# sample, and evaluates it. A few minutes on two cores. `--quick` plays short episodes;
# `--quick online` has the first half of it, and `--quick offline [RUN]` the second, with another
# run than the sample.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${VENV:-.venv}/bin/python
demo=${DEMO_DIR:-demo}
# Agent steps an episode at most, iterations, and transitions for diagnostics.
part=1 most=27000 iterations=2 probe=2048 halves='online offline' sample=data/Pong/1
if [ "${1:-}" = --quick ]; then
  part=20 most=100 iterations=1 probe=32 halves=${2:-$halves} sample=${3:-$sample}
fi
if [ -e "$demo" ] && [ ! -e "$demo/.made_by_demo" ]; then
  echo "$demo was not made by an earlier demo; choose another DEMO_DIR." >&2
  exit 2
fi
rm -rf "$demo"
mkdir -p "$demo"
touch "$demo/.made_by_demo"

show() {
  printf '\n$ %s\n' "$*"
  "$@"
}

if [[ $halves = *online* ]]; then
  printf '=== 1 of 4: a DQN plays Pong and logs its experience ===\n'
  show "$python" -um batch_rl.baselines.train \
    --base_dir="$demo/online" --replay_log_dir="$demo/data/Pong/1" --seed=1 \
    --gin_files=batch_rl/baselines/configs/dqn.gin \
    --gin_bindings='LoggedRunner.num_iterations=1' \
    --gin_bindings='LoggedRunner.training_steps='$((3000 / part)) \
    --gin_bindings='LoggedRunner.evaluation_steps='$((500 / part)) \
    --gin_bindings='LoggedRunner.max_steps_per_episode='$most \
    --gin_bindings='LoggedDQNAgent.min_replay_history='$((1000 / part)) \
    --gin_bindings='WrappedLoggedReplayBuffer.shard_capacity='$((1000 / part)) \
    --gin_bindings='WrappedLoggedReplayBuffer.replay_capacity=100000'

  printf '\n=== 2 of 4: verification of the log ===\n'
  show "$python" -m batch_rl.dataset verify "$demo/data/Pong/1"
fi

if [[ $halves = *offline* ]]; then
  printf '\n=== 3 of 4: verification of the sample in the repository ===\n'
  show "$python" -m batch_rl.dataset verify "$sample"

  printf '\n=== 4 of 4: REM trains on the sample and is evaluated in Pong ===\n'
  show "$python" -um batch_rl.fixed_replay.train \
    --base_dir="$demo/rem" --replay_dir="$sample" --seed=1 \
    --gin_files=batch_rl/fixed_replay/configs/rem.gin \
    --gin_bindings='FixedReplayRunner.num_iterations='$iterations \
    --gin_bindings='FixedReplayRunner.probe_size='$probe \
    --gin_bindings='FixedReplayRunner.max_steps_per_episode='$most \
    --gin_bindings='FixedReplayRunner.training_steps='$((4000 / part)) \
    --gin_bindings='FixedReplayRunner.evaluation_steps='$((1000 / part))
fi

cat <<END

=== Results ===
  logged data          $demo/data/Pong/1/replay_logs (shards, manifest.json)
  TensorBoard files    $demo/online, $demo/rem   (tensorboard --logdir $demo)
  Dopamine's logs      $demo/online/logs, $demo/rem/logs
  checkpoints          $demo/online/checkpoints, $demo/rem/checkpoints
  settings, versions   $demo/online/run.json, $demo/rem/run.json
A few thousand steps show that everything works, but do not suffice to learn Pong.
An agent that learns, in minutes and with a plot: the quickstart of README.md
END
