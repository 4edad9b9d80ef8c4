"""DQN on CartPole-v1 beside stable-baselines3's, with its settings: env steps a second, 32 rows trained for each that is sampled.

The other side is `peers/peer_sb3.py DQN`, unchanged, in a process of its own on the same core, where `PEERS_PYTHON` names the Python of an
environment that has it (see `peers/README.md`). Sides take turns; each starts anew, and what it does in its first seconds (filling its
memory, above all) does not count.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

import flowrl as fl
from benchmarks.pairs import Row
from benchmarks.replay import one_core

SCRIPT = Path(__file__).parent / "peers" / "peer_sb3.py"
WARM_S, WINDOW_S = 5, 20
LEAST = 1.5

CONFIG = fl.DQNConfig(
    env="CartPole-v1",
    num_envs=8,
    rollout_fragment_length=32,
    training_intensity=32,
    train_batch_size=64,
    hiddens=(256, 256),
    double_q=False,
    dueling=False,
    lr=2.3e-3,
    gamma=0.99,
    buffer_size=100_000,
    learning_starts=1000,
    target_network_update_freq=10,
    epsilon_schedule=((0, 1.0), (16_000, 0.04)),
    min_steps_per_reporting=256,
)
"""The peer's: 128 batches of 64 rows after each 32 steps of its 8 envs. Its exploration falls over 16 % of as many steps as it is given."""


def ours() -> float:
    """Env steps a second of flowrl."""
    start = time.perf_counter()
    at_start: tuple[float, int] | None = None
    with CONFIG.build() as trainer:
        while True:
            sampled, elapsed_s = trainer.train()["num_steps_sampled"], time.perf_counter() - start
            if at_start is None and elapsed_s >= WARM_S:
                at_start = elapsed_s, sampled
            elif at_start is not None and elapsed_s - at_start[0] >= WINDOW_S:
                return float(sampled - at_start[1]) / (elapsed_s - at_start[0])


def theirs(python: str) -> float:
    """Env steps a second of the peer, by its own count."""
    with tempfile.TemporaryDirectory() as folder:
        seen = subprocess.run(
            [python, SCRIPT, "DQN", "--warm", str(WARM_S), "--window", str(WINDOW_S)],
            env={**os.environ, "BENCH_OUT": folder},
            check=True,
            capture_output=True,
            text=True,
        )
    return float(json.loads(seen.stdout.splitlines()[-1])["sampled_s"])


def run(num_pairs: int = 5) -> list[Row]:
    """The pairs, the order changing from one to the next."""
    python = os.environ.get("PEERS_PYTHON")
    if python is None:
        print("dqn: left out, PEERS_PYTHON names no Python that has stable-baselines3", flush=True)
        return []
    row = Row("DQN on CartPole-v1, stable-baselines3's settings", "sb3", [], [], LEAST, "steps/s")
    with one_core():
        for pair in range(num_pairs):
            if pair % 2:
                row.theirs.append(theirs(python))
            row.ours.append(ours())
            if not pair % 2:
                row.theirs.append(theirs(python))
    print(row, flush=True)
    return [row]
