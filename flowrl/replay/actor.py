"""A shard of replay in an actor: what rollouts are stored in, and batches come out of."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flowrl.batch import Array, SampleBatch
from flowrl.errors import ConfigError
from flowrl.iter.shard import ParallelIteratorWorker
from flowrl.iter.sources import Polled
from flowrl.replay.buffers import PrioritizedReplayBuffer, ReplayBuffer

__all__ = ["ReplayActor"]


class ReplayActor(ParallelIteratorWorker):
    """One of `num_shards` parts of a replay memory, and the source of the batches that it replays.

    >>> actor = ReplayActor(1, learning_starts=2, buffer_size=100, train_batch_size=32, alpha=0.6, beta=0.4, eps=1e-6)
    >>> actor.add_batch(SampleBatch({"obs": np.zeros((1, 4), np.float32)}))
    >>> actor.replay() is None  # one row of the two that it starts at
    True

    `learning_starts` and `buffer_size` count env steps of all shards together, of which each shard holds its part; `train_batch_size`
    is what each replayed batch has. Rows are drawn in proportion to priority ** `alpha`, where a priority is |TD error| + `eps`, and
    carry importance `weights` with exponent `beta` (Schaul et al., Prioritized Experience Replay, 2016); `alpha=None`: all alike, without
    weights. A row comes in with its own priority where the batch has a column `priorities` (Horgan et al., 2018), else with the highest
    one seen. `seed` and `shard` are of its random draws.

    As a source (`Replay(actors=...)`) it gives nothing before it holds its part of `learning_starts`, and is not asked again before
    something has reached it.
    """

    def __init__(
        self,
        num_shards: int,
        learning_starts: int,
        buffer_size: int,
        train_batch_size: int,
        alpha: float | None,
        beta: float,
        eps: float,
        seed: int = 0,
        shard: int = 0,
    ) -> None:
        sizes = {"num_shards": num_shards, "buffer_size": buffer_size, "train_batch_size": train_batch_size}
        for name, size in {**sizes, "learning_starts": learning_starts}.items():
            if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < (name in sizes):
                raise ConfigError(f"{name}={size!r}: expected a whole number, {int(name in sizes)} or more")
        if buffer_size < num_shards:
            raise ConfigError(f"buffer_size={buffer_size} rows in num_shards={num_shards} shards: give each shard 1 row or more")
        if not 0 < eps < math.inf:
            raise ConfigError(f"eps={eps}: a priority is |TD error| + eps, and has to be above 0 and finite")
        if not 0 <= beta <= 1:
            raise ConfigError(f"beta={beta}: expected 0 (no correction) to 1 (in full), 0.4 say")
        if learning_starts > buffer_size:
            raise ConfigError(f"learning_starts={learning_starts} is above buffer_size={buffer_size}: replay would never start")
        capacity = buffer_size // num_shards
        self.learning_starts = min(-(-learning_starts // num_shards), capacity)
        self.train_batch_size, self.eps = train_batch_size, eps
        seeds = np.random.SeedSequence(seed, spawn_key=(shard,))
        self.buffer: ReplayBuffer | PrioritizedReplayBuffer = (
            ReplayBuffer(capacity, seeds) if alpha is None else PrioritizedReplayBuffer(capacity, alpha, beta, seeds)
        )
        super().__init__(Polled(self.replay, self._what_it_waits_for), repeat=False)

    @staticmethod
    def args_of_shard(args: Sequence[Any], index: int) -> tuple[Any, ...]:
        """What `create_colocated` makes shard `index` with: draws of its own."""
        return (*args, 0, index) if len(args) == 7 else (*args, index) if len(args) == 8 else tuple(args)

    def add_batch(self, batch: SampleBatch) -> None:
        """Copy the rows in; the oldest ones go."""
        if isinstance(self.buffer, ReplayBuffer):
            self.buffer.add(batch)
        else:
            self.buffer.add(batch, batch.get("priorities"))

    def replay(self) -> SampleBatch | None:
        """A batch of rows with `batch_indexes`, and `weights` where they are prioritized; None before there are enough."""
        if not self._has_enough():
            return None
        return self.buffer.sample(self.train_batch_size)

    def update_priorities(self, priorities: Mapping[str, tuple[Array, Array]]) -> None:
        """Take over what a learner found: policy id -> (`batch_indexes`, TD errors), both `[B]`. A row that is gone is passed by."""
        if isinstance(self.buffer, PrioritizedReplayBuffer):
            for batch_indexes, td_errors in priorities.values():
                self.buffer.update_priorities(batch_indexes, np.abs(td_errors) + self.eps)

    def stats(self, debug: bool | None = None) -> dict[str, Any]:
        """What it holds, and what has come in and gone out."""
        return self.buffer.stats()

    def _has_enough(self) -> bool:
        return len(self.buffer) >= max(1, self.learning_starts)

    def _what_it_waits_for(self) -> str:
        return f"{max(1, self.learning_starts):,} rows, of which it has {len(self.buffer):,}"
