"""Replay buffers: rows in, batches of rows drawn at random out, uniformly or by priority."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from flowrl.batch import Array, SampleBatch
from flowrl.replay.ring import Ring
from flowrl.replay.sum_tree import SumTree

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]


class _Buffer:
    """What both buffers are: the last `capacity` rows, a stream of random numbers, and the columns that a sample gets on top."""

    _sample_columns = frozenset({"batch_indexes"})

    def __init__(self, capacity: int, seed: int | np.random.SeedSequence) -> None:
        self._ring = Ring(capacity)
        self._rng = np.random.default_rng(seed)
        self.num_sampled = 0

    def __len__(self) -> int:
        """Rows that are there now."""
        return len(self._ring)

    @property
    def capacity(self) -> int:
        """The most rows (env steps) that are kept."""
        return self._ring.capacity

    @property
    def num_added(self) -> int:
        """Rows added so far, those that are gone included: the number that the next row will get."""
        return self._ring.num_added

    def stats(self) -> dict[str, Any]:
        """Counts: `num_rows, capacity, num_added, num_sampled, nbytes`."""
        return {
            "num_rows": len(self),
            "capacity": self.capacity,
            "num_added": self.num_added,
            "num_sampled": self.num_sampled,
            "nbytes": self._ring.nbytes,
        }

    def _store(self, batch: SampleBatch) -> list[tuple[slice, slice]]:
        if taken := self._sample_columns & batch.keys():
            raise ValueError(
                f"the batch has the columns {sorted(taken)}, which a sample from this buffer gets on top: "
                "add batches as they were sampled from envs, or under other names"
            )
        return self._ring.add(batch)

    def _check_request(self, num_rows: int) -> None:
        if num_rows < 1:
            raise ValueError(f"a sample of {num_rows} rows: ask for 1 row or more")
        if not len(self):
            raise ValueError(f"a sample of {num_rows} rows from an empty buffer: add rows first, learning_starts many say")

    def _sampled(self, slots: Array, **columns: Array) -> SampleBatch:
        self.num_sampled += len(slots)
        return SampleBatch({**self._ring.take(slots), "batch_indexes": self._ring.numbers(slots), **columns})


class ReplayBuffer(_Buffer):
    """The last `capacity` rows, drawn uniformly and with replacement.

    >>> buffer = ReplayBuffer(capacity=1000, seed=0)
    >>> buffer.add(SampleBatch({"obs": np.zeros((5, 2), np.float32), "rewards": np.arange(5.0)}))
    >>> buffer.sample(32)
    SampleBatch(32 rows: obs float32[2], rewards float64, batch_indexes int64)
    >>> len(buffer), buffer.num_added, buffer.num_sampled
    (5, 5, 32)

    The first batch settles the columns, their dtypes and the shapes of a row, and takes the memory for `capacity` rows; rows are
    copied in and out, never cast. The oldest row goes first, one by one. `batch_indexes` are the rows' numbers, in order of adding.
    Same seed, same adds, same samples.
    """

    def __init__(self, capacity: int, seed: int | np.random.SeedSequence = 0) -> None:
        super().__init__(capacity, seed)

    def add(self, batch: SampleBatch) -> None:
        """Keep copies of all rows, of the last `capacity` where there are more."""
        self._store(batch)

    def sample(self, num_rows: int) -> SampleBatch:
        """So many rows in a batch of its own, without an origin, with their `batch_indexes` (int64 `[num_rows]`)."""
        self._check_request(num_rows)
        return self._sampled(self._rng.integers(0, len(self), num_rows))


class PrioritizedReplayBuffer(_Buffer):
    """The last `capacity` rows, drawn in proportion to their priorities, with the weights that correct for it.

    >>> buffer = PrioritizedReplayBuffer(capacity=1000, alpha=1.0, beta=0.5)
    >>> buffer.add(SampleBatch({"t": np.arange(4)}), priorities=np.array([1.0, 2.0, 3.0, 4.0]))
    >>> batch = buffer.sample(10)
    >>> batch["t"].tolist()
    [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]
    >>> [f"{weight:.4f}" for weight in batch["weights"][[0, 1, 3, 6]]]
    ['1.0000', '0.7071', '0.5774', '0.5000']
    >>> buffer.update_priorities(batch["batch_indexes"], np.full(10, 0.5))
    10

    With N rows of priorities p_i > 0:

        P(i) = p_i^alpha / sum_k p_k^alpha
        w_i  = (N * P(i))^-beta / max_j (N * P(j))^-beta = (min_j p_j^alpha / p_i^alpha)^beta

    (Schaul et al., Prioritized Experience Replay, 2016, eq. 1 and section 3.4.) The maximum is over the whole buffer, so a row's
    weight does not depend on which others were drawn with it, and is never above 1. A sample of k rows has one from each k-th of the
    total, as the paper's appendix B.2.1 has it, so its rows are in the order of their slots. We differ in that a priority is taken as it
    is given (the paper adds epsilon to an absolute TD error), and beta stays where it is put: set `buffer.beta` to anneal it.
    """

    _sample_columns = frozenset({"batch_indexes", "weights"})

    def __init__(self, capacity: int, alpha: float = 0.6, beta: float = 0.4, seed: int | np.random.SeedSequence = 0) -> None:
        super().__init__(capacity, seed)
        for name, exponent in (("alpha", alpha), ("beta", beta)):
            if not 0 <= exponent <= 1:
                raise ValueError(f"{name}={exponent}: expected 0 (none at all) to 1 (in full), {0.6 if name == 'alpha' else 0.4} say")
        self.alpha = alpha
        self.beta = beta
        self.num_updated_priorities = 0
        self.num_stale_priorities = 0
        self._highest: float | None = None
        self._too_high = sys.float_info.max / capacity
        self._tree = SumTree(capacity)

    def add(self, batch: SampleBatch, priorities: Array | None = None) -> None:
        """Keep copies of all rows; without `priorities` (`[T]`) each gets the highest one seen so far, 1.0 before any."""
        given = None if priorities is None else self._checked(priorities, batch.count)
        values = self.max_priority**self.alpha if given is None else given**self.alpha
        for slots, rows in self._store(batch):
            self._tree.fill(slots, values if given is None else values[rows])
        if batch.count:
            self._note(self.max_priority if given is None else float(given.max()))

    def sample(self, num_rows: int) -> SampleBatch:
        """So many rows in a batch of its own, without an origin, with `batch_indexes` (int64) and `weights` (float32), `[num_rows]`."""
        self._check_request(num_rows)
        masses = np.arange(num_rows) + self._rng.random(num_rows)
        masses *= self._tree.total / num_rows
        slots = self._tree.find(masses)
        weights = (self._tree.minimum / self._tree[slots]) ** self.beta
        return self._sampled(slots, weights=weights.astype(np.float32))

    def update_priorities(self, batch_indexes: Array, priorities: Array) -> int:
        """Give rows of a sample new priorities; how many of them were still there.

        A row that was overwritten since it was drawn is left out and counted in `num_stale_priorities`: its slot holds another row
        by now. Of several priorities for one row the last one holds. A priority that is zero, negative, NaN or infinite is a
        ValueError, and nothing changes.
        """
        numbers = np.asarray(batch_indexes)
        if numbers.ndim != 1:
            raise ValueError(f"batch_indexes of shape {numbers.shape}: give one number a row, those of a sample")
        given = self._checked(priorities, len(numbers))
        if not len(numbers):
            return 0
        lowest = self._checked_lowest(numbers)
        numbers = numbers.astype(np.int64, copy=False)
        oldest = self.num_added - len(self)
        if lowest < oldest:
            there = numbers >= oldest
            self.num_stale_priorities += len(numbers) - int(np.count_nonzero(there))
            numbers, given = numbers[there], given[there]
        if len(numbers):
            self._tree.put(numbers % self.capacity, given**self.alpha)
            self._note(float(given.max()))
        self.num_updated_priorities += len(numbers)
        return len(numbers)

    def stats(self) -> dict[str, Any]:
        """Counts: `num_rows, capacity, num_added, num_sampled, nbytes, max_priority, num_updated_priorities, num_stale_priorities`."""
        counts = super().stats()
        return counts | {
            "nbytes": counts["nbytes"] + self._tree.nbytes,
            "max_priority": self.max_priority,
            "num_updated_priorities": self.num_updated_priorities,
            "num_stale_priorities": self.num_stale_priorities,
        }

    @property
    def max_priority(self) -> float:
        """The highest priority that a row has had so far, 1.0 before any: what a new row gets."""
        return 1.0 if self._highest is None else self._highest

    def _note(self, priority: float) -> None:
        self._highest = priority if self._highest is None else max(priority, self._highest)

    def _checked(self, priorities: Array, num_rows: int) -> npt.NDArray[np.float64]:
        given = np.asarray(priorities, np.float64)
        if given.shape != (num_rows,):
            raise ValueError(f"priorities of shape {given.shape} for {num_rows} rows: give one number a row, shape ({num_rows},)")
        # The sum of a full buffer of them has to be finite too; a NaN fails any comparison.
        if num_rows and not (given.min() > 0 and given.max() < self._too_high):
            at = int(np.flatnonzero(~((given > 0) & (given < self._too_high)))[0])
            raise ValueError(
                f"priority {given[at]} of row {at}: expected a number above 0 and below {self._too_high:.3g}; "
                "a priority is |TD error| + epsilon (prioritized_replay_eps), look for a loss that is not finite where it is NaN or inf"
            )
        return given

    def _checked_lowest(self, numbers: Array) -> int:
        if numbers.dtype.kind not in "iu":
            raise ValueError(f"batch_indexes of dtype {numbers.dtype}: give those of a sample, batch['batch_indexes'] (int64)")
        lowest, highest = int(numbers.min()), int(numbers.max())
        if lowest < 0 or highest >= self.num_added:
            raise ValueError(
                f"batch_indexes from {lowest} to {highest}: rows 0 to {self.num_added - 1} were added to this buffer; "
                "send priorities back to the buffer that the sample came from"
            )
        return lowest
