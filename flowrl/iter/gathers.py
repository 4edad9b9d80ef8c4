"""From the shards into the driver: the barrier, and the gather that takes what is ready.

Both keep their calls in the run's `pending`, so that the run can sleep on everything at once; `mark_ready` tells them
which call is done. A shard answers in the order of its calls, so the oldest one of a ready shard is the one that is done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from flowrl.errors import ActorDiedError
from flowrl.iter.chain import StageObject
from flowrl.iter.shard import Answer
from flowrl.iter.signals import BLOCKED, END, PENDING, Signal, with_note

__all__ = ["AsyncGather", "BarrierGather", "OpenShard"]


@dataclass(eq=False, slots=True)
class OpenShard:
    """A stream that the run opened in an actor."""

    actor: Any
    ask: Callable[[], Any]
    sources: tuple[Any, ...]
    where: str
    slot: int
    spec: Any
    calls: deque[Any] = field(default_factory=deque)
    num_ready: int = 0
    ended: bool = False
    num_received: int = 0
    num_parked: int = 0
    """Calls that it is not asked for, since it had nothing to give."""
    heard: int = 0
    """Calls that its handle had made when it was last asked."""

    @property
    def has_heard(self) -> bool:
        """Whether something may have reached its actor since it was last asked."""
        return bool(_num_calls(self.sources[0]) != self.heard)

    @property
    def may_hear_others(self) -> bool:
        """Whether somebody outside this run may reach its actor, unseen by the run."""
        return getattr(self.sources[0], "num_users", 2) > 1


def _num_calls(source: Any) -> int:
    return getattr(source, "num_calls", 0)


class _Gather(StageObject):
    def __init__(self, run: Any, shards: list[OpenShard], label: str) -> None:
        self.run, self.shards, self.label = run, shards, label
        self.live = list(shards)
        self.started = False
        self.is_awaited = False
        """Whether it was pulled in vain since its last answer; else its calls need not wake the run: a look finds them done."""
        self.num_parked = 0
        """Calls of all shards that are parked."""

    def mark_ready(self, shard: OpenShard) -> None:
        """One more of the shard's calls is done."""
        shard.num_ready += 1

    def ask(self, shard: OpenShard) -> None:
        """One more call at the shard."""
        shard.heard = _num_calls(shard.sources[0])
        call = shard.ask()
        shard.calls.append(call)
        self.run.pending[call] = (self, shard)

    def park(self, shard: OpenShard) -> None:
        """It had nothing to give: it is not asked for this call again before something has reached its actor."""
        shard.num_parked += 1
        self.num_parked += 1

    def unpark(self, shard: OpenShard, num: int = 1) -> None:
        """Ask it again, for so many of its parked calls."""
        for _ in range(min(num, shard.num_parked)):
            shard.num_parked -= 1
            self.num_parked -= 1
            self.ask(shard)

    def ask_the_parked(self) -> None:
        """Ask each parked shard that may have something by now, once: it tells whether it has."""
        for shard in self.live:
            if shard.num_parked and not shard.calls and (shard.has_heard or (self.run.retrying and shard.may_hear_others)):
                self.unpark(shard)

    @property
    def nothing_yet(self) -> Signal:
        """PENDING while a call is on its way, or somebody outside the run may reach a parked shard; else BLOCKED."""
        if not self.num_parked or any(len(shard.calls) > shard.num_ready for shard in self.live):
            return PENDING
        outside = self.run.engine.clock == "real" and any(shard.num_parked and shard.may_hear_others for shard in self.live)
        return PENDING if outside else BLOCKED

    def why_blocked(self) -> str | None:
        parked = ", ".join(shard.where.removeprefix(", ") for shard in self.live if shard.num_parked)
        return f"{self.label} has nothing to give yet ({parked}), and nothing reaches it" if parked else None

    def drop(self, shard: OpenShard) -> None:
        """The shard has ended or died: nobody waits for its calls any more."""
        if shard.ended:
            return
        self.num_parked -= shard.num_parked
        shard.num_parked = 0
        shard.ended = True
        self.live.remove(shard)
        for call in shard.calls:
            self.run.pending.pop(call, None)
            self.run.notices.pop(call, None)
        shard.calls.clear()
        shard.num_ready = 0

    def take(self, shard: OpenShard) -> Any:
        """The shard's oldest call, which nobody has to wait for any more."""
        call = shard.calls.popleft()
        self.is_awaited = False
        if self.run.pending.pop(call, None) is not None:
            # A later call was reported before this older one: report it again.
            later = next((other for other in reversed(shard.calls) if other not in self.run.pending), None)
            if later is not None:
                self.run.pending[later] = (self, shard)
        shard.num_ready = max(0, shard.num_ready - 1)
        return call

    def answer_of(self, shard: OpenShard) -> Any:
        """The shard's oldest answer. An error means that the call itself failed; a dead actor's shard is dropped."""
        call = self.take(shard)
        try:
            return self.run.result(call)
        except ActorDiedError as error:
            self.drop(shard)
            if not self.run.is_first_news_of(shard.sources[0]):
                return Answer(signal=END)
            with_note(error, f"in {self.label}{shard.where}; the other shards go on")
            raise
        except BaseException as error:
            with_note(error, f"in {self.label}{shard.where}")
            raise

    def open_answer(self, answer: Answer, shard: OpenShard) -> BaseException | None:
        """Merge what was counted, drop the shard at its end; what went wrong there or here, if anything did. Never raises."""
        wrong: BaseException | None = None
        if answer.counted:
            try:
                self.run.metrics.merge(answer.counted)
            except Exception as error:
                wrong = with_note(error, f"in {self.label}{shard.where}, where its metrics were merged")
        if answer.signal is END:
            self.drop(shard)
        if answer.failure is None or (answer.failure.dead_actor and not self.run.is_first_news_of(answer.failure.dead_actor)):
            return wrong
        if wrong is not None:
            self.run.told.append(wrong)
        try:
            return answer.failure.error(self.run.engine.loads)
        except Exception as error:
            return with_note(error, f"in {self.label}{shard.where}, where its error was unpickled:\n{answer.failure.text}")


class AsyncGather(_Gather):
    """`gather_async`, `get_shard`: at most `num_async` calls in flight a shard, the ready shards in turn.

    A shard is asked once more when the gather is pulled again after the last item of its previous answer was handed on.
    """

    def __init__(self, run: Any, shards: list[OpenShard], label: str, num_async: int) -> None:
        super().__init__(run, shards, label)
        self.num_async = num_async
        self.ready: deque[OpenShard] = deque()
        self.items: deque[Any] = deque()
        self.failure: BaseException | None = None
        self.serving: OpenShard | None = None

    def mark_ready(self, shard: OpenShard) -> None:
        shard.num_ready += 1
        self.ready.append(shard)

    def pull(self) -> Any:
        if self.items:
            return self.items.popleft()
        if self.num_parked:
            self.ask_the_parked()
        while True:
            shard = self.serving
            if shard is not None:
                if self.failure is not None:
                    failure, self.failure = self.failure, None
                    raise failure
                self.serving = None
                if not shard.ended:
                    self.ask(shard)
            elif not self.started:
                self.started = True
                for _ in range(self.num_async):
                    for shard in self.live:
                        self.ask(shard)
            if not self.ready:
                self.is_awaited = True
                return self.nothing_yet if self.live else END
            shard = self.ready.popleft()
            if shard.ended or not shard.calls:
                continue
            self.serving = shard
            call = shard.calls[0]
            x = self.answer_of(shard)
            self.sources = shard.sources
            if x.__class__ is not Answer:
                shard.num_received += 1
                self.run.arrived = (x, call)
                if shard.num_parked:
                    self.unpark(shard, shard.num_parked)
                return x
            self.failure = self.open_answer(x, shard)
            shard.num_received += len(x.items)
            if x.signal is BLOCKED and self.failure is None:
                self.serving = None
                self.park(shard)
                self.ask_the_parked()
            elif shard.num_parked and x.items:
                self.unpark(shard, shard.num_parked)
            if x.items:
                self.items.extend(x.items)
                return self.items.popleft()

    def close(self) -> None:
        """What was received and not handed on is dropped with the run."""
        if self.serving is not None:
            self.serving.num_received -= len(self.items)
            self.items.clear()

    @property
    def num_in(self) -> int:  # type: ignore[override]
        """Items received so far."""
        return sum(shard.num_received for shard in self.shards)

    @property
    def num_out(self) -> int:  # type: ignore[override]
        """Items handed on so far."""
        return sum(shard.num_received for shard in self.shards) - len(self.items)

    @property
    def num_held(self) -> int:
        return len(self.items)


_Entry: TypeAlias = tuple[Any, OpenShard, BaseException | None]


class BarrierGather(_Gather):
    """`gather_sync` and `batch_across_shards`: one call a shard, all answers, then the next round. Order: shard order."""

    def __init__(self, run: Any, shards: list[OpenShard], label: str, lists: bool) -> None:
        super().__init__(run, shards, label)
        self.lists = lists
        self.round: deque[_Entry] = deque()
        self.partial: dict[OpenShard, list[_Entry]] = {}
        """What a round has so far while some shard is still at work."""

    def pull(self) -> Any:
        while True:
            if self.round:
                if self.lists:
                    return self._whole_round()
                x, shard, failure = self.round.popleft()
                if failure is not None:
                    raise failure
                self.sources = shard.sources
                shard.num_received += 1
                self.num_out += 1
                return x
            if not self.live:
                return END
            if self.num_parked:
                self.ask_the_parked()
            elif not self.partial and not self.live[0].calls:
                for shard in self.live:
                    self.ask(shard)
            for shard in self.live:
                if not shard.num_ready and shard not in self.partial:
                    self.is_awaited = True
                    return self.nothing_yet
            self._collect()

    def _collect(self) -> None:
        at_work = []
        for shard, x in self._answers([shard for shard in self.live if shard not in self.partial]):
            entries = self._entries(shard, x)
            if entries is not None:
                self.partial[shard] = entries
            elif x.signal is BLOCKED:
                self.park(shard)
            else:
                at_work.append(shard)
        for shard in at_work:
            self.ask(shard)
        if not at_work and not self.num_parked:
            for shard in self.shards:
                self.round.extend(self.partial.pop(shard, ()))

    def _answers(self, shards: list[OpenShard]) -> Iterator[tuple[OpenShard, Any]]:
        """Each shard and its answer: all in one call of the engine, unless one of them has failed. That one is in the round already."""
        try:
            values = self.run.results([shard.calls[0] for shard in shards])
        except KeyboardInterrupt:
            raise
        except BaseException:
            for shard in shards:
                try:
                    x = self.answer_of(shard)
                except KeyboardInterrupt:
                    self.partial[shard] = []
                    raise
                except BaseException as error:
                    self.partial[shard] = [(None, shard, error)]
                else:
                    yield shard, x
        else:
            for shard in shards:
                self.take(shard)
            yield from zip(shards, values)

    def _entries(self, shard: OpenShard, x: Any) -> list[_Entry] | None:
        """What a shard's answer adds to the round; None where it has nothing yet."""
        if x.__class__ is not Answer:
            return [(x, shard, None)]
        failure = self.open_answer(x, shard)
        entries: list[_Entry] = [(item, shard, None) for item in x.items]
        if failure is not None:
            entries.append((None, shard, failure))
        return entries if entries or x.signal is END else None

    def _whole_round(self) -> list[Any]:
        for index, (_, _, failure) in enumerate(self.round):
            if failure is not None:
                del self.round[index]
                raise failure
        items = [x for x, _, _ in self.round]
        for _, shard, _ in self.round:
            shard.num_received += 1
        self.sources = tuple(source for _, shard, _ in self.round for source in shard.sources)
        self.round.clear()
        self.num_out += 1
        return items

    @property
    def num_in(self) -> int:  # type: ignore[override]
        """Items received so far."""
        return sum(shard.num_received for shard in self.shards) + self.num_held

    @property
    def num_held(self) -> int:
        return len(self.round) + sum(len(entries) for entries in self.partial.values())
