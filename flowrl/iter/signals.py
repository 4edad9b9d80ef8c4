"""What a stage answers when it has no item, and what a user's error is called. Never seen by a user."""

from __future__ import annotations

import enum
import traceback
from typing import Any, Final

from flowrl.errors import RunError
from flowrl.iter.naming import name_of, short

__all__ = [
    "BLOCKED",
    "BUSY",
    "EMPTY",
    "END",
    "MAX_IDLE_STEPS",
    "PENDING",
    "Signal",
    "call_user",
    "locate",
    "stop_iteration_error",
    "with_note",
]


class Signal(enum.Enum):
    """A stage's answer in place of an item; compared by identity."""

    PENDING = "a call, a timer or a thread outside this run will make it ready"
    BLOCKED = "only another branch of this run can make it ready"
    BUSY = "it worked and has nothing yet; ask again, others first"
    END = "there will be no more"

    __hash__ = object.__hash__


PENDING: Final = Signal.PENDING
BLOCKED: Final = Signal.BLOCKED
BUSY: Final = Signal.BUSY
END: Final = Signal.END
EMPTY: Final = iter(())
"""What a finished feed is replaced by, so that nobody asks a finished iterator again."""

MAX_IDLE_STEPS = 100
"""How many items a stage may drop in a row before it lets the other branches have a turn."""


def with_note(error: BaseException, note: str) -> BaseException:
    """`error` with `note`, which it gains once however often it passes."""
    notes = getattr(error, "__notes__", [])
    if note not in notes:
        # Not by add_note: an exception that is a frozen dataclass would refuse it, and be replaced by its refusal.
        BaseException.__setattr__(error, "__notes__", [*notes, note])
    return error


def stop_iteration_error(where: str, error: StopIteration) -> RunError:
    """What a user function's StopIteration becomes: let through, it would look like the end of the stream."""
    wrong = RunError(
        f"StopIteration came out of {where}; it would look like the end of the stream. "
        "A function of the plan must return a value or raise another error: use next(iterator, default), or filter() to drop items"
    )
    wrong.__cause__ = error
    return wrong


def locate(error: BaseException, where: str = "") -> BaseException:
    """`error` with a note that says which operator raised it, at which line of the plan and on which item.

    The operator is found from the traceback: a fused step knows which of its lines is whose. `where` is the shard.
    """
    for frame, line in traceback.walk_tb(error.__traceback__):
        labels = frame.f_globals.get("_flowrl_labels")
        label, is_source = labels.get(line, (None, False)) if labels is not None else (None, False)
        if label is not None:
            if isinstance(error, StopIteration):
                error = stop_iteration_error(label, error)
            item = "" if is_source else f", item {short(frame.f_locals.get('x'))}"
            return with_note(error, f"in {label}{where}{item}")
    if isinstance(error, StopIteration):
        return stop_iteration_error("a function of the plan", error)
    return error


def call_user(fn: Any, label: str, where: str, *args: Any) -> Any:
    """`fn(*args)` outside a fused step: its error gets the same note."""
    try:
        return fn(*args)
    except StopIteration as error:
        raise with_note(stop_iteration_error(name_of(fn), error), f"in {label}{where}") from error
    except BaseException as error:
        with_note(error, f"in {label}{where}")
        raise
