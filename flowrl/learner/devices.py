"""Learning on several devices: each takes its rows of a minibatch, and their gradients become one.

The successor of RLlib's `TFMultiGPUSupport`, where a policy built its loss anew for each GPU: here every device has a copy of the
policy, whose `loss` is called as it is. The optimizer stays with the policy's own parameters, and so do clipping, `learned` and
`is_enough`; the copies take over the weights before each minibatch, and are gone after the batch.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError
from flowrl.learner.backward import LossStatistics, launch, read, two_kinds
from flowrl.metrics import Mean
from flowrl.policy.policy import Policy

__all__ = ["Replicas", "checked_devices"]


class Replicas:
    """A policy's copies, one a device, which give the gradient that the policy itself would have given.

        g = sum_i n_i g_i / N

    since each loss is a mean over its n_i of the N rows. A minibatch is cut into parts in the order of its rows, whose sizes differ
    by at most one; of fewer rows than devices, each of the first devices takes one.

    Tensors that a loss makes (`torch.tensor`, `torch.as_tensor`, `torch.zeros`; `torch.from_numpy` is none of them) are on the
    copy's device, as all tensors of the policy are; its numpy arrays stay what they are. What a loss changes of its policy is lost:
    noise of its own has to come from torch's generator.

    The devices are given their work one after the other. A GPU works on while the next one is given its own, until somebody waits
    for it: losses that give statistics as tensors, without `.item()`, leave that to the end of the minibatch.
    """

    def __init__(self, policy: Policy, devices: Sequence[str]) -> None:
        self.policy = policy
        self.parameters = policy.named_parameters()
        self.copies = [_Replica(policy, device) for device in devices]

    def backward(self, batch: SampleBatch) -> LossStatistics:
        """Leave the gradient of the loss over `batch` in the `grad` of the policy's own parameters; says the loss's statistics."""
        count = batch.count
        num_parts = min(len(self.copies), count)
        bounds = [part * count // num_parts for part in range(num_parts + 1)]
        parts = [batch[start:end] for start, end in itertools.pairwise(bounds)]
        copies = self.copies[:num_parts]
        given = [replica.launch(self.parameters, part) for replica, part in zip(copies, parts)]
        for name, parameter in self.parameters.items():
            gradients = [(replica.parameters[name].grad, part.count / count) for replica, part in zip(copies, parts)]
            parameter.grad = _average(parameter, gradients)
        return self._merged([(read(self.policy, stats, part.count), part.count) for stats, part in zip(given, parts)])

    def _merged(self, parts: Sequence[tuple[LossStatistics, int]]) -> LossStatistics:
        means: dict[str, Mean] = {}
        for stats, count in parts:
            for name, value in stats.means.items():
                means.setdefault(name, Mean()).merge(Mean.of(float(value), count))
        names = {name: None for stats, _ in parts for name in stats.by_row}
        if mixed := means.keys() & names.keys():
            raise two_kinds(self.policy, mixed)
        by_row = {name: np.concatenate([stats.by_row[name] for stats, _ in parts]) for name in names}
        return LossStatistics({name: mean.value for name, mean in means.items()}, by_row)


class _Replica:
    """One copy: its tensors, wherever the policy keeps them (networks, targets, a distribution's parameters), are on its device."""

    def __init__(self, policy: Policy, device: str) -> None:
        self.device = _device(device)
        made: dict[int, Any] = {}
        self.policy = copy.deepcopy(policy, made)
        with self.device:
            for tensor in made.values():
                if isinstance(tensor, torch.Tensor):
                    tensor.data = torch.as_tensor(tensor.data)
        self.parameters = self.policy.named_parameters()

    def launch(self, weights: Mapping[str, torch.nn.Parameter], batch: SampleBatch) -> Mapping[str, Any]:
        """Take over the weights, and find the gradient of the loss over `batch`; the statistics as the loss gave them."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(weights[name])
        with self.device:
            return launch(self.policy, self.parameters.values(), batch)


def checked_devices(names: Sequence[str]) -> tuple[str, ...]:
    """The names, if torch can work on each of them here; else ConfigError."""
    for name in names:
        _device(name)
    return tuple(names)


def _device(name: str) -> torch.device:
    """The device of this name, for `with`: what torch makes there is on it. Nothing else in flowrl asks torch for a device."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(
            f'devices: torch cannot work on {name!r} here ({reason:.200}). Expected devices of this machine, ("cuda:0", "cuda:1") '
            "say: name those that it has, or none, to learn where the policy is"
        ) from error
    return device


def _average(like: torch.Tensor, weighted: Sequence[tuple[torch.Tensor | None, float]]) -> torch.Tensor | None:
    """The weighted sum of gradients from other devices; None where no loss depended on the parameter."""
    present = [(gradient, weight) for gradient, weight in weighted if gradient is not None]
    if not present:
        return None
    total = torch.zeros_like(like)
    for gradient, weight in present:
        total.add_(torch.empty_like(like).copy_(gradient), alpha=weight)
    return total
