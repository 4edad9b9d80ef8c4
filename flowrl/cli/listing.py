"""`flowrl list`: the algorithms that there are."""

from __future__ import annotations

from flowrl.runs.algorithms import known_algorithms

__all__ = ["show_algorithms"]


def show_algorithms() -> int:
    """Print each algorithm's name and what it is; the exit code."""
    known = known_algorithms()
    width = max(map(len, known))
    for name, about in known.items():
        print(f"{name:<{width}}  {about}")
    return 0
