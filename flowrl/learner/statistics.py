"""What a learner says of a batch, sorted: numbers for a report, and values that belong to single rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flowrl.batch import Array
from flowrl.policy.normalizer import Moments

__all__ = ["by_row", "reported"]


def reported(stats: Mapping[str, Any]) -> dict[str, float]:
    """The statistics as a report shows them: one number each; moments and what belongs to single rows stay out."""
    return {name: value.value for name, value in stats.items() if not isinstance(value, Moments | np.ndarray)}


def by_row(stats: Mapping[str, Any]) -> dict[str, Array]:
    """Those with one value a row of the batch, as columns: `td_errors`, say."""
    return {name: value for name, value in stats.items() if isinstance(value, np.ndarray)}
