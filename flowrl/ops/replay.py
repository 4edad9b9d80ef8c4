"""Operators around replay: rows go in, batches come out, and what a learner finds goes back as priorities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from flowrl.batch import SampleBatch
from flowrl.errors import ActorDiedError, PlanError
from flowrl.iter.handles import ActorHandle
from flowrl.iter.iterators import LocalIterator, ParallelIterator
from flowrl.iter.naming import plan_line, short
from flowrl.iter.nodes import Actors, LocalSource
from flowrl.iter.sources import Polled
from flowrl.learner.learner_thread import Priorities, priorities_of
from flowrl.metrics.context import get_metrics
from flowrl.metrics.names import NUM_STEPS_TRAINED
from flowrl.replay.local_buffer import LocalReplayBuffer

__all__ = ["Replay", "ReplayedRows", "StoreToReplayBuffer", "UpdatePriorities"]


@dataclass(kw_only=True)
class StoreToReplayBuffer:
    """Stores each batch and hands it on: in the local buffer, or in the replay actors, one after the other. For `.for_each()`.

    At most 16 batches are on their way to an actor: the next one waits, so that replay that lags holds up sampling. An actor that has
    died is passed by; the run raises that once. We differ from RLlib, which draws the actor at random.
    """

    actors: Sequence[ActorHandle] | None = None
    local_buffer: LocalReplayBuffer | None = None
    sends = "rows"

    num_stored: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.actors = _checked("StoreToReplayBuffer", self.actors, self.local_buffer)
        self.label = f"StoreToReplayBuffer at {plan_line()}"

    def __call__(self, batch: SampleBatch) -> SampleBatch:
        if self.local_buffer is not None:
            self.local_buffer.add_batch(batch)
        else:
            self._send(batch)
        self.num_stored += 1
        return batch

    def _send(self, batch: SampleBatch) -> None:
        run = get_metrics().run
        living = [actor for actor in self.actors or () if not run.knows_dead(actor)]
        if not living:
            raise ActorDiedError("all replay actors have died, so there is nowhere to store: run the plan again, which starts new ones")
        actor = living[self.num_stored % len(living)]
        run.tell(actor.add_batch.remote(run.as_it_came(batch)), to=actor, by=self.label)


def Replay(
    *, actors: Sequence[ActorHandle] | None = None, local_buffer: LocalReplayBuffer | None = None, num_async: int = 4
) -> LocalIterator[SampleBatch]:
    """Replayed batches, for ever: of the local buffer, or of the replay actors as they are ready, at most `num_async` in flight each.

    Nothing comes before there are `learning_starts` rows (each actor: its part); a union goes on with its other branches then,
    and owes this one its turns.
    """
    line = plan_line()
    shards = _checked("Replay", actors, local_buffer)
    if local_buffer is not None:
        return LocalIterator(LocalSource(line=line, iterable=ReplayedRows(local_buffer), name="", operator="Replay"))
    assert shards is not None
    replay: ParallelIterator[SampleBatch] = ParallelIterator(Actors(line=line, actors=tuple(shards), name="", operator="Replay"))
    return replay.gather_async(num_async=num_async)


class ReplayedRows(Polled):
    """A local buffer as a source in the driver."""

    def __init__(self, local_buffer: LocalReplayBuffer) -> None:
        super().__init__(local_buffer.replay, local_buffer.what_it_waits_for)
        self.local_buffer = local_buffer


@dataclass(kw_only=True)
class UpdatePriorities:
    """Tells replay what the learner found of its rows, and hands the item on. For `.for_each()`.

    Without a buffer the items are a learner's, (who replayed the batch, priorities, rows), and it adds to `num_steps_trained`, since
    the learner works outside the plan. With `local_buffer` they are `TrainOneStep`'s, (batch, statistics).
    """

    local_buffer: LocalReplayBuffer | None = None
    sends = "priorities"

    def __post_init__(self) -> None:
        if not isinstance(self.local_buffer, LocalReplayBuffer | None):
            raise PlanError(f"UpdatePriorities(local_buffer={short(self.local_buffer)}) at {plan_line()}: pass a LocalReplayBuffer")
        self.label = f"UpdatePriorities at {plan_line()}"

    def __call__(self, item: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.local_buffer is not None:
            batch: SampleBatch = item[0]
            self.local_buffer.update_priorities(priorities_of(batch, batch.get("td_errors")))
            return item
        try:
            actor, priorities, num_rows = item
        except (TypeError, ValueError):
            raise TypeError(
                f"UpdatePriorities() was given {short(item)}: expected a learner's (who replayed, priorities, rows); after TrainOneStep, "
                "whose items are (batch, statistics), say local_buffer="
            ) from None
        get_metrics().counters[NUM_STEPS_TRAINED] += num_rows
        self._tell(actor, priorities)
        return item

    def _tell(self, actor: Any, priorities: Priorities) -> None:
        if actor is not None and priorities:
            get_metrics().run.tell(actor.update_priorities.remote(priorities), to=actor, by=self.label)


def _checked(operator: str, actors: Any, local_buffer: Any) -> list[ActorHandle] | None:
    """The replay actors, if there are some; `PlanError` where neither they nor a buffer are given, or both."""
    line = plan_line()
    if (actors is None) == (local_buffer is None):
        raise PlanError(f"{operator} at {line}: give either actors=[...] or local_buffer=, where the rows are")
    if local_buffer is not None:
        if not isinstance(local_buffer, LocalReplayBuffer):
            raise PlanError(f"{operator}(local_buffer={short(local_buffer)}) at {line}: pass a LocalReplayBuffer")
        return None
    if not isinstance(actors, Sequence) or not actors or not all(isinstance(actor, ActorHandle) for actor in actors):
        raise PlanError(f"{operator}(actors={short(actors)}) at {line}: pass the list that create_colocated(ReplayActor, ...) gives")
    return list(actors)
