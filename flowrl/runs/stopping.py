"""When a run has done enough: a mean return reached, or so many env steps taken."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["StopConditions"]


@dataclass(frozen=True)
class StopConditions:
    """The first that is met ends the run; None: never.

    >>> stop = StopConditions(mean_return=475, steps=100_000)
    >>> stop.met_by({"episode_return_mean": float("nan"), "num_steps_sampled": 4096})
    >>> stop.met_by({"episode_return_mean": 480.5, "num_steps_sampled": 40960})
    'return'
    """

    mean_return: float | None = None
    steps: int | None = None

    def met_by(self, result: Mapping[str, Any]) -> str | None:
        """Which condition a result meets: "return", "steps" or None."""
        if self.mean_return is not None and result.get("episode_return_mean", math.nan) >= self.mean_return:
            return "return"
        if self.steps is not None and result.get("num_steps_sampled", 0) >= self.steps:
            return "steps"
        return None

    def __bool__(self) -> bool:
        return self.mean_return is not None or self.steps is not None

    def __str__(self) -> str:
        wanted = []
        if self.mean_return is not None:
            wanted.append(f"a return of {self.mean_return:g}")
        if self.steps is not None:
            wanted.append(f"{self.steps:,} env steps")
        return " or ".join(wanted) or "Ctrl-C"
