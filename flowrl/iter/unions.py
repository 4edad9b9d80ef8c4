"""Several branches in one stream, and one stream for several branches: turns, debts and bounded lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from flowrl.iter.chain import StageObject
from flowrl.iter.nodes import Weight
from flowrl.iter.signals import BLOCKED, BUSY, END, MAX_IDLE_STEPS, PENDING, Signal
from flowrl.metrics.context import ACTIVE

__all__ = ["ChildStage", "DuplicateStage", "LocalRoundRobin", "UnionStage"]

MAX_OWED_ROUNDS = 4
MAX_STAR_ITEMS = 100
MAX_LAG_ITEMS = 64
"""How many items a child of `duplicate` may be ahead of another one."""


class _Branch:
    """A member of a union and what it is owed, in units of 1/`cost` items."""

    __slots__ = ("cost", "credit", "index", "limit", "pull", "shown", "stage", "star", "weight")

    def __init__(self, stage: Any, index: int, weight: Weight, shown: bool) -> None:
        self.stage, self.index, self.pull, self.shown = stage, index, stage.pull, shown
        self.star = weight == "*"
        self.weight, self.cost = (MAX_STAR_ITEMS, 1) if weight == "*" else (weight.numerator, weight.denominator)
        self.credit = 0
        # A turn of its own, and at most four rounds of turns that are owed; a fraction keeps what it has saved up of an item.
        self.limit = self.weight if self.star else self.weight * (MAX_OWED_ROUNDS + 1) + self.cost - 1


class UnionStage(StageObject):
    """Turns by weight. A branch that is not ready is owed its turn, or, with `strict` and PENDING, waited for.

    In each round every branch gets its weight in credit and spends it an item at a time. Who is BLOCKED before it has spent it, at a
    full queue say, is asked again in the same round, as long as the others do something about it. A round in which nobody had an item
    is not paid again, so that waiting earns nothing.
    """

    def __init__(self, run: Any, stages: Sequence[Any], weights: Sequence[Weight], strict: bool, outputs: frozenset[int] | None) -> None:
        self.run, self.strict = run, strict
        self.branches = [
            _Branch(stage, index, weight, outputs is None or index in outputs) for index, (stage, weight) in enumerate(zip(stages, weights))
        ]
        self.live = list(self.branches)
        self.at = 0
        self.gave = self.waiting = self.busy = self.blocked = False
        self.round_gave = False
        """Whether this round had an item before it went round once more."""
        self.taken = [0] * len(self.branches)
        for branch in self.live:
            branch.credit = branch.weight

    def pull(self) -> Any:
        if self.run.pending:
            self.run.look()
        hidden = 0
        while self.live:
            branch = self.live[self.at]
            while branch.credit >= branch.cost:
                branch.credit -= branch.cost
                try:
                    x = branch.pull()
                except BaseException:
                    self.gave = True  # a failure has had its turn, as an item has
                    raise
                if x.__class__ is not Signal:
                    self.gave = True
                    self.taken[branch.index] += 1
                    if branch.shown:
                        self.sources = branch.stage.sources
                        self.num_out += 1
                        return x
                    hidden += 1
                    if hidden > MAX_IDLE_STEPS:
                        return BUSY
                    continue
                branch.credit += branch.cost
                if x is END:
                    break
                if x is BUSY:
                    if self.strict and not branch.star:
                        return BUSY
                    self.busy = True
                elif x is PENDING:
                    if self.strict and not branch.star:
                        return PENDING
                    self.waiting = True
                else:
                    self.blocked = True
                break
            else:
                x = None
            if x is END:
                self.live.remove(branch)
            else:
                self.at += 1
            if self.at >= len(self.live):
                answer = self._next_round()
                if answer is not None:
                    return answer
        return END

    def _next_round(self) -> Signal | None:
        """Go round once more where that may help somebody, else pay the next round; or, if nobody could use this one, say why."""
        self.at = 0
        if not self.live:
            return END
        waiting, busy, gave, blocked = self.waiting, self.busy, self.gave, self.blocked
        self.waiting = self.busy = self.gave = self.blocked = False
        if gave and blocked:
            self.round_gave = True
            for branch in self.live:
                if branch.star:
                    branch.credit = branch.weight
            return BUSY if busy else None
        gave, self.round_gave = gave or self.round_gave, False
        # A branch that has saved up less than an item was not asked: pay until the first of them can be.
        short = [-(-(branch.cost - branch.credit) // branch.weight) for branch in self.live if branch.credit < branch.cost]
        if gave or short:
            rounds = 1 if gave else min(short)
            for branch in self.live:
                branch.credit = branch.weight if branch.star else min(branch.credit + rounds * branch.weight, branch.limit)
        if busy:
            return BUSY
        if gave or short:
            return None
        return PENDING if waiting else BLOCKED

    @property
    def num_in(self) -> int:  # type: ignore[override]
        """Items taken from all branches."""
        return sum(self.taken)


class LocalRoundRobin(StageObject):
    """`UnionStage` for the commonest case, at a fifth of its price: one item a turn, branches that never have to be waited for."""

    def __init__(self, run: Any, stages: Sequence[Any]) -> None:
        self.run, self.branches = run, list(stages)
        self.pulls = [stage.pull for stage in stages]
        self.at = 0

    def pull(self) -> Any:
        while self.pulls:
            at = self.at
            self.at = at + 1 if at + 1 < len(self.pulls) else 0  # before the pull: a failure has had its turn
            x = self.pulls[at]()
            if x.__class__ is not Signal:
                return x
            if x is BUSY:
                self.at = at
                return BUSY
            self._drop(at)
        return END

    def loop(self, owner: Any) -> Iterator[Any]:
        """What a `for` statement runs; it holds the stream, and tells it of its end and of errors."""
        pulls, context, halt = self.pulls, self.run.metrics, owner.halt
        slot = ACTIVE.slot
        before = slot[0]
        slot[0] = context
        try:
            while pulls:
                at = self.at
                self.at = at + 1 if at + 1 < len(pulls) else 0
                x = pulls[at]()
                if x.__class__ is Signal:
                    if x is BUSY:
                        self.at = at
                    else:
                        self._drop(at)
                    continue
                slot[0] = before
                yield x
                if halt:
                    if owner.is_over:
                        return
                    raise halt.pop(0)
                slot = ACTIVE.slot
                before = slot[0]
                slot[0] = context
            slot[0] = before
            owner.ended()
        except GeneratorExit:
            if slot[0] is context:
                slot[0] = before
            raise
        except BaseException as error:
            slot[0] = before
            raise owner.failed(error)  # noqa: B904  # the same error, with a note

    def _drop(self, at: int) -> None:
        del self.pulls[at]
        self.at = at if at < len(self.pulls) else 0

    @property
    def taken(self) -> list[int]:
        """Items taken from each branch."""
        return [branch.num_out for branch in self.branches]

    @property
    def num_in(self) -> int:  # type: ignore[override]
        """Items taken from all branches."""
        return sum(self.taken)

    @property
    def num_out(self) -> int:  # type: ignore[override]
        """The same: nothing stays here."""
        return self.num_in


class DuplicateStage(StageObject):
    """The stream that the children share, and the queue of each one that the plan reaches."""

    def __init__(self, upstream: Any, tagged: bool) -> None:
        self.upstream, self.tagged = upstream, tagged
        self.children: list[ChildStage] = []
        self.num_in = 0

    def pull_for(self, child: ChildStage) -> Any:
        """The next item, kept for the other children; BLOCKED where one of them lags too far behind."""
        others = [other for other in self.children if other is not child]
        if any(len(other.queue) >= MAX_LAG_ITEMS for other in others):
            return BLOCKED
        x = self.upstream.pull()
        if x.__class__ is Signal:
            return x
        self.num_in += 1
        self.num_out += 1
        sources = self.upstream.sources if self.tagged else ()
        for other in others:
            other.queue.append((x, sources))
        child.sources = sources
        return x


class ChildStage(StageObject):
    """One of the streams of a `duplicate`."""

    def __init__(self, parent: DuplicateStage, label: str) -> None:
        self.parent, self.label = parent, label
        self.queue: deque[tuple[Any, tuple[Any, ...]]] = deque()
        parent.children.append(self)

    def pull(self) -> Any:
        if self.queue:
            x, self.sources = self.queue.popleft()
        else:
            x = self.parent.pull_for(self)
            if x.__class__ is Signal:
                return x
        self.num_out += 1
        return x

    @property
    def num_in(self) -> int:  # type: ignore[override]
        """Items taken out of its queue, or straight from above."""
        return self.num_out

    @property
    def num_held(self) -> int:
        return len(self.queue)

    def why_blocked(self) -> str | None:
        behind = [other.label for other in self.parent.children if len(other.queue) >= MAX_LAG_ITEMS]
        return f"{self.label} is {MAX_LAG_ITEMS} items ahead of {', '.join(behind)}" if behind else None
