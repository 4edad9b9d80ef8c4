"""A replay memory in the driver, for plans that learn where they replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flowrl.batch import Array, SampleBatch
from flowrl.iter.handles import Handle
from flowrl.replay.actor import ReplayActor

__all__ = ["LocalReplayBuffer"]


class LocalReplayBuffer(Handle):
    """A replay memory in the driver: `StoreToReplayBuffer`, `Replay` and `UpdatePriorities` take it as `local_buffer`.

    >>> buffer = LocalReplayBuffer(learning_starts=1000, buffer_size=50_000, train_batch_size=32)
    >>> with buffer.open():
    ...     buffer.stats()["num_rows"]
    0

    Its settings are those of one `ReplayActor`: without `alpha` all rows are drawn alike, and priorities are neither kept nor needed;
    `config.replay_settings` has them all. A run that opens it begins with it empty; what the user opened keeps its rows
    from plan to plan.
    """

    def __init__(
        self,
        learning_starts: int,
        buffer_size: int,
        train_batch_size: int,
        alpha: float | None = None,
        beta: float = 0.4,
        eps: float = 1e-6,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.settings = (1, learning_starts, buffer_size, train_batch_size, alpha, beta, eps, seed)
        ReplayActor(*self.settings)  # refuses what does not fit, and holds no memory before its first row

    def start_live(self, engine: Any) -> ReplayActor:
        return ReplayActor(*self.settings)

    def state_elsewhere(self) -> dict[str, Any]:
        return {**super().state_elsewhere(), "settings": self.settings}

    def add_batch(self, batch: SampleBatch) -> None:
        """Copy the rows in; the oldest ones go."""
        self.live.add_batch(batch)

    def replay(self) -> SampleBatch | None:
        """A batch of rows; None before there are enough."""
        batch: SampleBatch | None = self.live.replay()
        return batch

    def update_priorities(self, priorities: Mapping[str, tuple[Array, Array]]) -> None:
        """Take over what a learner found: policy id -> (`batch_indexes`, TD errors)."""
        self.live.update_priorities(priorities)

    def stats(self, debug: bool | None = None) -> dict[str, Any]:
        """What it holds, and what has come in and gone out."""
        stats: dict[str, Any] = self.live.stats(debug)
        return stats

    def what_it_waits_for(self) -> str:
        """What is missing before it replays."""
        text: str = self.live._what_it_waits_for()
        return text

    def __repr__(self) -> str:
        _, _, buffer_size, train_batch_size, *_ = self.settings
        return f"LocalReplayBuffer(buffer_size={buffer_size}, train_batch_size={train_batch_size})"
