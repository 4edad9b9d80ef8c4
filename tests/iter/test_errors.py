"""A user's error: it keeps its type, says where it came from, and the plan lives on. And no signal is ever an item."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import queue
import re
import threading
import time

import pytest

from flowrl.errors import ActorDiedError, QueueClosedError, RunError
from flowrl.iter import Queue, from_actors, from_iterable, from_range
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.oddities import MAKERS
from tests.iter.reading import drain, notes_of, one_error
from tests.iter.workers import Source, raise_at

BAD = raise_at(3)


def here() -> int:
    """The line that calls it."""
    return inspect.currentframe().f_back.f_lineno


def through_queue(branch):
    shared = Queue(2)
    return Concurrently([branch.for_each(Enqueue(shared)), Dequeue(shared)], mode="async", output_indexes=[1])


def both_children(branch):
    first, second = branch.duplicate(2)
    return Concurrently([first, second], mode="round_robin", output_indexes=[0])


# What a plan over items 0 to 5 does with them, the bad one being 3: how, the operator that an error names, and whether it is in a shard.
PLACES = {
    "for_each in a shard": (lambda s: s.for_each(BAD).gather_sync(), "for_each", True),
    "filter in a shard": (lambda s: s.filter(lambda x: BAD(x) >= 0).gather_sync(), "filter", True),
    "combine in a shard": (lambda s: s.combine(lambda x: [BAD(x)]).gather_sync(), "combine", True),
    "for_each(max_concurrency=2)": (lambda s: s.for_each(BAD, max_concurrency=2).gather_sync(), "for_each", True),
    "batch across shards": (lambda s: s.for_each(BAD).batch_across_shards().flatten(), "for_each", True),
    "gather_async": (lambda s: s.for_each(BAD).gather_async(num_async=2), "for_each", True),
    "batch_ms": (lambda s: s.for_each(BAD).gather_async(batch_ms=4), "for_each", True),
    "get_shard": (lambda s: s.for_each(BAD).get_shard(0), "for_each", True),
    "inside a batch in a shard": (lambda s: s.for_each(BAD).batch(2).gather_sync().flatten(), "for_each", True),
    "under a shuffle in a shard": (lambda s: s.for_each(BAD).local_shuffle(3, seed=1).gather_sync(), "for_each", True),
    "under a transform in a shard": (lambda s: s.for_each(BAD).transform(lambda it: (x for x in it)).gather_sync(), "for_each", True),
    "above a repartition": (lambda s: s.for_each(BAD).repartition(1).gather_sync(), "for_each", True),
    "below a repartition": (lambda s: s.repartition(1).for_each(BAD).gather_sync(), "for_each", True),
    "through a repartition in batches": (lambda s: s.for_each(BAD).repartition(1, batch_ms=3).gather_async(), "for_each", True),
    "for_each in the driver": (lambda s: s.gather_sync().for_each(BAD), "for_each", False),
    "filter in the driver": (lambda s: s.gather_sync().filter(lambda x: BAD(x) >= 0), "filter", False),
    "combine in the driver": (lambda s: s.gather_sync().combine(lambda x: [BAD(x)]), "combine", False),
    "inside a batch in the driver": (lambda s: s.gather_sync().for_each(BAD).batch(2).flatten(), "for_each", False),
    "under a shuffle in the driver": (lambda s: s.gather_sync().for_each(BAD).shuffle(3, seed=1), "for_each", False),
    "under a transform in the driver": (lambda s: s.gather_sync().for_each(BAD).transform(lambda it: (x for x in it)), "for_each", False),
    "above a transform in the driver": (lambda s: s.gather_sync().transform(lambda it: (x for x in it)).for_each(BAD), "for_each", False),
    "in a union": (lambda s: s.gather_sync().for_each(BAD).union(from_iterable([])), "for_each", False),
    "after a union": (lambda s: s.gather_sync().union(from_iterable([]), deterministic=True).for_each(BAD), "for_each", False),
    "above a duplicate": (lambda s: both_children(s.gather_sync().for_each(BAD)), "for_each", False),
    "above an Enqueue": (lambda s: through_queue(s.gather_async().for_each(BAD)), "for_each", False),
    "after a Dequeue": (lambda s: through_queue(s.gather_async()).for_each(BAD), "for_each", False),
    "in the driver alone": (lambda s: from_iterable(range(6)).for_each(BAD), "for_each", False),
    "a flatten of what is no list": (
        lambda s: s.gather_sync().for_each(lambda x: 3 if x == 3 else [x]).flatten(),
        "flatten",
        False,
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_the_plan_lives_on_after_an_error(engine, place):
    make, _, _ = PLACES[place]
    with make(engine.shards(range(6))).run() as stream:
        seen = drain(stream)
        assert list(stream) == []
    error = one_error(seen)
    items = [item for item in seen if item is not error]
    assert sorted(items) == [0, 1, 2, 4, 5]
    if "shuffle" not in place:
        assert items == [0, 1, 2, 4, 5]


@pytest.mark.parametrize("place", PLACES)
def test_an_error_names_operator_plan_line_shard_and_item(engine, place):
    make, operator, in_shard = PLACES[place]
    with make(engine.shards(range(6))).run() as stream:
        error = one_error(drain(stream))
    line = make.__code__.co_firstlineno
    if "no list" in place:
        assert type(error) is TypeError
    else:
        assert type(error) is ValueError
        assert str(error) == "item 3"
    notes = notes_of(error)
    assert re.search(rf"in {operator}\(.*\) at test_errors\.py:{line}\b", notes), notes
    assert "item 3" in notes
    assert (", shard 0 of 1" in notes) == in_shard, notes
    assert not re.search(r"(iterators|nodes|run|chain|fuse|concurrency|gathers|shard|stream)\.py", notes), notes


def test_a_function_is_shown_with_its_own_line_too(engine):
    fn_line = here() + 1
    fn = lambda x: 1 / x  # noqa: E731
    plan_line = here() + 1
    plan = engine.shards([0]).for_each(fn).gather_sync()
    with pytest.raises(ZeroDivisionError) as caught:
        plan.take(1)
    assert f"in for_each(<lambda> @ test_errors.py:{fn_line}) at test_errors.py:{plan_line}, shard 0 of 1, item 0" in notes_of(caught.value)


def test_an_error_names_the_shard_of_the_plan_not_of_the_run(engine):
    shards = engine.shards([1], [2], [3]).for_each(raise_at(3))
    with pytest.raises(ValueError, match="item 3") as caught:
        list(shards.get_shard(2))
    assert "shard 2 of 3" in notes_of(caught.value)


def test_a_long_item_is_shown_short(engine):
    with pytest.raises(TypeError) as caught:
        engine.shards([list(range(10_000))]).for_each(lambda x: x + 1).gather_sync().take(1)
    assert len(notes_of(caught.value)) < 400


def test_an_item_that_cannot_be_shown_does_not_hide_the_error(engine):
    class Unshowable:
        def __repr__(self):
            raise RuntimeError("no repr")

    with pytest.raises(TypeError, match="unsupported operand") as caught:
        engine.shards([Unshowable()]).for_each(lambda x: x + 1).gather_sync().take(1)
    assert "Unshowable" in notes_of(caught.value)


def test_the_remote_traceback_shows_the_users_line(engine):
    import traceback

    with pytest.raises(ValueError, match="item 3") as caught:
        engine.shards([3]).for_each(BAD).gather_sync().take(1)
    assert "workers.py" in "".join(traceback.format_exception(caught.value))


def test_a_note_is_there_once_however_often_the_error_passes(engine):
    with pytest.raises(ValueError, match="item 3") as caught:
        engine.shards([3]).for_each(BAD).repartition(1).gather_sync().batch(1).for_each(lambda x: x).take(1)
    notes = caught.value.__notes__
    assert len(notes) == len(set(notes))
    assert sum("for_each" in note for note in notes) == 1


# --- types ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", ["for_each", "for_each(max_concurrency=2)", "repartition", "driver", "transform"])
@pytest.mark.parametrize("kind", MAKERS)
def test_an_error_keeps_its_type_and_state(engine, kind, stage):
    make = MAKERS[kind]

    def fail(item):
        raise make()

    def fail_after(items):
        yield from items
        raise make()

    plans = {
        "for_each": lambda: engine.shards([1]).for_each(fail).gather_sync(),
        "for_each(max_concurrency=2)": lambda: engine.shards([1]).for_each(fail, max_concurrency=2).gather_sync(),
        "repartition": lambda: engine.shards([1]).for_each(fail).repartition(1).gather_sync(),
        "driver": lambda: engine.shards([1]).gather_sync().for_each(fail),
        "transform": lambda: engine.shards([]).transform(fail_after).gather_sync(),
    }
    if stage == "repartition" and engine.name == "ray" and kind != "a frozen dataclass":
        stage = "for_each"  # a partition is an actor of its own, and one kind shows that the way back is the same
    with plans[stage]().run() as stream:
        error = one_error(drain(stream))
    assert type(error) is type(make())
    assert error.code == 7
    assert "test_errors.py:" in notes_of(error)


def test_an_error_of_a_class_that_no_worker_can_import_keeps_its_type(engine):
    class Local(Exception):
        def __init__(self, code, reason):
            super().__init__(reason)
            self.code = code

    def fail(item):
        raise Local(7, "local")

    with pytest.raises(Local, match="local") as caught:
        engine.shards([1]).for_each(fail).gather_sync().take(1)
    assert caught.value.code == 7


def test_an_error_keeps_its_own_notes_and_a_group_its_members(engine):
    def fail(item):
        error = ExceptionGroup("two", [ValueError("one"), KeyError("other")])
        error.add_note("of the user")
        raise error

    with pytest.raises(ExceptionGroup) as caught:
        engine.shards([1]).for_each(fail).gather_sync().take(1)
    assert [type(part) for part in caught.value.exceptions] == [ValueError, KeyError]
    assert caught.value.__notes__[0] == "of the user"


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit])
@pytest.mark.parametrize("options", [{}, {"batch_ms": 3}])
def test_what_is_no_exception_but_ends_no_process_is_an_error_too(engine, kind, options):
    with engine.shards(range(6)).for_each(raise_at(3, kind)).gather_async(**options).run() as stream:
        items = [next(stream) for _ in range(3)]
        with pytest.raises(kind) as caught:
            next(stream)
        assert [*items, *stream] == [0, 1, 2, 4, 5]
    assert "in for_each(" in notes_of(caught.value)


def test_an_interrupt_inside_a_shard_of_the_serial_engine_leaves_the_run_whole(serial):
    """Ctrl-C while the serial engine works: whoever catches it can go on, and the run can be left."""
    with serial.shards(range(4), range(10, 14)).for_each(raise_at(2, KeyboardInterrupt)).gather_async().run() as stream:
        seen = []
        for _ in range(20):
            try:
                seen.append(next(stream, None))
            except KeyboardInterrupt:
                seen.append("interrupted")
            except RunError as error:
                assert "was interrupted" in str(error)
                seen.append("lost")
    assert (seen.count("interrupted"), seen.count("lost")) == (1, 1)
    assert sorted(item for item in seen if isinstance(item, int)) == [0, 1, 3, 10, 11, 12, 13]


def test_built_in_errors_keep_their_fields(engine):
    def fail(item):
        raise FileNotFoundError(2, "not there", "some.file")

    with pytest.raises(FileNotFoundError) as caught:
        engine.shards([1]).for_each(fail).gather_sync().take(1)
    assert (caught.value.errno, caught.value.filename) == (2, "some.file")


# --- generators end, everything else goes on ------------------------------------------------------------------------


def failing_source():
    yield from range(3)
    raise ValueError("source")


def test_a_source_that_raised_is_finished_and_the_other_shards_go_on(engine):
    with engine.shards(failing_source, range(10, 16)).gather_sync().run() as stream:
        seen = drain(stream)
    error = one_error(seen)
    assert str(error) == "source"
    assert "in from_actors" in notes_of(error) and "shard 0 of 2" in notes_of(error)
    assert sorted(item for item in seen if item is not error) == [0, 1, 2, 10, 11, 12, 13, 14, 15]


def test_a_local_source_that_raised_is_finished(engine):
    line = here() + 1
    with from_iterable(failing_source).for_each(lambda x: x).run() as stream:
        seen = drain(stream)
    assert seen[:3] == [0, 1, 2] and len(seen) == 4
    assert "in from_iterable(failing_source" in notes_of(seen[3]) and f"test_errors.py:{line}" in notes_of(seen[3])


def test_a_source_function_that_raised_is_not_called_again(engine):
    calls = []

    def broken():
        calls.append(1)
        raise ValueError("cannot open")

    with from_iterable(broken).run() as stream:
        seen = drain(stream)
    assert [str(error) for error in seen] == ["cannot open"]
    assert calls == [1]


@pytest.mark.parametrize("where", ["shard", "driver", "local"])
def test_a_transform_that_raised_is_finished(engine, where):
    def fail_at_2(items):
        for item in items:
            if item == 2:
                raise ValueError("transform")
            yield item

    plans = {
        "shard": lambda: engine.shards(range(5), [10, 11]).transform(fail_at_2).gather_sync(),
        "driver": lambda: engine.shards(range(5)).gather_sync().transform(fail_at_2).union(from_iterable([10, 11])),
        "local": lambda: from_iterable(range(5)).transform(fail_at_2).union(from_iterable([10, 11])),
    }
    with plans[where]().run() as stream:
        seen = drain(stream)
    error = one_error(seen)
    assert str(error) == "transform"
    assert "in transform(" in notes_of(error) and "test_errors.py" in notes_of(error)
    assert sorted(item for item in seen if item is not error) == [0, 1, 10, 11]


@pytest.mark.parametrize("where", ["shard", "driver", "local"])
def test_an_error_above_a_transform_comes_before_the_transforms_own(engine, where):
    def fail_at_4(items):
        for item in items:
            if item == 4:
                raise ValueError("transform")
            yield item

    plans = {
        "shard": lambda: engine.shards([1, 3, 4, 5]).for_each(BAD).transform(fail_at_4).gather_sync(),
        "driver": lambda: engine.shards([1, 3, 4, 5]).gather_sync().for_each(BAD).transform(fail_at_4),
        "local": lambda: from_iterable([1, 3, 4, 5]).for_each(BAD).transform(fail_at_4),
    }
    with plans[where]().run() as stream:
        assert [str(item) for item in drain(stream)] == ["1", "item 3", "transform"]


@pytest.mark.parametrize("where", ["shard", "local"])
def test_a_transform_over_a_stage_that_always_fails_tells_of_it_soon(engine, where):
    def wrong(item):
        raise ValueError("always")

    plans = {
        "shard": lambda: engine.shards(itertools.count).for_each(wrong).transform(lambda it: (x for x in it)).gather_sync(),
        "local": lambda: from_iterable(itertools.count).for_each(wrong).transform(lambda it: (x for x in it)),
    }
    with plans[where]().run() as stream, pytest.raises(ValueError, match="always"):
        next(stream)


def test_every_item_may_fail(engine):
    def wrong(item):
        raise ValueError(str(item))

    with engine.shards(range(3), range(10, 13)).for_each(wrong).gather_async(num_async=2).run() as stream:
        assert sorted(str(error) for error in drain(stream)) == ["0", "1", "10", "11", "12", "2"]


# --- from anywhere, within seconds (A6) -----------------------------------------------------------------------------


def test_an_error_in_the_thread_that_a_dequeue_reads_from_is_told_by_its_check():
    """A6 (d): the thread dies; the consumer hears of it and never blocks."""
    shared: queue.Queue = queue.Queue(4)

    def work():
        for item in range(3):
            shared.put(item)

    thread = threading.Thread(target=work)
    thread.start()
    with Dequeue(shared, check=thread.is_alive).run() as stream:
        seen = drain(stream)
    thread.join()
    assert seen[:3] == [0, 1, 2]
    assert type(one_error(seen)) is QueueClosedError
    assert "test_errors.py" in notes_of(one_error(seen))


def test_an_error_of_the_check_itself_reaches_the_consumer():
    def check():
        raise KeyError("check")

    with Dequeue(queue.Queue(1), check=check).run() as stream, pytest.raises(KeyError, match="check") as caught:
        next(stream)
    assert "in Dequeue" in notes_of(caught.value)


def test_an_error_in_one_branch_leaves_the_others_as_they_were(engine):
    shards = engine.shards(range(4), [7, 8])
    branches = [shards.get_shard(0).for_each(BAD), from_iterable("abc"), shards.select_shards([1]).gather_sync()]
    with Concurrently(branches, mode="async").run() as stream:
        seen = drain(stream)
    error = one_error(seen)
    assert sorted(str(item) for item in seen if item is not error) == ["0", "1", "2", "7", "8", "a", "b", "c"]


def test_a_for_loop_raises_and_a_second_loop_goes_on(engine):
    with engine.shards(range(6)).gather_sync().for_each(BAD).run() as stream:
        items = []
        with pytest.raises(ValueError, match="item 3"):
            for item in stream:
                items.append(item)  # noqa: PERF402  (what came before the error counts)
        assert items == [0, 1, 2]
        assert list(stream) == [4, 5]


def test_a_for_loop_over_a_local_plan_raises_and_a_second_loop_goes_on():
    with from_iterable(range(6)).for_each(BAD).batch(2).run() as stream:
        with pytest.raises(ValueError, match="item 3"):
            list(stream)
        assert list(stream) == [[2, 4], [5]]


def test_an_error_of_nested_runs_names_both_plans():
    def inner(x):
        return from_iterable([x]).for_each(BAD).take(1)[0]

    with pytest.raises(ValueError, match="item 3") as caught:
        from_iterable([3]).for_each(inner).take(1)
    assert notes_of(caught.value).count("in for_each(") == 2


# --- dead actors (J3) -----------------------------------------------------------------------------------------------


def doomed(engine, count):
    actors = [engine.inner.start(Source) for _ in range(count)]
    for index, actor in enumerate(actors):
        engine.ask(actor, "load", range(100 * index, 100 * index + 10), False)
    return actors


@pytest.mark.parametrize("gather", ["sync", "async"])
def test_a_dead_actor_is_raised_once_and_the_other_shards_go_on(engine, gather):
    actors = doomed(engine, 2)
    try:
        shards = from_actors(actors)
        with (shards.gather_sync() if gather == "sync" else shards.gather_async(num_async=2)).run() as stream:
            first = [next(stream), next(stream)]
            engine.inner.stop(actors[1])
            seen = drain(stream)
            assert drain(stream) == []
    finally:
        engine.inner.stop(actors[0])
    error = one_error(seen)
    assert isinstance(error, ActorDiedError)
    assert "shard 1 of 2" in notes_of(error) and "test_errors.py" in notes_of(error)
    assert [item for item in [*first, *seen] if item is not error and item < 100] == list(range(10))


def test_when_all_actors_are_dead_each_is_told_and_the_stream_ends(engine):
    actors = doomed(engine, 2)
    with from_actors(actors).gather_sync().run() as stream:
        next(stream), next(stream)
        for actor in actors:
            engine.inner.stop(actor)
        seen = drain(stream)
        assert list(stream) == []
    assert [type(item).__mro__.count(ActorDiedError) for item in seen if isinstance(item, BaseException)] == [1, 1]


def test_a_dead_actor_above_a_repartition_is_raised_once(engine):
    actors = doomed(engine, 2)
    with from_actors(actors).repartition(2).gather_sync().run() as stream:
        next(stream)
        engine.inner.stop(actors[1])
        seen = drain(stream)
        error = one_error(seen)
    engine.inner.stop(actors[0])
    assert isinstance(error, ActorDiedError)
    assert "test_errors.py" in notes_of(error)


def test_a_shard_whose_process_ends_is_told_with_its_shard(on_ray):
    import os

    def die(item):
        if item == 101:
            os._exit(3)
        return item

    actors = doomed(on_ray, 2)
    with from_actors(actors).for_each(die).gather_async().run() as stream:
        began = time.monotonic()
        seen = drain(stream)
        assert time.monotonic() - began < 10
    on_ray.inner.stop(actors[0])
    error = one_error(seen)
    assert isinstance(error, ActorDiedError)
    assert sorted(item for item in seen if item is not error) == [*range(10), 100]


# --- signals are never items (C6) -----------------------------------------------------------------------------------

ODD_ITEMS = [
    None,
    False,
    0,
    [],
    (),
    "",
    ...,
    StopIteration("as an item"),
    ValueError("as an item"),
    NotImplemented,
    StopIteration,
    float("nan"),
]


def shown(items):
    return sorted(repr(item) for item in items)


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.gather_sync(),
        lambda s: s.gather_async(num_async=2),
        lambda s: s.gather_async(batch_ms=3),
        lambda s: s.for_each(lambda x: x, max_concurrency=2).gather_sync(),
        lambda s: s.batch(2).flatten().gather_sync(),
        lambda s: s.transform(lambda it: it).gather_sync(),
        lambda s: s.gather_sync().transform(lambda it: (x for x in it)),
        lambda s: s.gather_sync().batch(5).flatten(),
        lambda s: s.gather_sync().shuffle(3),
        lambda s: through_queue(s.gather_sync()),
        lambda s: both_children(s.gather_sync()),
        lambda s: s.gather_sync().union(from_iterable([])),
        lambda s: s.repartition(1).gather_sync(),
    ],
)
def test_items_that_look_like_signals_are_items(engine, make):
    assert shown(make(engine.shards(ODD_ITEMS))) == shown(ODD_ITEMS)


def stop(*_):
    raise StopIteration("from a user function")


@pytest.mark.parametrize(
    "make",
    [
        lambda s: s.for_each(stop).gather_sync(),
        lambda s: s.filter(stop).gather_async(),
        lambda s: s.combine(stop).gather_async(batch_ms=2),
        lambda s: s.for_each(stop, max_concurrency=2).gather_sync(),
        lambda s: s.for_each(stop).batch(2).gather_sync(),
        lambda s: s.for_each(stop).repartition(1).gather_sync(),
        lambda s: s.transform(stop).gather_sync(),
        lambda s: s.for_each(stop).transform(lambda it: (x for x in it)).gather_sync(),
        lambda s: s.gather_sync().for_each(stop),
        lambda s: s.gather_sync().filter(stop),
        lambda s: s.gather_sync().combine(stop),
        lambda s: s.gather_sync().for_each(stop).batch(2),
        lambda s: s.gather_sync().transform(stop),
        lambda s: s.gather_sync().for_each(stop).transform(lambda it: (x for x in it)),
        lambda s: s.gather_sync().for_each(stop).union(from_iterable([])),
        lambda s: through_queue(s.gather_sync().for_each(stop)),
        lambda s: both_children(s.gather_sync().for_each(stop)),
        lambda s: from_iterable([1, 2]).for_each(stop),
        lambda s: from_iterable([1, 2]).for_each(stop).transform(lambda it: (x for x in it)),
        lambda s: from_iterable(stop),
        lambda s: Dequeue(queue.Queue(1), check=stop),
    ],
)
@pytest.mark.parametrize("read", ["next", "for"])
def test_a_stop_iteration_of_a_user_function_is_an_error_that_says_so(engine, make, read):
    with make(engine.shards([1, 2])).run() as stream, pytest.raises(RunError, match="StopIteration came out of") as caught:
        if read == "next":
            next(stream)
        else:
            list(stream)
    assert "test_errors.py:" in f"{caught.value}{notes_of(caught.value)}"


@pytest.mark.parametrize("make", [lambda s, source: s(source).gather_sync(), lambda s, source: from_iterable(source)])
def test_a_stop_iteration_inside_a_source_generator_is_an_error(engine, make):
    def source():
        yield 1
        next(iter(()))

    with make(engine.shards, source).run() as stream:
        seen = drain(stream)
    assert seen[0] == 1
    assert "StopIteration" in str(one_error(seen))


class CountsAfterEnd:
    """Five items; counts how often it is asked after its end, and would give more."""

    asked_after_end = 0

    def __init__(self):
        self.left = 5

    def __iter__(self):
        return self

    def __next__(self):
        if self.left < 0:
            type(self).asked_after_end += 1
            return "ghost"
        self.left -= 1
        if self.left < 0:
            raise StopIteration
        return self.left


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: from_iterable(CountsAfterEnd).batch(3).flatten().filter(lambda x: True).union(from_iterable([])), [4, 3, 2, 1, 0]),
        (lambda: from_iterable([1]).transform(lambda it: CountsAfterEnd()).batch(3), [[4, 3, 2], [1, 0]]),
        (lambda: from_iterable([1]).combine(lambda x: CountsAfterEnd()).batch(2), [[4, 3], [2, 1], [0]]),
        (lambda: from_range(1, 1).gather_sync().transform(lambda it: CountsAfterEnd()).batch(3), [[4, 3, 2], [1, 0]]),
    ],
)
def test_nothing_is_asked_again_after_its_end(make, expected):
    """A10: 0 further calls, the last short batch once, and the whole chain keeps being at its end."""
    CountsAfterEnd.asked_after_end = 0
    with make().run() as stream:
        assert drain(stream) == expected
        for _ in range(3):
            assert next(stream, "end") == "end"
        assert list(stream) == []
    assert CountsAfterEnd.asked_after_end == 0


def test_a_prebuilt_plan_is_named_by_its_own_line():
    """Its line in `flowrl/algorithms`, never that of the operator's code."""
    import flowrl as fl
    from flowrl.algorithms.ppo import execution_plan

    config = fl.PPOConfig(env="CartPole-v1", num_workers=2)
    lines = {data["line"] for _, data in execution_plan(fl.WorkerSet(config), config).graph().nodes(data=True)}
    assert {line.partition(":")[0] for line in lines} == {"ppo.py"}
