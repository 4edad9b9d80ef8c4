"""Sums of what lies before a slot, and back from a sum to the slot: how rows are drawn in proportion to their values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flowrl.batch import Array

__all__ = ["SumTree"]

Floats = npt.NDArray[np.float64]

_SHIFT = 5
_WIDTH = 1 << _SHIFT


class SumTree:
    """One positive value (float64) a slot, and the sum over blocks of 32 slots: a tree of two levels, wide instead of deep.

    >>> tree = SumTree(capacity=100)
    >>> tree.fill(slice(0, 3), np.array([1.0, 2.0, 3.0]))
    >>> tree.total, tree.minimum, tree.find(np.array([0.5, 1.0, 2.9, 3.0])).tolist()
    (6.0, 1.0, [0, 1, 1, 2])

    Slots are filled from 0 on, without gaps. NumPy pays by the call, not by the number: a binary tree of 100,000 leaves takes 17
    rounds of calls for a change and for a look-up, this one takes one round of each. Sums are made anew from the values, for the
    blocks that changed and when they are next asked for, so rounding does not pile up however often values change.
    """

    def __init__(self, capacity: int) -> None:
        num_blocks = -(-capacity // _WIDTH)
        self._values = np.zeros(num_blocks * _WIDTH)
        self._num_filled = 0
        self._sums = np.zeros(num_blocks)
        self._changed = np.zeros(num_blocks, np.bool_)
        self._ends = np.zeros(num_blocks + 1)  # the sum of all blocks before each block, and of all at the end
        self._floors = np.full(num_blocks, np.inf)  # no value of the block is below; the smallest one may be above

    def __getitem__(self, slots: Array) -> Floats:
        return self._values.take(slots)

    @property
    def nbytes(self) -> int:
        """Bytes of the values and sums."""
        return sum(array.nbytes for array in (self._values, self._sums, self._changed, self._ends, self._floors))

    @property
    def total(self) -> float:
        """The sum of all values."""
        self._sum_changed()
        return float(self._ends[-1])

    @property
    def minimum(self) -> float:
        """The smallest value; inf where there is none.

        Floors only fall when values change, and the lowest one is lifted here until it is met by a value: each change pays for one
        lift at most, and most changes for none.
        """
        while True:
            block = int(self._floors.argmin())
            start = block << _SHIFT
            filled = self._values[start : min(start + _WIDTH, self._num_filled)]
            smallest = float(filled.min(initial=np.inf))
            if smallest <= self._floors[block]:
                return smallest
            self._floors[block] = smallest

    def fill(self, slots: slice, values: Floats | float) -> None:
        """Give these slots, which follow each other, their values; one value for all of them is enough."""
        self._values[slots] = values
        blocks = slice(slots.start >> _SHIFT, ((slots.stop - 1) >> _SHIFT) + 1)
        self._changed[blocks] = True
        lowest = values if isinstance(values, float) else values.min()
        np.minimum(self._floors[blocks], lowest, out=self._floors[blocks])
        self._num_filled = max(self._num_filled, slots.stop)

    def put(self, slots: Array, values: Floats) -> None:
        """Give these slots, in any order, their values; of two for one slot the last one holds."""
        self._values[slots] = values
        blocks = slots >> _SHIFT
        self._changed[blocks] = True
        np.minimum.at(self._floors, blocks, values)

    def find(self, masses: Floats) -> Array:
        """For each mass in [0, total] the slot that it falls in: P(slot) = value / total for a mass drawn uniformly.

        A mass at the very top, or pushed over it by rounding, gives the last slot: never one that was not filled. Masses in
        ascending order are found faster.
        """
        self._sum_changed()
        blocks = self._ends[1:].searchsorted(masses, side="right")
        np.minimum(blocks, (self._num_filled - 1) >> _SHIFT, out=blocks)
        running = self._values.reshape(-1, _WIDTH).take(blocks, 0, mode="clip")
        np.cumsum(running, axis=1, out=running)
        passed = running <= (masses - self._ends.take(blocks))[:, np.newaxis]
        # A block is as wide as a word has bits: counting those beats a search, which branches at every step.
        num_passed = np.bitwise_count(np.packbits(passed).view(np.uint32))
        slots: Array = (blocks << _SHIFT) + np.minimum(num_passed, _WIDTH - 1)
        np.minimum(slots, self._num_filled - 1, out=slots)
        return slots

    def _sum_changed(self) -> None:
        blocks = np.flatnonzero(self._changed)
        if len(blocks):
            self._sums[blocks] = self._values.reshape(-1, _WIDTH).take(blocks, 0, mode="clip").sum(1)
            self._changed[blocks] = False
            np.cumsum(self._sums, out=self._ends[1:])
