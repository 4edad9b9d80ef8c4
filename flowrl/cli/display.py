"""What is seen of a run while it goes on: on a terminal a picture that renews itself, elsewhere one line a result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flowrl.cli.plot import text_plot
from flowrl.runs.stopping import StopConditions

__all__ = ["Display", "LiveDisplay", "PlainLines", "display_for", "duration", "line_of"]

MOST_POINTS = 2000
PLOT_HEIGHT = 8
REFRESH_PER_SECOND = 4


class Display(Protocol):
    """Shows results: `with display: display.update(result)`."""

    def update(self, result: Mapping[str, Any]) -> None:
        """Show the newest result."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


def display_for(console: Console, stop: StopConditions) -> Display:
    """The live display where there is a terminal that can show it, else plain lines."""
    if console.is_terminal and not console.is_dumb_terminal and console.encoding.lower().startswith("utf"):
        return LiveDisplay(console, stop)
    return PlainLines()


def duration(seconds: float) -> str:
    """Seconds as a clock shows them.

    >>> duration(3725.4), duration(59)
    ('1:02:05', '0:59')
    """
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}" if minutes >= 60 else f"{minutes}:{rest:02}"


def line_of(result: Mapping[str, Any]) -> str:
    """A result on one line."""
    mean, low, high = (result.get(f"episode_return_{name}", math.nan) for name in ("mean", "min", "max"))
    returns = "-" if math.isnan(mean) else f"{mean:.1f} ({low:.1f} to {high:.1f})"
    return (
        f"{result.get('num_steps_sampled', 0):>10,} steps  return {returns}  {result.get('episodes_total', 0):,} episodes  "
        f"{_speed(result)} steps/s  {duration(result.get('time_s', 0))}"
    )


class PlainLines:
    """A line a result, though not more than one a second; the last result always."""

    def __init__(self, interval_s: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.interval_s, self.clock = interval_s, clock
        self._last_s = -math.inf
        self._held_back: Mapping[str, Any] | None = None

    def update(self, result: Mapping[str, Any]) -> None:
        """Print it, or keep it back for a while."""
        self._held_back = result
        if self.clock() - self._last_s >= self.interval_s:
            self._print()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._print()

    def _print(self) -> None:
        if self._held_back is not None:
            print(line_of(self._held_back), flush=True)
            self._last_s, self._held_back = self.clock(), None


class LiveDisplay:
    """The return curve, how far the run is on its way to each stop condition, its speed, and the time that is left."""

    def __init__(self, console: Console, stop: StopConditions, clock: Callable[[], float] = time.monotonic) -> None:
        self.console, self.stop, self.clock = console, stop, clock
        self._began_s = clock()
        self._result: Mapping[str, Any] = {}
        self._points: list[tuple[float, float]] = []
        self._first_mean = math.nan
        self._live = Live(get_renderable=self.picture, console=console, refresh_per_second=REFRESH_PER_SECOND)

    def update(self, result: Mapping[str, Any]) -> None:
        """Show it at the next renewal."""
        mean = result.get("episode_return_mean", math.nan)
        if math.isnan(self._first_mean):
            self._first_mean = mean
        if len(self._points) >= MOST_POINTS:
            self._points = self._points[::2]
        self._points.append((result.get("num_steps_sampled", math.nan), mean))
        self._result = result

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def picture(self) -> RenderableType:
        """All of it, as it is now."""
        width = min(self.console.width, 100)
        if not self._result:
            return Text(f"starting, {duration(self.clock() - self._began_s)}")
        points = list(self._points)
        lines = text_plot([x for x, _ in points], [y for _, y in points], width, PLOT_HEIGHT)
        return Group(Text("\n".join(lines), style="cyan"), self._numbers())

    def _numbers(self) -> Table:
        result, stop = self._result, self.stop
        mean, steps = result.get("episode_return_mean", math.nan), result.get("num_steps_sampled", 0)
        numbers = Table.grid(padding=(0, 2))
        of_return = "" if stop.mean_return is None else f" of {stop.mean_return:g}"
        of_steps = "" if stop.steps is None else f" of {stop.steps:,}"
        shown = "-" if math.isnan(mean) else f"{mean:.1f}"
        numbers.add_row("return", _bar(self._towards_return(mean)), f"{shown}{of_return}  {result.get('episodes_total', 0):,} episodes")
        towards_steps = None if stop.steps is None else steps / stop.steps
        numbers.add_row("env steps", _bar(towards_steps), f"{steps:,}{of_steps}  {_speed(result)}/s")
        numbers.add_row("time", "", f"{duration(self.clock() - self._began_s)}{self._left(steps)}")
        return numbers

    def _towards_return(self, mean: float) -> float | None:
        target = self.stop.mean_return
        if target is None or math.isnan(mean) or target <= self._first_mean:
            return None if target is None else 0.0
        return (mean - self._first_mean) / (target - self._first_mean)

    def _left(self, steps: int) -> str:
        """From the speed so far; only steps can be foreseen, a return cannot."""
        time_s = self._result.get("time_s", 0.0)
        if self.stop.steps is None or not steps or not time_s:
            return "" if self.stop.steps is None else ", left: -"
        left = duration(max(self.stop.steps - steps, 0) * time_s / steps)
        return f", {'at most ' if self.stop.mean_return is not None else ''}{left} left"


def _speed(result: Mapping[str, Any]) -> str:
    speed = result.get("steps_per_s", math.nan)
    return f"{speed:,.0f}" if math.isfinite(speed) else "-"


def _bar(fraction: float | None) -> RenderableType:
    return (
        ""
        if fraction is None
        else ProgressBar(total=1.0, completed=min(max(fraction, 0.0), 1.0), width=30, complete_style="cyan", finished_style="green")
    )
