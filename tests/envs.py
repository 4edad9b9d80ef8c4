"""Environments whose rows show by themselves whether they are right."""

from __future__ import annotations

from collections.abc import Mapping
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


class PointMass(gym.Env[Any, Any]):
    """A mass in the plane that costs where it is and how hard it is pushed: what is best is known (`riccati`).

    Observes position and velocity, x = (p, v) `[4]`. The action u `[2]`, within +-1, is the acceleration over the next 0.2 s:

        p' = p + 0.2 v + 0.02 u,    v' = v + 0.2 u,    cost = x'^T Q x' + u^T R u,    reward = -cost

    Q = diag(1, 1, 0.1, 0.1), R = diag(0.5, 0.5). Each episode is cut (truncated) after exactly 30 steps: by then a mass under
    control rests at the origin, so that no observation of the time is needed. It starts 0.5 away from there in any direction, with
    a velocity within +-0.2 each way: near enough that the best actions stay inside the bounds.
    """

    HORIZON = 30
    A = np.block([[np.eye(2), 0.2 * np.eye(2)], [np.zeros((2, 2)), np.eye(2)]])
    B = np.vstack([0.02 * np.eye(2), 0.2 * np.eye(2)])
    Q = np.diag([1.0, 1.0, 0.1, 0.1])
    R = np.diag([0.5, 0.5])

    def __init__(self, env_config: Mapping[str, Any] | None = None) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.action_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
        self.x, self.t = np.zeros(4), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        angle = self.np_random.uniform(0.0, 2 * np.pi)
        self.x = np.array([0.5 * np.cos(angle), 0.5 * np.sin(angle), *self.np_random.uniform(-0.2, 0.2, 2)])
        self.t = 0
        return self.x.astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r}: expected one in {self.action_space}")
        u = action.astype(np.float64)
        self.x = self.A @ self.x + self.B @ u
        self.t += 1
        cost = self.x @ self.Q @ self.x + u @ self.R @ u
        return self.x.astype(np.float32), -float(cost), False, self.t == self.HORIZON, {}


def riccati(a: Any, b: Any, q: Any, r: Any, horizon: int) -> tuple[list[Any], Any]:
    """The least that `horizon` steps of x' = a x + b u can cost, each x'^T q x' + u^T r u: (gains, P).

    The best action at step t is u = -gains[t] x, and from x all steps together cost x^T P x (Anderson and Moore, Optimal Control:
    Linear Quadratic Methods, 1990, section 2.4; we differ in that a step pays for the x' that it leads to).
    """
    gains, p = [], np.zeros_like(q)
    for _ in range(horizon):
        s = q + p
        gain = np.linalg.solve(r + b.T @ s @ b, b.T @ s @ a)
        gains.append(gain)
        p = a.T @ s @ (a - b @ gain)
    return gains[::-1], p


class OneHot(gym.ObservationWrapper[Any, Any, Any]):
    """Discrete observations as rows of the unit matrix: state s of n as `[n]` zeros with a one at s."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.observation_space, gym.spaces.Discrete), f"{env.observation_space}: expected Discrete"
        self.rows = np.eye(env.observation_space.n, dtype=np.float32)
        self.observation_space = gym.spaces.Box(0.0, 1.0, self.rows[0].shape, np.float32)

    def observation(self, observation: Any) -> Any:
        return self.rows[observation]


def frozen_lake(env_config: Mapping[str, Any]) -> gym.Env[Any, Any]:
    """gymnasium's FrozenLake-v1, 4x4 and slippery unless `env_config` says otherwise, whose 16 states are observed one-hot."""
    return OneHot(gym.make("FrozenLake-v1", **env_config))
