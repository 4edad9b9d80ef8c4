"""Choosing actions: a policy's `act` beside the same network and distribution written by hand in torch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical, Normal

from benchmarks.pairs import Row, compare
from flowrl.algorithms.ppo import PPOConfig
from flowrl.policy import Moments

OBS = gym.spaces.Box(-1, 1, (8,), np.float32)
CALLS = 300
SPACES: dict[str, gym.Space[Any]] = {
    "Discrete(4)": gym.spaces.Discrete(4),
    "MultiDiscrete([3, 4])": gym.spaces.MultiDiscrete([3, 4]),
    "Box(2)": gym.spaces.Box(-1, 1, (2,), np.float32),
}


class OwnNet(nn.Module):
    """Two hidden layers that actor and critic share."""

    def __init__(self, observation_space: gym.Space[Any], num_outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())
        self.policy, self.value = nn.Linear(64, num_outputs), nn.Linear(64, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.body(obs)
        return self.policy(hidden), self.value(hidden).squeeze(1)


def by_hand(network: nn.Module, space: gym.Space[Any], obs: np.ndarray[Any, Any]) -> Callable[[], int]:
    """The forward pass, a draw, its log-probability and the value, as single-file implementations write it."""
    log_std = torch.zeros(2)

    @torch.no_grad()
    def act() -> None:
        outputs, values = network(torch.as_tensor(obs))
        if isinstance(space, gym.spaces.Box):
            normal = Normal(outputs, log_std.exp())
            drawn = normal.sample()
            normal.log_prob(drawn).sum(1).numpy()
            np.clip(drawn.numpy(), space.low, space.high)
        else:
            sizes = [4] if isinstance(space, gym.spaces.Discrete) else [3, 4]
            parts = [Categorical(logits=part) for part in outputs.split(sizes, dim=1)]
            each = [part.sample() for part in parts]
            torch.stack([part.log_prob(own) for part, own in zip(parts, each)]).sum(0).numpy()
            torch.stack(each, dim=1).numpy()
        values.numpy()

    return lambda: _times(act)


def _times(act: Callable[[], Any]) -> int:
    for _ in range(CALLS):
        act()
    return CALLS


def run(num_pairs: int = 15) -> list[Row]:
    """Every kind of action at 1, 8 and 64 envs; then observations that are normalised, and a model of the user's own."""
    torch.set_num_threads(1)
    rows = []
    variants: list[tuple[str, gym.Space[Any], dict[str, Any]]] = [(name, space, {}) for name, space in SPACES.items()]
    variants += [
        ("Box(2), normalised", SPACES["Box(2)"], {"observation_filter": "MeanStdFilter"}),
        ("Box(2), own model", SPACES["Box(2)"], {"model": OwnNet}),
    ]
    for name, space, settings in variants:
        policy = PPOConfig(**settings).make_policy(OBS, space, np.random.SeedSequence(0))
        if policy.obs_filter is not None:
            policy.obs_filter.update(Moments.of(np.random.default_rng(0).standard_normal((100, 8))))
        for num_envs in (1, 8, 64):
            obs = np.random.default_rng(0).uniform(-1, 1, (num_envs, 8)).astype(np.float32)
            rows += compare(
                f"act, {name}, {num_envs} envs",
                lambda policy=policy, obs=obs: _times(lambda: policy.act(obs, True)),  # type: ignore[misc]
                {"torch by hand": (by_hand(policy.network, space, obs), 0.9 if "own" in name else 1.5)},
                num_pairs,
            )
    return rows
