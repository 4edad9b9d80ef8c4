"""Environments whose rows show by themselves whether they are right."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class CountEnv(gym.Env[Any, Any]):
    """Observes `[ident, episode_no, t]`; a step adds 1 to t and pays the new t; each episode ends after exactly `length` steps.

    A right row has `new_obs = obs + [0, 0, 1]`, and an episode returns length * (length + 1) / 2.
    """

    def __init__(self, length: int, end: str = "term", ident: int = 0) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
        self.action_space = gym.spaces.Discrete(2)
        self.length, self.end, self.ident = length, end, ident
        self.episode, self.t = -1, 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode += 1
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        over = self.t == self.length
        return self._obs(), float(self.t), over and self.end == "term", over and self.end == "trunc", {}

    def _obs(self) -> Any:
        return np.array([self.ident, self.episode, self.t], np.float32)


class ContractEnv(CountEnv):
    """A CountEnv that counts its calls, keeps the seeds it is given, and raises where it is used against the rules."""

    def __init__(self, length: int, end: str = "term", ident: int = 0) -> None:
        super().__init__(length, end, ident)
        self.num_resets = self.num_steps = 0
        self.seeds: list[int | None] = []
        self.playing = False

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self.num_resets += 1
        self.seeds.append(seed)
        self.playing = True
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.playing:
            raise RuntimeError("stepped before reset or after the end")
        if not self.action_space.contains(action):
            raise RuntimeError(f"action {action!r} is not in {self.action_space}")
        self.num_steps += 1
        step = super().step(action)
        self.playing = not (step[2] or step[3])
        return step
