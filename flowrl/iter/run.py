"""A run: it checks the plan, opens what the plan names, has it compiled, and is where the driver sleeps.

Everything that a run opens hangs on one exit stack and is closed in reverse, whatever happens. When no stage has an item
the run sleeps once, on everything together: in the engine's `wait` where there are only calls, else on one event that
calls, queues and threads set.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict, deque
from contextlib import ExitStack
from typing import Any

from flowrl.errors import ActorDiedError, DeadlockError, NotOpenError
from flowrl.iter import opening
from flowrl.iter.compile import build
from flowrl.iter.engine import Draw, Engine, SerialEngine
from flowrl.iter.gathers import BarrierGather
from flowrl.iter.handles import Handle
from flowrl.iter.naming import label_of
from flowrl.iter.nodes import Dequeue, LinearStage, Node, Shuffle, Stage, Union, queue_of, walk
from flowrl.iter.passes import check, named_handles
from flowrl.iter.queues import Port, Queue
from flowrl.iter.signals import BUSY, END, PENDING, Signal, with_note
from flowrl.metrics.context import MetricsContext
from flowrl.metrics.names import NUM_ITEMS_DROPPED

__all__ = ["Run"]

LOOK_EVERY_S = 0.0005
AT_ONCE_S = 0.0002
LOOK_EVERY_SLEEPS = 16
"""`wait` for one of several calls may pass by others that are ready, so after so many sleeps the run looks at all of them: on Ray that
costs 76 us where none is ready, and 3 us where one is. A `wait` that came back at once passed some by more likely: two are enough."""
CHECK_EVERY_S = 0.25
"""How often a sleeping run asks the `check` of its `Dequeue`s."""
RETRY_S = 0.25
"""After how long a source that has nothing to give is asked again, where somebody outside the run may have reached it."""
COUNTED_ITEM_S = 0.001
TOLD_S = 2.0
"""How long the end of a run waits for them."""
HEAR_EVERY_S = 0.1
"""How often the run looks at them: all at once, and it is not woken by them, since who waits for an item would only go to sleep again."""
MAX_TOLD = 64
"""How many calls that nobody waits for may be on their way before the run looks at them."""
MAX_TOLD_EACH = 16
"""How many of them may be on their way to one actor: the next one waits for the oldest, so that who lags holds up who feeds it."""


class Run:
    """One run of a plan on an engine. `Stream` is its public face."""

    def __init__(self, root: Node, engine: Engine) -> None:
        check(root)
        self.root_node, self.engine = root, engine
        self.metrics = MetricsContext(run=self)
        self.pending: dict[Any, tuple[Any, Any]] = {}
        self.dead_actors: set[Any] = set()
        self.told: list[BaseException] = []
        """Errors that no item stands for, on their way to the consumer."""
        self.told_to: defaultdict[Any, deque[Any]] = defaultdict(deque)
        """The calls on their way to each actor that nobody waits for, oldest first."""
        self.stages: dict[Node, tuple[Any, int]] = {}
        """Where each node's items come out: a stage, and which of its counts (-1: `num_out`)."""
        self.objects: list[Any] = []
        self.gathers: list[Any] = []
        self.polled: list[Any] = []
        """The sources in the driver that may have nothing yet."""
        self.ports: dict[int, Port] = {}
        self.seeds: dict[Node, int] = {}
        self.feeds: list[Any] = []
        self.meeting: list[Any] = []
        """Stages at which branches wait for each other: the ends of queues, the children of a duplicate."""
        self.dequeues: list[Any] = []
        self.moves = 0
        self.found = False
        """Whether a look has seen calls done since the run last asked itself whether it may sleep."""
        self.shard_plans: list[tuple[Any, Any]] = []
        """Each shard that is read, as the plan has it and as it is open."""
        self.event = threading.Event()
        self.notices: dict[Any, Any] = {}
        """What the engine said of the calls that are to set the event: whether they are done, and what came of them."""
        self.arrived: tuple[Any, Any] = (None, None)
        """The last item that came out of an actor by itself, and its call."""
        self.stack = ExitStack()
        self.draw = Draw(engine.seed) if isinstance(engine, SerialEngine) else None
        self.looked = self.heard = 0.0
        self.num_sleeps = 0
        """Sleeps since the last look at all calls."""
        self.started_s = time.monotonic()
        self.root: Any = None
        self.lone_barrier = False
        self.closed = self.has_checks = self.has_branches = self.thread_between = self.threads_wait = False
        self.retrying = False
        """Whether sources that had nothing to give are to be asked again, though nothing of this run has reached them."""

    # --- opening and closing ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start what the plan names and make the stages; on an error all of it is closed again."""
        try:
            nodes = walk(self.root_node)
            self.tagged = any(isinstance(node, Stage) and node.operator.startswith("zip_with_source") for node in nodes)
            self.has_branches = any(isinstance(node, Union) for node in nodes)
            handles = named_handles(self.root_node)
            opening.prepare(self, list(handles))
            for handle, node in handles.items():
                self._open_named(handle, node)
            self._open_ports(nodes)
            self.root = build(self, self.root_node)
            self.lone_barrier = len(self.gathers) == 1 and isinstance(self.gathers[0], BarrierGather) and not self.ports
            self.has_checks = any(isinstance(node, Dequeue) and node.check is not None for node in nodes)
            self.started_s = time.monotonic()
        except BaseException:
            self.close()
            raise

    def _open_named(self, handle: Handle, node: Node) -> None:
        try:
            self.open_handle(handle)
        except Exception as error:
            with_note(error, f"while the {type(handle).__name__} of {label_of(node)} was opened")
            raise

    def open_handle(self, handle: Handle) -> None:
        """Open a handle for as long as this run lasts."""
        if self.closed:
            raise NotOpenError(f"the run that {handle!r} was to be opened for is closed: run the plan again")
        handle.retain(self.engine)
        self.stack.callback(handle.release)
        handle.join_run(self)

    def close(self) -> None:
        """Close all that was opened, last first; what is in flight at actors that go on is dropped and counted."""
        self.closed = True
        try:
            opening.leave(self)
        finally:
            self.pending.clear()
            self.notices.clear()
            self.arrived = (None, None)
            self.stack.close()

    def tell(self, call: Any, to: Any = None, by: str = "a message") -> None:
        """A call (`to` an actor or its handle) whose answer nobody waits for: if it fails, the consumer hears of it, with a note of `by`.

        At most 16 are on their way to one actor; the next one waits for the oldest of them.
        """
        self.pending[call] = (_Told(self, call, to, by), None)
        if to is not None:
            on_their_way = self.told_to[to]
            on_their_way.append(call)
            if len(on_their_way) > MAX_TOLD_EACH:
                self._hear(list(on_their_way))
            while len(on_their_way) > MAX_TOLD_EACH:
                self._mark_ready(self.engine.wait([on_their_way[0]])[0])
        if len(self.pending) > MAX_TOLD:  # a plan that never sleeps would never look at them
            self._hear(self._calls_told())

    def result(self, call: Any) -> Any:
        """The value of a call that is done, or being waited for; raises what the method raised."""
        return self.engine.result(call, self.notices.pop(call, None))

    def results(self, calls: list[Any]) -> list[Any]:
        """The values of several calls; raises what one of them raised."""
        for call in calls:
            self.notices.pop(call, None)
        return self.engine.results(calls)

    def as_it_came(self, item: Any) -> Any:
        """What to pass to an actor in place of `item`: its name at the engine, where it never changes and is what an actor gave last."""
        arrived, call = self.arrived
        same = item is arrived and getattr(type(item), "__flowrl_frozen__", False)
        return self.engine.named_by(call, item) if same else item

    def knows_dead(self, actor: Any) -> bool:
        """Whether the run has told of this actor's (or handle's) death."""
        return actor in self.dead_actors

    def is_first_news_of(self, dead: Any) -> bool:
        """Whether nobody has told yet that this actor is dead: it is told of once."""
        if dead in self.dead_actors:
            return False
        self.dead_actors.add(dead)
        return True

    def count_dropped(self, num_items: int) -> None:
        """Items that were made and will not be handed out."""
        if num_items > 0:
            self.metrics.counters[NUM_ITEMS_DROPPED] += num_items

    def _open_ports(self, nodes: list[Node]) -> None:
        for node in nodes:
            shared = queue_of(node)
            if shared is None:
                continue
            if id(shared) not in self.ports:
                if isinstance(shared, Queue):
                    self.open_handle(shared)
                self.ports[id(shared)] = port = Port(shared, self.event.set)
                self.stack.callback(port.close)
            port = self.ports[id(shared)]
            port.readers += isinstance(node, Dequeue)
            port.writers += not isinstance(node, Dequeue)
        for port in self.ports.values():
            if port.worker is not None:
                port.far = self.ports.get(id(port.worker.outqueue if port.queue is port.worker.inqueue else port.worker.inqueue))
            port.outside = port.far is None and (port.readers == 0 or port.writers == 0)
        # A thread between two queues of the plan waits for one branch and makes another ready: no branch waits for it alone.
        alone = [port for port in self.ports.values() if port.far is None]
        self.thread_between = all(any(getattr(port, end) == 0 for port in alone) for end in ("readers", "writers"))
        self.threads_wait = any(port.outside or (port.worker is not None and not port.worker.is_stepped) for port in self.ports.values())
        for port in alone:
            port.only_branches = not port.outside or self.thread_between

    def seeded(self, node: Stage) -> LinearStage:
        """The node's stage; a shuffle without a seed gets one for this run, on the serial engine from the engine's own."""
        stage = node.stage
        if not isinstance(stage, Shuffle) or stage.seed is not None:
            return stage
        if node not in self.seeds:
            draws = (
                random.Random(f"{self.engine.seed}/{len(self.seeds)}") if isinstance(self.engine, SerialEngine) else random.SystemRandom()
            )
            self.seeds[node] = draws.getrandbits(32)
        return Shuffle(stage.shuffle_buffer_size, self.seeds[node])

    # --- moving and waiting -------------------------------------------------------------------------------------

    def next(self) -> Any:
        """The next item, or END; raises a user's error, after which the next call goes on with the next item."""
        x = self.root.pull()
        return self.next_after(x) if x.__class__ is Signal else x

    def next_after(self, x: Any) -> Any:
        """The next item after a pull of the root has given the signal `x`."""
        while x.__class__ is Signal and x is not END:
            if x is not BUSY and not self._has_moved():
                self._sleep(x)
                for stage in self.dequeues:
                    stage.raise_overdue()
            if self.told:
                raise self.told.pop(0)
            x = self.root.pull()
            self.retrying = False
        return x

    def hear_the_told(self) -> None:
        """At the end: raise the errors of calls that nobody waited for, one a time."""
        calls = self._calls_told()
        if calls:
            self._mark_ready(self.engine.wait(calls, TOLD_S, len(calls))[0])
        if self.told:
            raise self.told.pop(0)

    def _calls_told(self) -> list[Any]:
        return [call for call, (_, shard) in self.pending.items() if shard is None]

    def _hear(self, told: list[Any]) -> None:
        """See which of these calls are done: one look and one fetch for all, each by itself only where one has failed."""
        self.heard = time.perf_counter()
        done = self.engine.wait(told, 0, len(told))[0]
        try:
            self.results(done)
        except Exception:
            self._mark_ready(done)
        else:
            for call in done:
                self.pending.pop(call)[0].forget()

    def _hear_in_time(self, told: list[Any]) -> None:
        """`_hear`, each 0.1 s; a barrier hears them with each round: one made with weights that were refused is one too many."""
        if told and (self.lone_barrier or time.perf_counter() - self.heard >= HEAR_EVERY_S):
            self._hear(told)

    def _has_moved(self) -> bool:
        """Whether something came about since the last time that a branch which was asked before could not know.

        A call was seen done, or items passed between branches: who was PENDING or BLOCKED then may have its turn now.
        """
        moved, self.found = self.found, False
        if self.meeting:
            moves = sum(stage.num_out for stage in self.meeting) - sum(port.writers for port in self.ports.values())
            moved, self.moves = moved or moves != self.moves, moves
        return moved

    def look(self) -> None:
        """See which calls are done, though nobody waits: at most each 0.5 ms; on the serial engine, run one."""
        num_pending = len(self.pending)
        if self.draw is not None:
            self._run_one()
        else:
            now = time.perf_counter()
            if now - self.looked < LOOK_EVERY_S:
                return
            self._see(now)
        if len(self.pending) < num_pending:
            self.found = True
        if self.told:
            raise self.told.pop(0)

    def _run_one(self) -> None:
        assert self.draw is not None
        calls = [call for call in self.pending if not call.done]
        if calls:
            call = self.draw.pick(calls)
            call.actor.drain(call)
        self._mark_ready([call for call in self.pending if call.done])

    def _mark_ready(self, calls: list[Any]) -> None:
        for call in calls:
            gather, shard = self.pending.pop(call)
            gather.mark_ready(shard)

    def _sleep(self, signal: Signal) -> None:
        if self.draw is not None and self.pending:
            self._run_one()
        elif self.pending and not self.threads_wait:
            self._wait_for_call()
        elif self.pending or (self.threads_wait and (signal is PENDING or self.thread_between)):
            self._wait_for_event(signal)
        elif signal is PENDING:  # for what somebody outside this run may do to an actor
            self.event.wait(RETRY_S)
            self.retrying = True
        else:
            raise self._deadlock()

    @property
    def _retry_s(self) -> float | None:
        """None, unless somebody outside this run may have reached a source meanwhile."""
        waits = any(gather.num_parked and gather.nothing_yet is PENDING for gather in self.gathers)
        return RETRY_S if waits and self.draw is None else None

    def _wait_for_call(self) -> None:
        calls, told = self._on_their_way()
        if len(self.gathers) > 1:
            calls = self._awaited(calls) or calls
        done: list[Any] = []
        if self.lone_barrier:
            done = calls  # it needs all of its own, so it sleeps where it gets them
        elif self.num_sleeps >= LOOK_EVERY_SLEEPS:
            self.num_sleeps = 0
            done = self.engine.wait(calls, 0, len(calls))[0]
        if not done:
            start = time.perf_counter()
            done = self.engine.wait(calls, self._timeout_s(told), 1)[0]
            at_once = time.perf_counter() - start < AT_ONCE_S
            self.num_sleeps += LOOK_EVERY_SLEEPS // 2 if at_once else 1
            self.retrying = not done and not told
        self._mark_ready(done)
        self._hear_in_time(told)

    def _see(self, now: float) -> None:
        """Mark the calls that are done by now."""
        self.looked = now
        calls, told = self._on_their_way()
        self._mark_ready(self.engine.wait(calls, 0, len(calls))[0])
        self._hear_in_time(told)

    def _on_their_way(self) -> tuple[list[Any], list[Any]]:
        """The calls that stages made, and those that only their error matters of; where there are no others, these for the former."""
        calls = [call for call, (_, shard) in self.pending.items() if shard is not None]
        if len(calls) == len(self.pending):
            return calls, []
        told = self._calls_told()
        return (calls, told) if calls else (told, [])

    def _awaited(self, calls: list[Any]) -> list[Any]:
        """Those of a gather that was pulled in vain: the others' answers nobody could take now, as behind a full queue."""
        return [call for call in calls if getattr(self.pending[call][0], "is_awaited", True)]

    def _timeout_s(self, told: list[Any]) -> float | None:
        """How long to sleep at most: None for ever."""
        return HEAR_EVERY_S if told else self._retry_s

    def _wait_for_event(self, signal: Signal) -> None:
        """Sleep on calls, queues and threads together. Whoever changes something sets the event, also before we sleep."""
        calls, told = self._on_their_way()
        if signal is PENDING:  # else it may be a deadlock, which the last call shows
            calls = self._awaited(calls)
        oldest = {self.pending[call][1] or call: call for call in reversed(calls)}  # a shard answers in the order of its calls
        for call in oldest.values():
            if call not in self.notices:
                self.notices[call] = self.engine.notify(call, self.event.set)
        for port in self.ports.values():
            if port.outside:
                port.watch()
        timeout_s = self._timeout_s(told) or (CHECK_EVERY_S if self.has_checks else None)
        self.retrying = not self.event.wait(timeout_s) and not told
        self.event.clear()
        self._mark_ready([call for call, notice in self.notices.items() if call in self.pending and notice.done()])
        self.looked = time.perf_counter()
        self._hear_in_time(told)

    def _deadlock(self) -> DeadlockError:
        reasons = [why for stage in self.objects if hasattr(stage, "why_blocked") and (why := stage.why_blocked())]
        return DeadlockError(
            "every branch of the plan waits for another one, so nothing can move: "
            + "; ".join(reasons)
            + ". Give a queue more room, read it in a branch of its own, or consume the branches side by side with Concurrently"
        )

    def now_s(self) -> float:
        """Seconds since the run began; counted on the serial engine, 1 ms an item that the driver took from a source."""
        if self.engine.clock == "count":
            taken: int = sum(step.counts[0] for step in self.feeds) + sum(source.num_out for source in [*self.gathers, *self.polled])
            return taken * COUNTED_ITEM_S
        return time.monotonic() - self.started_s


class _Told:
    """Stands in `pending` for a call that only its error matters of."""

    def __init__(self, run: Run, call: Any, to: Any, by: str) -> None:
        self.run, self.call, self.to, self.by = run, call, to, by

    def forget(self) -> None:
        """The call is done, without an error."""
        if self.to is not None:
            self.run.told_to[self.to].remove(self.call)

    def mark_ready(self, shard: None) -> None:
        """The call is done: keep its error for the consumer."""
        self.forget()
        try:
            self.run.result(self.call)
        except Exception as error:
            if not isinstance(error, ActorDiedError) or self.to is None or self.run.is_first_news_of(self.to):
                self.run.told.append(with_note(error, f"in {self.by}{getattr(self.to, 'where', '')}"))
