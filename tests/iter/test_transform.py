"""`transform(fn)`: a plain iterator of items in, an iterator out, wherever it stands."""

from __future__ import annotations

import threading

import pytest

from flowrl.errors import DeadlockError
from flowrl.iter import Queue, from_iterable
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import slowly


def pairs(items):
    for item in items:
        second = next(items, None)
        yield (item, second)


PLACES = {
    "in a shard": lambda s, fn: s.transform(fn).gather_sync(),
    "above a gather": lambda s, fn: s.gather_sync().transform(fn),
    "local": lambda s, fn: from_iterable(range(7)).transform(fn),
    "above a child": lambda s, fn: s.gather_sync().duplicate(2)[0].transform(fn),
    "above a queue": lambda s, fn: _through_queue(s.gather_sync(), fn),
}


def _through_queue(branch, fn):
    shared = Queue(2)
    return Concurrently([branch.for_each(Enqueue(shared)), Dequeue(shared).transform(fn)], mode="async", output_indexes=[1])


@pytest.mark.parametrize("place", PLACES)
def test_the_function_gets_a_plain_iterator(engine, place):
    assert list(PLACES[place](engine.shards(range(7)), pairs)) == [(0, 1), (2, 3), (4, 5), (6, None)]


@pytest.mark.parametrize("place", PLACES)
def test_it_may_give_more_than_it_gets_and_go_on_after_the_end(engine, place):
    def doubled(items):
        yield "first"
        for item in items:
            yield item
            yield item
        yield "last"

    expected = ["first", *[item for i in range(7) for item in (i, i)], "last"]
    assert list(PLACES[place](engine.shards(range(7)), doubled)) == expected


@pytest.mark.parametrize("place", [place for place in PLACES if place != "above a queue"])
def test_it_may_end_before_its_input(engine, place):
    def first_two(items):
        yield next(items)
        yield next(items)

    assert list(PLACES[place](engine.shards(range(7)), first_two)) == [0, 1]


def test_a_queue_whose_only_reader_ended_early_ends_in_an_error_that_names_it(engine):
    with PLACES["above a queue"](engine.shards(range(7)), lambda items: [next(items), next(items)]).run() as stream:
        assert [next(stream), next(stream)] == [0, 1]
        with pytest.raises(DeadlockError, match=r"Enqueue\(.*\) at test_transform.py:\d+ waits for room"):
            next(stream)


@pytest.mark.parametrize("place", PLACES)
def test_it_may_return_any_iterable(engine, place):
    assert list(PLACES[place](engine.shards(range(7)), sorted)) == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("place", PLACES)
def test_what_is_no_iterable_is_an_error_that_says_so(engine, place):
    with pytest.raises(TypeError, match="must return an iterator"):
        list(PLACES[place](engine.shards(range(7)), lambda items: 3))


def test_it_runs_once_a_shard(engine):
    def numbered(items):
        yield from enumerate(items)

    items = list(engine.shards("ab", "cd").transform(numbered).gather_sync())
    assert items == [(0, "a"), (0, "c"), (1, "b"), (1, "d")]


def test_each_run_begins_it_anew():
    plan = from_iterable(range(4)).transform(pairs)
    assert list(plan) == list(plan) == [(0, 1), (2, 3)]


def test_it_does_not_hold_back_the_other_branches(on_ray):
    slow = on_ray.shards(slowly(["slow"], 0.5)).gather_async().transform(lambda items: (item for item in items))
    items = list(slow.union(from_iterable(range(20))))
    assert items.index("slow") == 20


def test_it_goes_on_after_the_consumer_stopped(engine):
    items = []
    with engine.shards(range(9)).gather_async().transform(pairs).run() as stream:
        for item in stream:
            items.append(item)
            if len(items) == 2:
                break
        items += stream
    assert items == [(0, 1), (2, 3), (4, 5), (6, 7), (8, None)]


def test_leaving_the_run_closes_the_generator_and_ends_its_thread(engine):
    closed, before = [], set(threading.enumerate())

    def watched(items):
        try:
            yield from items
        finally:
            closed.append(True)

    with engine.shards(range(9)).gather_async().transform(watched).run() as stream:
        next(stream)
        assert closed == []
    assert closed == [True]
    assert {thread for thread in threading.enumerate() if "transform" in thread.name} <= before


def test_leaving_the_run_closes_a_local_generator_too():
    closed = []

    def watched(items):
        try:
            yield from items
        finally:
            closed.append(True)

    assert from_iterable(range(9)).transform(watched).take(2) == [0, 1]
    assert closed == [True]


def test_a_run_that_never_reached_it_can_be_left(engine):
    with engine.shards(range(3)).gather_async().transform(pairs).run():
        pass


def test_the_metrics_context_is_there_inside(engine):
    from flowrl.metrics import get_metrics

    def counted(items):
        for item in items:
            get_metrics().counters["seen"] += 1
            yield item

    for place in ("in a shard", "above a gather", "local"):
        with PLACES[place](engine.shards(range(7)), counted).run() as stream:
            assert len(list(stream)) == 7
            assert stream.metrics.counters["seen"] == 7


def test_two_transforms_in_a_row(engine):
    plan = engine.shards(range(8)).gather_sync().transform(pairs).transform(pairs)
    assert list(plan) == [((0, 1), (2, 3)), ((4, 5), (6, 7))]
