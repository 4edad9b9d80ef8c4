"""What travels through a plan: rows of experience, by column, and where they came from.

A `SampleBatch` is made anew by a sampler, a replay buffer or an operator, and never changes afterwards. Here is neither
torch nor gymnasium: a driver that only moves batches loads neither.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np
import numpy.typing as npt

__all__ = ["Array", "EpisodeStats", "Origin", "SampleBatch", "minibatch_rows"]

Array: TypeAlias = npt.NDArray[Any]


class Origin(NamedTuple):
    """Which worker made a fragment: its index, which life of that worker, and how many fragments that life made before."""

    worker: int
    incarnation: int
    seq: int


class EpisodeStats(NamedTuple):
    """A finished episode: the undiscounted sum of its rewards as the env gave them, its env steps, the worker that played it."""

    episode_return: float
    length: int
    worker: int


class SampleBatch:
    """Named columns with one leading step axis `[T]`; read-only, always.

    >>> batch = SampleBatch({"obs": np.zeros((4, 2), np.float32), "rewards": [1.0, 2.0, 3.0, 4.0]})
    >>> batch.count, "rewards" in batch, batch["rewards"][1:3].tolist()
    (4, True, [2.0, 3.0])
    >>> batch[1:3]
    SampleBatch(2 rows: obs float32[2], rewards float64)
    >>> batch["rewards"][0] = 0.0
    Traceback (most recent call last):
    ValueError: assignment destination is read-only

    **It takes over the arrays it is given**: an array that owns its memory becomes read-only where it is, without a copy; a
    view of memory that somebody can still write to is copied. Lists become arrays.

    `origin` says which fragments the rows are: an `Origin` for a worker's fragment, the tuple of its parts' origins for a
    concatenation, None for a selection of rows (slice, minibatch, replayed), so that counting origins counts fragments.
    `episodes` are those that ended in these fragments; a selection carries none, so that no episode counts twice.

    A column of Dict or Tuple values is one array with a field for each part: `batch["obs"]["image"]`.

    Columns that flowrl knows: `obs, actions, rewards, terminateds, truncateds, new_obs, action_logp, vf_preds, advantages,
    value_targets, eps_id, t, policy_version`; a policy may add its own.
    """

    __slots__ = ("_columns", "count", "episodes", "origin")

    __flowrl_frozen__ = True
    """Never changes: an engine may hand it on without a copy."""

    def __init__(
        self, columns: Mapping[str, Any], origin: Origin | tuple[Origin, ...] | None = None, episodes: Iterable[EpisodeStats] = ()
    ) -> None:
        self._columns = {name: _frozen(np.asarray(values)) for name, values in columns.items()}
        self.count = _common_length(self._columns)
        self.origin = origin
        self.episodes = tuple(episodes)

    @classmethod
    def concat(cls, batches: Sequence[SampleBatch]) -> SampleBatch:
        """All rows of `batches`, in order, with all their origins and episodes."""
        if not batches:
            raise ValueError("no batches to concatenate: give at least one")
        first = batches[0]
        for at, batch in enumerate(batches):
            if batch.keys() != first.keys():
                raise ValueError(
                    f"batch {at} has the columns {sorted(batch)}, batch 0 has {sorted(first)}: "
                    "concatenate batches of one kind, or drop and add columns before"
                )
        columns = dict(first._columns) if len(batches) == 1 else {name: np.concatenate([b[name] for b in batches]) for name in first}
        return cls(columns, _all_origins(batches), (episode for batch in batches for episode in batch.episodes))

    @overload
    def __getitem__(self, key: str) -> Array: ...
    @overload
    def __getitem__(self, key: slice | Array) -> SampleBatch: ...
    def __getitem__(self, key: str | slice | Array) -> Array | SampleBatch:
        """A column by its name, or a batch of the rows that a slice or an array of row numbers (or a mask) selects."""
        if isinstance(key, str):
            try:
                return self._columns[key]
            except KeyError:
                raise KeyError(f"no column {key!r}: this batch has {list(self._columns)}") from None
        if not isinstance(key, slice | np.ndarray):
            raise TypeError(
                f"a batch is read by column name, slice or array of row numbers, not by {key!r}: for one row take batch[i : i + 1]"
            )
        return SampleBatch({name: column[key] for name, column in self._columns.items()})

    def get(self, name: str, default: Array | None = None) -> Array | None:
        """The column, or `default` where there is none."""
        return self._columns.get(name, default)

    def __setitem__(self, name: str, values: Any) -> None:
        raise TypeError(f"a batch never changes: make a new one, batch = batch.with_columns({name}=...)")

    def minibatches(self, size: int, rng: np.random.Generator) -> Iterator[SampleBatch]:
        """Every row once, in batches of `size` shuffled rows; the last one holds what is left. Size 0: the whole batch as it is."""
        for rows in minibatch_rows(self.count, size, rng):
            yield self[rows]

    def split(self, size: int) -> list[SampleBatch]:
        """Every row once, in order, in batches of `size` rows; the last one holds what is left.

        >>> [part.count for part in SampleBatch({"t": range(5)}).split(2)]
        [2, 2, 1]
        """
        if size < 1:
            raise ValueError(f"split into parts of {size} rows: give 1 row or more")
        return [self[start : start + size] for start in range(0, self.count, size)]

    def with_columns(self, **columns: Any) -> SampleBatch:
        """A new batch with these columns added or replaced; same rows, so same origin and episodes."""
        return SampleBatch({**self._columns, **columns}, self.origin, self.episodes)

    @property
    def nbytes(self) -> int:
        """Bytes that the columns hold."""
        return sum(column.nbytes for column in self._columns.values())

    def keys(self) -> KeysView[str]:
        """The names of the columns."""
        return self._columns.keys()

    def items(self) -> ItemsView[str, Array]:
        """The columns with their names."""
        return self._columns.items()

    def __contains__(self, name: object) -> bool:
        return name in self._columns

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __repr__(self) -> str:
        columns = ", ".join(f"{name} {_described(c.dtype, c.shape[1:])}" for name, c in self._columns.items())
        return f"SampleBatch({self.count} rows: {columns})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._columns, self.origin, self.episodes)


def minibatch_rows(count: int, size: int, rng: np.random.Generator) -> Iterator[Array | slice]:
    """The rows of each of a batch's minibatches, `count` in all: shuffled row numbers, or a slice where one minibatch is all of them."""
    if size < 0:
        raise ValueError(f"minibatch size {size}: give the number of rows, or 0 for the whole batch")
    if size == 0 or size >= count:
        yield slice(None)
        return
    order = rng.permutation(count)
    for start in range(0, count, size):
        yield order[start : start + size]


def _described(dtype: np.dtype[Any], shape: tuple[int, ...]) -> str:
    """A column's kind: `float32[4]`; with fields, `{image uint8[5, 5, 1], place float32[2]}`."""
    fields = [f"{name} {_described(dtype[name].base, dtype[name].shape)}" for name in dtype.names or ()]
    kind = f"{{{', '.join(fields)}}}" if fields else str(dtype)
    return f"{kind}{list(shape)}" if shape else kind


def _restored(columns: dict[str, Array], origin: Origin | tuple[Origin, ...] | None, episodes: tuple[EpisodeStats, ...]) -> SampleBatch:
    # Nobody else holds arrays that pickle has just made: nothing to copy, whatever memory they lie on (Ray's store, say).
    batch = SampleBatch.__new__(SampleBatch)
    for column in columns.values():
        column.flags.writeable = False
    batch._columns, batch.count, batch.origin, batch.episodes = columns, _common_length(columns), origin, episodes
    return batch


def _frozen(array: Array) -> Array:
    """`array`, read-only, for good: a copy where somebody else could still write to its memory."""
    if array.flags.writeable:
        if array.base is not None:
            array = array.copy()
        array.flags.writeable = False
    elif _writable_below(array):
        array = array.copy()
        array.flags.writeable = False
    return array


def _writable_below(array: Array) -> bool:
    base = array.base
    while isinstance(base, np.ndarray):
        if base.flags.writeable:
            return True
        base = base.base
    return False


def _common_length(columns: Mapping[str, Array]) -> int:
    if not columns:
        raise ValueError("a batch needs at least one column")
    lengths = {name: len(column) if column.ndim else None for name, column in columns.items()}
    if len(set(lengths.values())) > 1 or None in lengths.values():
        raise ValueError(
            f"columns of different lengths {lengths} (None: no step axis): every column needs one leading axis of the same length"
        )
    return next(length for length in lengths.values() if length is not None)


def _all_origins(batches: Sequence[SampleBatch]) -> tuple[Origin, ...] | None:
    """The parts' origins, flattened; None where no part has one."""
    origins: list[Origin] = []
    for batch in batches:
        if isinstance(batch.origin, Origin):
            origins.append(batch.origin)
        elif batch.origin is not None:
            origins.extend(batch.origin)
    return tuple(origins) or None
