"""Branches side by side, and queues between them: `Concurrently`, `Enqueue`, `Dequeue`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from flowrl.errors import PlanError
from flowrl.iter import nodes
from flowrl.iter.building import weights_for
from flowrl.iter.iterators import LocalIterator
from flowrl.iter.naming import plan_line, short
from flowrl.iter.queues import is_queue

__all__ = ["Concurrently", "Dequeue", "Enqueue"]


def Concurrently(
    ops: Sequence[LocalIterator[Any]],
    mode: Literal["round_robin", "async"] = "round_robin",
    output_indexes: Sequence[int] | None = None,
    round_robin_weights: Sequence[Any] | None = None,
) -> LocalIterator[Any]:
    """One stream that drives several branches; the items of those in `output_indexes` come out (None: of all).

    >>> from flowrl.iter import from_iterable
    >>> store, train = from_iterable([1, 2]), from_iterable("ab")
    >>> list(Concurrently([store, train], mode="round_robin"))
    [1, 'a', 2, 'b']

    "round_robin" waits for the branch whose turn it is; one that only another branch can make ready (an empty queue, a
    replay below its start) is owed its turns instead. "async" goes on with whatever is ready. A weight is how many items
    a branch gives a turn, exact in the long run; `"*"` is all that is ready, at most 100, and never waited for.
    """
    line = plan_line()
    if not isinstance(ops, Sequence):
        raise PlanError(f"Concurrently at {line} got {short(ops)}: pass a list of branches")
    branches = list(ops)
    if not branches:
        raise PlanError(f"Concurrently at {line} got no branches: give at least one")
    if mode not in ("round_robin", "async"):
        raise PlanError(f"Concurrently(mode={mode!r}) at {line}: mode is 'round_robin' or 'async'")
    for branch in branches:
        if not isinstance(branch, LocalIterator):
            raise PlanError(
                f"Concurrently at {line} got {short(branch)}, whose items never leave their shards or which is no plan: gather it first"
            )
    members = tuple(branch._node for branch in branches)
    return LocalIterator(
        nodes.Union(
            line=line,
            members=members,
            deterministic=mode == "round_robin",
            weights=weights_for(round_robin_weights, members, "Concurrently", line),
            outputs=_outputs(output_indexes, len(members), line),
            operator="Concurrently",
        )
    )


def _outputs(indexes: Sequence[int] | None, num_branches: int, line: str) -> frozenset[int] | None:
    if indexes is None:
        return None
    chosen = list(indexes)
    known = all(isinstance(index, int) and not isinstance(index, bool) and 0 <= index < num_branches for index in chosen)
    if not chosen or not known or len(set(chosen)) < len(chosen):
        raise PlanError(
            f"Concurrently(output_indexes={short(chosen)}) at {line}: give at least one of the branches 0 to {num_branches - 1}, "
            "each once; None for all"
        )
    return frozenset(chosen)


def _queue_for(queue: Any, operator: str) -> Any:
    if not is_queue(queue):
        raise PlanError(
            f"{operator}({short(queue)}) at {plan_line()}: pass a fl.Queue(maxsize), or a bounded queue.Queue for a thread of your own"
        )
    return queue


@dataclass(frozen=True)
class Enqueue:
    """Puts each item into a queue, waiting for room, and hands it on. For `.for_each()` in the driver.

    A full queue blocks the branch, never the run, and nothing is dropped.
    """

    queue: Any

    def __post_init__(self) -> None:
        _queue_for(self.queue, "Enqueue")

    @property
    def enqueue_into(self) -> Any:
        """The queue; by this `for_each` knows that it may have to wait."""
        return self.queue

    def __call__(self, item: Any) -> Any:
        raise PlanError("Enqueue is a stage of a plan, not a function: write .for_each(Enqueue(queue)) in the driver")


def Dequeue(queue: Any, check: Callable[[], bool] | None = None) -> LocalIterator[Any]:
    """The items of a queue. It ends when every branch that writes the queue has ended and it is empty.

    `check` is asked when the queue is empty: once it is false, the run raises `QueueClosedError`, and the stream ends.
    """
    line = plan_line()
    if check is not None and not callable(check):
        raise PlanError(
            f"Dequeue(check={short(check)}) at {line}: check is a function without arguments that says whether the writer lives"
        )
    return LocalIterator(nodes.Dequeue(line=line, queue=_queue_for(queue, "Dequeue"), check=check))
