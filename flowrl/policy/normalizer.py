"""Running mean and variance, as values that merge: what several workers or microbatches saw becomes what one would have seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flowrl.batch import Array

__all__ = ["Moments", "Normalizer"]

CUT = 10.0
"""A normalised number is at most this far from 0."""


@dataclass
class Moments:
    """Count, mean and sum of squared deviations of rows; they merge (Chan et al., Updating Formulae for Sample Variances, 1979).

    >>> moments = Moments.of(np.array([1.0, 2.0]))
    >>> moments.merge(Moments.of(np.array([6.0])))
    >>> float(moments.mean), float(moments.variance)
    (3.0, 4.666666666666667)
    """

    count: float
    mean: Array
    deviations: Array

    @classmethod
    def of(cls, rows: Array) -> Moments:
        """Of rows `[B, ...]`, over the first axis, in float64."""
        values = rows.astype(np.float64)
        mean = values.mean(axis=0)
        return cls(len(values), mean, np.square(values - mean).sum(axis=0))

    @property
    def variance(self) -> Array:
        """The population's variance; 1 before anything was seen."""
        return self.deviations / self.count if self.count else np.ones_like(self.deviations)

    @property
    def value(self) -> float:
        """How many rows were seen."""
        return float(self.count)

    def merge(self, other: Moments) -> None:
        """Add the other's rows."""
        total = self.count + other.count
        if not total:
            return
        shift = other.mean - self.mean
        self.deviations = self.deviations + other.deviations + np.square(shift) * (self.count * other.count / total)
        self.mean = self.mean + shift * (other.count / total)
        self.count = total


class Normalizer:
    """Normalises by running moments, which move only by `update`: between two batches, never inside one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.moments = Moments(0, np.zeros(shape), np.zeros(shape))

    def update(self, moments: Moments) -> None:
        """Take in the moments of more rows."""
        self.moments.merge(moments)

    def standardized(self, rows: Array) -> Array:
        """(rows - mean) / std, cut at +-10, float32; as they are before the first update."""
        if not self.moments.count:
            return rows.astype(np.float32, copy=False)
        scaled = (rows - self.moments.mean) / np.sqrt(self.moments.variance + 1e-8)
        return np.clip(scaled, -CUT, CUT).astype(np.float32)

    def scaled(self, rows: Array) -> Array:
        """rows / std, cut at +-10, float32; as they are before the first update."""
        if not self.moments.count:
            return rows.astype(np.float32, copy=False)
        return np.clip(rows / np.sqrt(self.moments.variance + 1e-8), -CUT, CUT).astype(np.float32)

    def state(self) -> dict[str, Array]:
        """The moments as arrays, copied."""
        moments = self.moments
        return {"count": np.array([moments.count]), "mean": np.array(moments.mean), "deviations": np.array(moments.deviations)}

    def set_state(self, state: Mapping[str, Array]) -> None:
        """Take over moments that `state` gave, copied."""
        self.moments = Moments(float(state["count"][0]), np.array(state["mean"], np.float64), np.array(state["deviations"], np.float64))
