"""The small protocol behind an own loss: what samplers and learners ask of a policy, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch

from flowrl.batch import Array, SampleBatch

__all__ = ["Policy"]


class Policy(Protocol):
    """Chooses actions, completes fragments, and says what there is to minimise.

    A worker has one policy of its own. Its random choices come from generators that it owns, seeded once; sampling gives
    the same bits whatever the number of threads of the process.
    """

    def act(self, obs: Array, explore: bool) -> tuple[Array, dict[str, Array]]:
        """Actions `[N]` for observations `[N, ...]`, as the envs take them, and the columns to store beside them (`[N, ...]` each).

        `obs` is overwritten by the next step: copy what you keep.
        """

    def postprocess(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with the columns that need all of it (advantages, say). Rows of an env are in order and belong together."""

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The scalar to minimise, with its graph, and statistics that are means over the rows of `batch`."""

    def named_parameters(self) -> Mapping[str, torch.nn.Parameter]:
        """What an optimizer trains, changed in place by it."""

    def update_target(self) -> None:
        """Copy what is trained to the target network; nothing without one."""

    def get_exploration_info(self) -> dict[str, float]:
        """What a report shows about exploration; empty where there is nothing to show."""

    def get_weights(self) -> dict[str, Array]:
        """A copy of all weights, by name."""

    def set_weights(self, weights: Mapping[str, Array]) -> None:
        """Take over all weights, by name, copied."""
