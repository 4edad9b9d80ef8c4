"""The gradient of a policy's loss over one minibatch, and what the loss says beside it. Nothing changes a weight here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from flowrl.batch import Array, SampleBatch
from flowrl.policy.policy import Policy

__all__ = ["LossStatistics", "backward", "launch", "read", "two_kinds"]

# B rows of a minibatch


class LossStatistics(NamedTuple):
    """What a loss gave beside the scalar."""

    means: dict[str, float]
    """Numbers: means over the minibatch's rows."""
    by_row: dict[str, Array]
    """Values `[B]` (float32) of the minibatch's rows, in their order; they may lie in the policy's own memory: copy what you keep."""


def backward(policy: Policy, parameters: Iterable[torch.nn.Parameter], batch: SampleBatch) -> LossStatistics:
    """Leave the gradient of the loss over `batch` in the `grad` of the policy's `parameters`; says the loss's statistics."""
    return read(policy, launch(policy, parameters, batch), batch.count)


def launch(policy: Policy, parameters: Iterable[torch.nn.Parameter], batch: SampleBatch) -> Mapping[str, Any]:
    """As `backward`, with the statistics as the loss gave them: to read them is to wait for the device that they are on."""
    for parameter in parameters:
        parameter.grad = None
    return policy.backward(batch)


def read(policy: Policy, stats: Mapping[str, Any], num_rows: int) -> LossStatistics:
    """The statistics sorted: numbers, and tensors or arrays of one value a row."""
    means: dict[str, float] = {}
    by_row: dict[str, Array] = {}
    for name, value in stats.items():
        if not isinstance(value, torch.Tensor | np.ndarray):
            means[name] = value
        elif not value.ndim:
            means[name] = value.item()
        elif value.shape == (num_rows,):
            by_row[name] = value.float().numpy(force=True) if isinstance(value, torch.Tensor) else value.astype(np.float32)
        else:
            raise TypeError(
                f"{type(policy).__name__}.loss gave the statistic {name!r} in shape {list(value.shape)}: expected a number, or one value "
                f"a row, in shape [{num_rows}]; take its mean, or squeeze it"
            )
    return LossStatistics(means, by_row)


def two_kinds(policy: Policy, names: Iterable[str]) -> TypeError:
    """The error of a statistic that is one value a row for some minibatches, and a number for others."""
    return TypeError(
        f"{type(policy).__name__}.loss gave {', '.join(sorted(names))} with one value a row for some minibatches and as a number for "
        "others: expected one kind; a squeeze() makes a number of what belongs to a single row, name the axis that it shall drop"
    )
