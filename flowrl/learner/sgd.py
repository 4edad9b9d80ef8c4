"""Stochastic gradient descent on a policy's loss: whole batches in epochs, or gradients that travel.

Statistics come back as values that merge (`Mean`, `ExplainedVariance`), so that those of several minibatches, batches or workers
become what one would have had.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch

from flowrl.batch import Array, SampleBatch
from flowrl.metrics import Mean
from flowrl.policy.networks import one_thread
from flowrl.policy.normalizer import Moments
from flowrl.policy.policy import Policy

__all__ = ["Gradients", "apply_gradients", "compute_gradients", "explained_variance", "learn_on_batch"]

Gradients: TypeAlias = dict[str, Array]

SMALL_NETWORK = 50_000
"""Parameters below which one thread is as fast as two: an actor and a critic of 64 x 64 have 9,000, of 256 x 256 twice 70,000."""


def learn_on_batch(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: SampleBatch,
    rng: np.random.Generator,
    num_sgd_iter: int = 1,
    sgd_minibatch_size: int = 0,
    grad_clip: float | None = None,
) -> dict[str, Any]:
    """Change the policy by `num_sgd_iter` epochs over `batch`, each in freshly shuffled minibatches (size 0: the whole batch).

    The statistics are those of the policy's loss, as means over rows and epochs, and `grad_norm` (before clipping), a mean over
    updates. Where the policy finds it enough (`is_enough`), the batch is left before that update. Small networks learn in one
    thread.

    Where the batch holds `vf_preds` and `value_targets`, also their `explained_variance` before the first update.
    """
    if not batch.count:
        raise ValueError("a batch without rows: there is nothing to learn from, give 1 row or more")
    stats: dict[str, Mean] = {}
    epoch: dict[str, Mean] = {}
    with one_thread() if _is_small(policy) else nullcontext():
        for _ in range(num_sgd_iter):
            epoch, is_whole = _epoch(policy, optimizer, batch.minibatches(sgd_minibatch_size, rng), grad_clip)
            for name, mean in epoch.items():
                stats.setdefault(name, Mean()).merge(mean)
            if not is_whole:
                break
    policy.learned(epoch | policy.moments_of(batch))
    return stats | _fit_of_values(batch)


def _epoch(
    policy: Policy, optimizer: torch.optim.Optimizer, minibatches: Iterable[SampleBatch], grad_clip: float | None
) -> tuple[dict[str, Mean], bool]:
    """One pass: its statistics, and whether it went to its end."""
    stats: dict[str, Mean] = {}
    for minibatch in minibatches:
        means = _backward(policy, minibatch)
        _merge(stats, means, minibatch.count)
        if policy.is_enough(means):
            return stats, False
        norm = _clip(policy, grad_clip)
        optimizer.step()
        _merge(stats, {"grad_norm": norm}, 1)
    return stats, True


def _is_small(policy: Policy) -> bool:
    """Whether a second thread of torch would gain nothing, and lose much where workers keep the cores busy."""
    return sum(parameter.numel() for parameter in policy.named_parameters().values()) < SMALL_NETWORK


def compute_gradients(policy: Policy, batch: SampleBatch) -> tuple[Gradients, dict[str, Any]]:
    """The gradients of the loss over `batch`, and its statistics; the policy stays as it is.

    The statistics are values that merge; with them travel the policy's `moments_of` the batch, for `apply_gradients`. In one
    thread of torch, so that they do not depend on the process that a worker lives in.
    """
    with one_thread():
        means = _backward(policy, batch)
    gradients = {name: _gradient(parameter).numpy().copy() for name, parameter in policy.named_parameters().items()}
    stats: dict[str, Mean] = {}
    _merge(stats, means, batch.count)
    return gradients, stats | _fit_of_values(batch) | policy.moments_of(batch)


def apply_gradients(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    gradients: Mapping[str, Array],
    grad_clip: float | None = None,
    info: Mapping[str, Any] | None = None,
) -> dict[str, Mean]:
    """Change the policy by one step of the optimizer along `gradients`; says their `grad_norm` before clipping.

    `info` is what `compute_gradients` gave with them: statistics and moments that the policy adapts by.
    """
    parameters = policy.named_parameters()
    if gradients.keys() != parameters.keys():
        raise ValueError(
            f"gradients of {sorted(gradients)}: this policy trains {sorted(parameters)}, give those of a policy of the same config"
        )
    for name, parameter in parameters.items():
        parameter.grad = torch.tensor(gradients[name])
    norm = _clip(policy, grad_clip)
    optimizer.step()
    if info is not None:
        policy.learned(info)
    return {"grad_norm": Mean.of(norm)}


def _backward(policy: Policy, batch: SampleBatch) -> dict[str, float]:
    for parameter in policy.named_parameters().values():
        parameter.grad = None
    loss, means = _checked(policy, policy.loss(batch))
    loss.backward()  # type: ignore[no-untyped-call]
    return means


def _checked(policy: Policy, answer: Any) -> tuple[torch.Tensor, dict[str, float]]:
    """What `loss` gave, if it is what is asked of it."""
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], torch.Tensor) and isinstance(answer[1], Mapping):
        loss, stats = answer
        if not loss.ndim and loss.requires_grad:
            return loss, {name: value.item() if isinstance(value, torch.Tensor) else value for name, value in stats.items()}
        answer = f"a tensor of shape {list(loss.shape)}{'' if loss.requires_grad else ' without a graph'}"
    gave = answer if isinstance(answer, str) else f"{type(answer).__name__}"
    raise TypeError(f"{type(policy).__name__}.loss gave {gave}: expected (a scalar tensor with its graph, {{name: number}})")


def _clip(policy: Policy, grad_clip: float | None) -> float:
    """The gradient's global norm, before it is cut to `grad_clip`."""
    limit = float("inf") if grad_clip is None else grad_clip
    norm = float(torch.nn.utils.clip_grad_norm_(policy.named_parameters().values(), limit))
    if not math.isfinite(norm):
        raise FloatingPointError(
            f"the gradient's norm is {norm}, so this update was not made: look for a NaN or an infinity in the loss, or in the batch "
            "it is made of; a lower learning rate, or grad_clip, where it grew to that"
        )
    return norm


def _gradient(parameter: torch.nn.Parameter) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _merge(stats: dict[str, Mean], means: Mapping[str, float], count: int) -> None:
    for name, value in means.items():
        stats.setdefault(name, Mean()).merge(Mean.of(float(value), count))


@dataclass
class ExplainedVariance:
    """The `explained_variance` of all rows that were merged, by the moments of targets and of errors."""

    targets: Moments
    errors: Moments

    @property
    def value(self) -> float:
        """1 - Var(errors) / Var(targets); 0 where the targets do not vary."""
        variance = float(self.targets.deviations)
        return 1.0 - float(self.errors.deviations) / variance if variance else 0.0

    def merge(self, other: ExplainedVariance) -> None:
        """Add the other's rows."""
        for own, more in ((self.targets, other.targets), (self.errors, other.errors)):
            own.merge(more)

    def __copy__(self) -> ExplainedVariance:
        return ExplainedVariance(copy.copy(self.targets), copy.copy(self.errors))


def explained_variance(predictions: Array, targets: Array) -> float:
    """How much of the variance of `targets` `[B]` the predictions explain: 1 = all, 0 = as much as a constant, below 0 = worse.

        1 - Var(targets - predictions) / Var(targets)

    Where the targets do not vary (one row, say) there is nothing to explain: 0.
    """
    return ExplainedVariance(Moments.of(targets), Moments.of(targets - predictions)).value


def _fit_of_values(batch: SampleBatch) -> dict[str, Any]:
    if "vf_preds" not in batch or "value_targets" not in batch:
        return {}
    targets = batch["value_targets"]
    return {"explained_variance": ExplainedVariance(Moments.of(targets), Moments.of(targets - batch["vf_preds"]))}
