"""A folder of a user's own, with their file, and the command line as they call it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from flowrl.cli import main

OWN_FILE = '''
"""An env whose episodes take 5 steps and pay 1 each, a config, and plans over PPO's."""
import signal
import threading
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

import flowrl as fl
from flowrl.algorithms import ppo
from flowrl.ops import ParallelRollouts


class Five(gym.Env):
    observation_space = gym.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, config):
        self.config, self.steps, self.t = config, 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.t += 1
        self.steps += 1
        if self.steps == self.config.get("explodes_at"):
            self.explode()
        if self.steps == self.config.get("ctrl_c_at"):
            signal.raise_signal(signal.SIGINT)
        return np.zeros(2, np.float32), 1.0, self.t == self.config.get("length", 5), False, {}

    def explode(self):
        raise RuntimeError("boom in the env")

    def close(self):
        if self.config.get("never_closes"):
            print("closing", flush=True)
            threading.Event().wait()


class Speaking(Five):
    observation_space = gym.spaces.Text(3)


@dataclass(frozen=True, kw_only=True, eq=False)
class MyConfig(fl.PPOConfig):
    hiddens: tuple = (4,)
    rollout_fragment_length: int = 100
    train_batch_size: int = 100
    num_sgd_iter: int = 1


def execution_plan(workers, config):
    return ppo.execution_plan(workers, config)


def plan_that_ends(workers, config):
    return fl.from_iterable([{"num_steps_sampled": 1, "episode_return_mean": float("nan")}, {"num_steps_sampled": 2}])


def plan_without_results(workers, config):
    return ParallelRollouts(workers)


def no_plan(workers, config):
    return 3


def plan_that_raises(workers, config):
    raise KeyError("in my plan")


small = MyConfig(env=Five)
'''


class Said(NamedTuple):
    """What a command gave."""

    code: int
    out: str
    err: str


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, a fresh one, with `my.py` in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.py").write_text(textwrap.dedent(OWN_FILE))
    return tmp_path


@pytest.fixture
def flowrl(here: Path, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """`flowrl("train", "ppo", ...)`: a command, in this process."""

    def run(*arguments: object) -> Said:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Said(code, out, "".join(line for line in err.splitlines(keepends=True) if not line.startswith("Fontconfig")))

    return run
