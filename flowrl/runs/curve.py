"""The learning curve as a picture, drawn when the run is over, however it ended and however little there is to draw."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

__all__ = ["CurveFile"]

_NAMES = ("episode_return_mean", "episode_return_min", "episode_return_max")


class CurveFile:
    """Mean, lowest and highest return against env steps; the file is written by `close`."""

    def __init__(self, path: Path, title: str, label: str, target: float | None = None) -> None:
        self.path, self.title, self.label, self.target = path, title, label, target
        self._steps: list[float] = []
        self._returns: dict[str, list[float]] = {name: [] for name in _NAMES}

    def write(self, result: Mapping[str, Any]) -> None:
        """Remember a point of the curve."""
        self._steps.append(result.get("num_steps_sampled", math.nan))
        for name, values in self._returns.items():
            values.append(result.get(name, math.nan))

    def close(self) -> None:
        """Draw it."""
        figure = Figure(figsize=(7, 4), layout="constrained")
        axes = figure.subplots()
        mean, low, high = self._returns.values()
        axes.fill_between(self._steps, low, high, alpha=0.2, linewidth=0)
        # One point makes no line.
        axes.plot(self._steps, mean, marker="o" if sum(map(math.isfinite, mean)) == 1 else None, label=self.label)
        if self.target is not None:
            axes.axhline(self.target, linestyle="--", color="grey", linewidth=1, label=f"asked for: {self.target:g}")
        axes.set(xlabel="env steps", ylabel="episode return", title=self.title)
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
        figure.legend(loc="outside lower center", ncols=2, frameon=False)
        figure.savefig(self.path, dpi=150)
