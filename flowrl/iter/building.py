"""Checks of what a user passes while a plan is built: as early as it can be known, with the plan's line in each message."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from flowrl.errors import PlanError
from flowrl.iter.naming import label_of, short
from flowrl.iter.nodes import Weight

__all__ = ["at_least", "callable_fn", "weights_for"]

MAX_DENOMINATOR = 1_000_000


def at_least(value: Any, least: float, name: str, operator: str, line: str, whole: bool = True) -> Any:
    """`value`, if it is a number (whole, unless said otherwise) and not below `least`; `PlanError` else."""
    kind = numbers.Integral if whole else numbers.Real
    if isinstance(value, bool) or not isinstance(value, kind) or not _at_least(value, least):
        raise PlanError(
            f"{operator}({name}={short(value)}) at {line}: {name} must be {'a whole number' if whole else 'a number'}, at least {least}"
        )
    number: Any = value
    return int(number) if whole else float(number)


def _at_least(value: Any, least: float) -> bool:
    return bool(value >= least and not math.isinf(value))


def callable_fn(fn: Any, operator: str, line: str) -> Any:
    """`fn`, if it can be called; `PlanError` else."""
    if not callable(fn):
        raise PlanError(f"{operator} at {line} got {short(fn)}, which cannot be called: pass a function of one item")
    if hasattr(fn, "enqueue_into"):
        raise PlanError(
            f"{operator} at {line} got Enqueue, which is a stage of its own in the driver: after a gather, write .for_each(Enqueue(queue))"
        )
    return fn


def weights_for(weights: Any, members: Sequence[Any], operator: str, line: str) -> tuple[Weight, ...]:
    """One weight a branch, exact: whole numbers and fractions above 0, or "*"; all 1 where none are given."""
    if weights is None:
        return (Fraction(1),) * len(members)
    if not isinstance(weights, Sequence) or isinstance(weights, str):
        raise PlanError(f"{operator} at {line} got round_robin_weights={short(weights)}: pass a list with one weight a branch")
    if len(weights) != len(members):
        shown = ", ".join(label_of(member) for member in members)
        raise PlanError(f"{operator} at {line} got {len(weights)} weights for {len(members)} branches ({shown}): give one weight a branch")
    return tuple(_weight(weight, operator, line) for weight in weights)


def _above_zero(value: Any) -> bool:
    return bool(value > 0)


def _weight(weight: Any, operator: str, line: str) -> Weight:
    if isinstance(weight, str) and weight == "*":
        return "*"
    good = isinstance(weight, numbers.Real) and not isinstance(weight, bool) and math.isfinite(weight)
    if not good or not _above_zero(weight):
        raise PlanError(
            f'{operator} at {line} got the weight {short(weight)}: a weight is a number above 0 (items a turn), or "*" for all that '
            "is ready"
        )
    exact = Fraction(weight) if isinstance(weight, Fraction) else Fraction(float(weight)).limit_denominator(MAX_DENOMINATOR)
    if exact <= 0:
        raise PlanError(f"{operator} at {line} got the weight {short(weight)}, which is too small: use at least {1 / MAX_DENOMINATOR}")
    return exact
