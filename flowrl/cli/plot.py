"""A curve as lines of text, in braille dots: two columns and four rows of them in each character."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["text_plot"]

_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_BLANK = 0x2800


def text_plot(xs: Sequence[float], ys: Sequence[float], width: int, height: int) -> list[str]:
    """`height` lines of at most `width` characters: y over x, from x = 0 to the last one, the lowest and the highest y named.

    >>> for line in text_plot([1, 2, 3, 4], [0, 1, 2, 12], width=8, height=3):
    ...     print(line)
    12 ┤⠀⠀⠀⢸
       │⠀⠀⠀⡎
     0 ┤⠀⣀⠔⠁

    What is not finite is left out; where a column has several points it shows their mean, where it has none a straight line.
    """
    means = [(x, y) for x, y in zip(xs, ys) if math.isfinite(x) and math.isfinite(y)]
    if not means:
        return [""] * height
    low, high = min(y for _, y in means), max(y for _, y in means)
    labels = [f"{high:.4g}", *[""] * (height - 2), f"{low:.4g}"] if height > 1 else [f"{high:.4g}"]
    label_width = max(map(len, labels))
    columns = 2 * max(width - label_width - 2, 1)
    cells = [[_BLANK] * (columns // 2) for _ in range(height)]
    before: int | None = None
    for column, y in _columns(means, columns).items():
        row = round((high - y) / (high - low) * (4 * height - 1)) if high > low else 2 * height
        top, bottom = _between(before, row)
        for dot in range(top, bottom + 1):
            cells[dot // 4][column // 2] |= _DOTS[column % 2][dot % 4]
        before = row
    return [f"{label:>{label_width}} {'┤' if label else '│'}{''.join(map(chr, line))}" for label, line in zip(labels, cells)]


def _columns(points: Sequence[tuple[float, float]], columns: int) -> dict[int, float]:
    last = max(points[-1][0], 1e-9)
    in_column: dict[int, list[float]] = {}
    for x, y in points:
        in_column.setdefault(round(x / last * (columns - 1)), []).append(y)
    known = {column: sum(ys) / len(ys) for column, ys in sorted(in_column.items())}
    means = dict(list(known.items())[:1])
    for (left, y), (right, next_y) in zip(known.items(), list(known.items())[1:]):
        means |= {column: y + (next_y - y) * (column - left) / (right - left) for column in range(left + 1, right + 1)}
    return means


def _between(before: int | None, row: int) -> tuple[int, int]:
    """The rows to fill so that a line is whole: from beside the row before to this one."""
    if before is None or before == row:
        return row, row
    return (before + 1, row) if before < row else (row, before - 1)
