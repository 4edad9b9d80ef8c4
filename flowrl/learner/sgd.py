"""Stochastic gradient descent on a policy's loss: whole batches in epochs, or gradients that travel.

Statistics come back as values that merge (`Mean`, `ExplainedVariance`), so that those of several minibatches, batches or workers
become what one would have had.
"""

from __future__ import annotations

import copy
import math
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import torch

from flowrl.batch import Array, SampleBatch, minibatch_rows
from flowrl.learner.backward import LossStatistics, backward, two_kinds
from flowrl.learner.devices import Replicas
from flowrl.metrics import Mean
from flowrl.policy.networks import one_thread
from flowrl.policy.normalizer import Moments
from flowrl.policy.policy import Policy

__all__ = ["Gradients", "apply_gradients", "compute_gradients", "explained_variance", "learn_on_batch"]

Gradients: TypeAlias = dict[str, Array]

SMALL_NETWORK = 50_000
"""Parameters below which one thread is as fast as two: an actor and a critic of 64 x 64 have 9,000, of 256 x 256 twice 70,000."""
SMALL_STEP = 10_000_000
"""Parameters x rows of a minibatch below which a second thread gains a sixth at most: 256 x 256 units and 128 rows are 9 million."""


def learn_on_batch(
    policy: Policy,
    optimizer: torch.optim.Optimizer,
    batch: SampleBatch,
    rng: np.random.Generator,
    num_sgd_iter: int = 1,
    sgd_minibatch_size: int = 0,
    grad_clip: float | None = None,
    devices: Sequence[str] = (),
) -> dict[str, Any]:
    """Change the policy by `num_sgd_iter` epochs over `batch`, each in freshly shuffled minibatches (size 0: the whole batch).

    The statistics are those of the policy's loss, as means over rows and epochs, and `grad_norm` (before clipping), a mean over
    updates. Where the policy finds it enough (`is_enough`), the batch is left before that update. Small networks learn in one
    thread. With `devices`, each minibatch is split over them (`Replicas`); it is the same update.

    What the loss gives as one value a row is an array `[T]` (float32) here, in the order of the batch's rows: those of the last
    epoch that reached the row, NaN where none did (the first epoch was left).

    Where the batch holds `vf_preds` and `value_targets`, also their `explained_variance` before the first update.
    """
    if not batch.count:
        raise ValueError("a batch without rows: there is nothing to learn from, give 1 row or more")
    parameters = list(policy.named_parameters().values())
    descent = _Descent(
        policy,
        optimizer,
        parameters,
        grad_clip,
        Replicas(policy, devices).backward if devices else partial(backward, policy, parameters),
    )
    stats: dict[str, Mean] = {}
    epoch: dict[str, Mean] = {}
    with one_thread() if _is_small(parameters, min(sgd_minibatch_size or batch.count, batch.count)) else nullcontext():
        for _ in range(num_sgd_iter):
            epoch, is_whole = descent.epoch(batch, minibatch_rows(batch.count, sgd_minibatch_size, rng))
            for name, mean in epoch.items():
                stats.setdefault(name, Mean()).merge(mean)
            if not is_whole:
                break
    policy.learned(epoch | policy.moments_of(batch))
    return stats | descent.by_row | _fit_of_values(batch)


def compute_gradients(policy: Policy, batch: SampleBatch, devices: Sequence[str] = ()) -> tuple[Gradients, dict[str, Any]]:
    """The gradients of the loss over `batch`, and its statistics; the policy stays as it is.

    The statistics are values that merge, so those with one value a row are left out; with them travel the policy's `moments_of` the
    batch, for `apply_gradients`. In one thread of torch, so that they do not depend on the process that a worker lives in.
    """
    parameters = policy.named_parameters()
    with one_thread():
        given = Replicas(policy, devices).backward(batch) if devices else backward(policy, parameters.values(), batch)
    gradients = {name: _gradient(parameter).numpy().copy() for name, parameter in parameters.items()}
    stats: dict[str, Mean] = {}
    _merge(stats, given.means, batch.count)
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
    norm = _clip(parameters.values(), grad_clip)
    _step(optimizer)
    if info is not None:
        policy.learned(info)
    return {"grad_norm": Mean.of(norm)}


@dataclass
class _Descent:
    """A policy on its way down, and the newest values of the batch's rows."""

    policy: Policy
    optimizer: torch.optim.Optimizer
    parameters: Sequence[torch.nn.Parameter]
    grad_clip: float | None
    backward: Callable[[SampleBatch], LossStatistics]
    by_row: dict[str, Array] = field(default_factory=dict)

    def epoch(self, batch: SampleBatch, parts: Iterable[Array | slice]) -> tuple[dict[str, Mean], bool]:
        """One pass over the rows of each part: its statistics, and whether it went to its end."""
        stats: dict[str, Mean] = {}
        for rows in parts:
            minibatch = batch if isinstance(rows, slice) else batch[rows]
            means, by_row = self.backward(minibatch)
            _merge(stats, means, minibatch.count)
            if by_row:
                self._keep(by_row, rows, batch.count)
            if self.policy.is_enough(means):
                return stats, False
            norm = _clip(self.parameters, self.grad_clip)
            _step(self.optimizer)
            _merge(stats, {"grad_norm": norm}, 1)
        if mixed := stats.keys() & self.by_row.keys():
            raise two_kinds(self.policy, mixed)
        return stats, True

    def _keep(self, by_row: Mapping[str, Array], rows: Array | slice, count: int) -> None:
        for name, values in by_row.items():
            if name not in self.by_row:
                self.by_row[name] = np.full(count, np.nan, np.float32)
            self.by_row[name][rows] = values


def _is_small(parameters: Iterable[torch.nn.Parameter], num_rows: int) -> bool:
    """Whether a second thread of torch would gain little, and lose much where workers keep the cores busy."""
    size = sum(parameter.numel() for parameter in parameters)
    return size < SMALL_NETWORK or size * num_rows < SMALL_STEP


def _clip(parameters: Collection[torch.nn.Parameter], grad_clip: float | None) -> float:
    """The gradient's global norm, before it is cut to `grad_clip`."""
    norms = [torch.linalg.vector_norm(parameter.grad) for parameter in parameters if parameter.grad is not None]
    total = torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.zeros(())
    norm = total.item()
    if not math.isfinite(norm):
        raise FloatingPointError(
            f"the gradient's norm is {norm}, so this update was not made: look for a NaN or an infinity in the loss, or in the batch "
            "it is made of; a lower learning rate, or grad_clip, where it grew to that"
        )
    if grad_clip is not None and norm + 1e-6 > grad_clip:
        torch.nn.utils.clip_grads_with_norm_(parameters, grad_clip, total)
    return norm


def _step(optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimizer, in which numbers too small for their exponent (float32: below 1.2e-38) count as 0.

    Where a gradient stays 0, as that of a unit which relu shuts, Adam's mean of it is multiplied by 0.9 until rounding leaves the
    smallest numbers as they are; a processor takes long for each of them, and a step of Adam five times as long for all.
    """
    flushed = sys.float_info.min / 2 == 0.0  # somebody's setting, to be left as it is
    torch.set_flush_denormal(True)
    try:
        optimizer.step()
    finally:
        torch.set_flush_denormal(flushed)


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
