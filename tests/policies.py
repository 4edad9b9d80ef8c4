"""Policies whose weights can be read at a glance."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import flowrl as fl
from flowrl.policy.policy import Policy

NUM_LAYERS, NUM_WEIGHTS = 8, 200


class Constant(Policy):
    """Its weights are all one number, one more after each learner step; the loss may sleep, or die."""

    def __init__(self, config, observation_space, action_space, seed):
        self.network = nn.ModuleList([nn.Linear(NUM_WEIGHTS, 1, bias=False) for _ in range(NUM_LAYERS)])
        self.target = 0.0
        with torch.no_grad():
            for parameter in self.network.parameters():
                parameter.fill_(0.0)

    def act(self, obs, explore):
        return np.zeros(len(obs), np.int64), {}

    def loss(self, batch):
        if "poison" in batch:
            raise ArithmeticError("a batch that cannot be learned from")
        total = sum(parameter.sum() for parameter in self.network.parameters())
        return total, {"loss": total.detach(), "td_errors": torch.tensor(batch["rewards"])}

    def make_optimizer(self, lr):
        return torch.optim.SGD(self.named_parameters().values(), lr=1.0)  # the gradient is 1 everywhere: each step subtracts 1

    def update_target(self):
        self.target = float(next(iter(self.network.parameters()))[0, 0].detach())


class ConstantConfig(fl.AlgorithmConfig):
    min_steps_per_reporting: int = 0

    def make_policy(self, observation_space, action_space, seed):
        return Constant(self, observation_space, action_space, seed)
