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


class Seek(gym.Env[Any, Any]):
    """A walk to a goal on a 5 x 5 board: an image shows the goal, a vector says where the walker is, and neither says the other.

    Observes `{"image": uint8 [5, 5, 1], "place": float32 [2]}`, with the keys the other way round where `env_config["reversed"]`. The
    four actions go one field up, down, left, right; each step costs 0.1, the goal pays 1 and ends the episode, which is cut after 20
    steps. What is best is known: 1 - 0.1 * steps, by the way's length (`best`).
    """

    SIZE, MOVES = 5, ((-1, 0), (1, 0), (0, -1), (0, 1))

    def __init__(self, env_config: Mapping[str, Any] | None = None) -> None:
        spaces = [
            ("image", gym.spaces.Box(0, 255, (self.SIZE, self.SIZE, 1), np.uint8)),
            ("place", gym.spaces.Box(-1.0, 1.0, (2,), np.float32)),
        ]
        self.is_reversed = bool((env_config or {}).get("reversed"))
        self.observation_space = gym.spaces.Dict(dict(reversed(spaces) if self.is_reversed else spaces))
        self.action_space = gym.spaces.Discrete(4)
        self.goal, self.place, self.t = (0, 0), (0, 0), 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        goal, place = self.np_random.choice(self.SIZE**2, 2, replace=False).tolist()
        self.goal, self.place, self.t = divmod(goal, self.SIZE), divmod(place, self.SIZE), 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        (row, column), (down, right) = self.place, self.MOVES[action]
        self.place = min(max(row + down, 0), self.SIZE - 1), min(max(column + right, 0), self.SIZE - 1)
        self.t += 1
        is_there = self.place == self.goal
        return self._obs(), 0.9 if is_there else -0.1, is_there, self.t == 20, {}

    def best(self) -> float:
        """The highest return from here on."""
        way = abs(self.goal[0] - self.place[0]) + abs(self.goal[1] - self.place[1])
        return 1 - 0.1 * way

    def _obs(self) -> dict[str, Any]:
        image = np.zeros((self.SIZE, self.SIZE, 1), np.uint8)
        image[self.goal] = 255
        obs = {"image": image, "place": np.array(self.place, np.float32) / 2 - 1}
        return dict(reversed(obs.items())) if self.is_reversed else obs


class Echo(gym.Env[Any, Any]):
    """Three numbers that it observes are to be given back: each that is right pays 1/3; an episode has 10 steps, the best return is 10.

    The action is a MultiDiscrete([2, 3, 4]), or with `env_config["actions"] == "tuple"` a Tuple of a Discrete(2) and a Dict of a
    Discrete(3) that starts at 5 and a MultiDiscrete([4]).
    """

    SIZES = (2, 3, 4)

    def __init__(self, env_config: Mapping[str, Any] | None = None) -> None:
        self.observation_space = gym.spaces.MultiDiscrete(self.SIZES)
        self.has_tuples = (env_config or {}).get("actions") == "tuple"
        self.action_space: gym.Space[Any] = gym.spaces.MultiDiscrete(self.SIZES)
        if self.has_tuples:
            inner = gym.spaces.Dict({"z": gym.spaces.Discrete(3, start=5), "a": gym.spaces.MultiDiscrete([4])})
            self.action_space = gym.spaces.Tuple([gym.spaces.Discrete(2), inner])
        self.t = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self._obs(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.action_space.contains(action):
            raise ValueError(f"action {action!r}: expected one in {self.action_space}")
        said = [action[0], action[1]["z"] - 5, action[1]["a"][0]] if self.has_tuples else action
        right = int((np.array(said) == self.wanted).sum())
        self.t += 1
        return self._obs(), right / 3, False, self.t == 10, {}

    def _obs(self) -> Any:
        self.wanted = self.np_random.integers(self.SIZES)
        return self.wanted
