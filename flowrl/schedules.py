"""Settings that change while a run goes on: a value for each number of env steps sampled so far."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

__all__ = ["Schedule", "checked_schedule", "value_at"]

Schedule: TypeAlias = Sequence[tuple[int, float]]
"""Points (env steps, value) in rising order of steps."""


def value_at(schedule: Schedule | None, num_steps: int, constant: float) -> float:
    """The value after `num_steps` env steps: on the line between the two points around them; before the first and after the last, theirs.

    >>> falling = [(0, 1.0), (1000, 0.1)]
    >>> [value_at(falling, steps, constant=0.5) for steps in (0, 400, 1000, 2000)]
    [1.0, 0.64, 0.1, 0.1]

    Without a schedule it is `constant`.
    """
    if not schedule:
        return constant
    after = bisect.bisect_right(schedule, num_steps, key=lambda point: point[0])
    if after == 0 or after == len(schedule):
        return float(schedule[min(after, len(schedule) - 1)][1])
    (begin, first), (end, last) = schedule[after - 1], schedule[after]
    return first + (last - first) * (num_steps - begin) / (end - begin)


def checked_schedule(points: Any) -> tuple[tuple[int, float], ...] | None:
    """The points as tuples, or None where they are no schedule."""
    if not isinstance(points, Sequence) or isinstance(points, str) or not points:
        return None
    if not all(isinstance(point, Sequence) and not isinstance(point, str) and len(point) == 2 for point in points):
        return None
    if not all(_is_number(number) for point in points for number in point):
        return None
    steps = [int(step) for step, _ in points]
    if steps != [step for step, _ in points] or steps[0] < 0 or any(b <= a for a, b in itertools.pairwise(steps)):
        return None
    return tuple((step, float(value)) for step, (_, value) in zip(steps, points))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
