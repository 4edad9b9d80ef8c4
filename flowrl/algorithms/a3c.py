"""A3C: workers compute gradients of their own rollouts; each is applied as it comes, and its worker goes on with the newest weights.

Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016.
"""

from __future__ import annotations

from typing import Any

from flowrl.algorithms.a2c import A2CConfig
from flowrl.iter.iterators import LocalIterator
from flowrl.ops.reporting import StandardMetricsReporting
from flowrl.ops.rollout import AsyncGradients
from flowrl.ops.train import ApplyGradients
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["A3CConfig", "execution_plan"]


class A3CConfig(A2CConfig):
    """Settings of A3C, whose policy and loss are A2C's: a gradient is that of one fragment, `num_envs * rollout_fragment_length` rows."""

    num_workers: int = 2

    def make_plan(self, workers: WorkerSet) -> LocalIterator[dict[str, Any]]:
        """A3C's plan."""
        return execution_plan(workers, self)


def execution_plan(workers: WorkerSet, config: A3CConfig) -> LocalIterator[dict[str, Any]]:
    """A3C: each gradient is applied as it comes, and the worker that made it gets the new weights before it makes its next one."""
    gradients: LocalIterator[Any] = AsyncGradients(workers)
    if workers.remote_workers():
        gradients = gradients.zip_with_source_actor()
    return StandardMetricsReporting(gradients.for_each(ApplyGradients(workers, update_all=False)), workers, config)
