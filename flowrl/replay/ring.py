"""The rows of a buffer: columns of a fixed length in which the newest row takes the place of the oldest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flowrl.batch import Array, SampleBatch

__all__ = ["Ring"]


class Ring:
    """The last `capacity` rows that were added, copied into columns that are made once.

    Rows are numbered 0, 1, 2, ... as they are added; row `number` lies in slot `number % capacity`. The first batch settles the
    columns, their dtypes and the shapes of a row.
    """

    def __init__(self, capacity: int) -> None:
        if not isinstance(capacity, int | np.integer) or isinstance(capacity, bool) or capacity < 1:
            raise ValueError(f"capacity={capacity!r}: a buffer holds whole rows (env steps), give 1 or more")
        self.capacity = int(capacity)
        self.num_added = 0
        self._columns: dict[str, Array] = {}

    def __len__(self) -> int:
        return min(self.num_added, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns hold, rows that are still to come included."""
        return sum(column.nbytes for column in self._columns.values())

    def add(self, batch: SampleBatch) -> list[tuple[slice, slice]]:
        """Copy all rows of `batch` (its last `capacity` if it has more); the places they went to, as (slots, rows of the batch)."""
        if not self._columns:
            _check_kinds(batch)
            self._columns = {name: np.empty((self.capacity, *rows.shape[1:]), rows.dtype) for name, rows in batch.items()}
        self._check(batch)
        places = list(self._places(batch.count))
        for name, column in self._columns.items():
            rows = batch[name]
            for slots, own in places:
                column[slots] = rows[own]
        self.num_added += batch.count
        return places

    def take(self, slots: Array) -> dict[str, Array]:
        """The rows in these slots, in new arrays."""
        return {name: column.take(slots, 0, mode="clip") for name, column in self._columns.items()}

    def numbers(self, slots: Array) -> Array:
        """The numbers of the rows in these slots."""
        oldest = self.num_added - len(self)
        return (slots - oldest) % self.capacity + oldest

    def _places(self, count: int) -> Iterator[tuple[slice, slice]]:
        skipped = max(0, count - self.capacity)
        start = (self.num_added + skipped) % self.capacity
        turn = min(count, skipped + self.capacity - start)
        if turn > skipped:
            yield slice(start, start + turn - skipped), slice(skipped, turn)
        if count > turn:
            yield slice(0, count - turn), slice(turn, count)

    def _check(self, batch: SampleBatch) -> None:
        if batch.keys() != self._columns.keys():
            raise ValueError(
                f"a batch with the columns {sorted(batch)}: this buffer holds {sorted(self._columns)}, settled by its first batch; "
                "add batches of one kind, or drop and add columns before"
            )
        for name, column in self._columns.items():
            rows = batch[name]
            if rows.dtype != column.dtype or rows.shape[1:] != column.shape[1:]:
                raise ValueError(
                    f"column {name!r} has rows {rows.dtype}{list(rows.shape[1:])}: this buffer holds {column.dtype}"
                    f"{list(column.shape[1:])} there, settled by its first batch; give every batch the same dtype and shape of a row"
                )


def _check_kinds(batch: SampleBatch) -> None:
    for name, rows in batch.items():
        if rows.dtype.hasobject:
            raise ValueError(
                f"column {name!r} has the dtype {rows.dtype}: a buffer keeps copies of numbers, not references to objects that may change; "
                "make it a column of numbers, or drop it before"
            )
