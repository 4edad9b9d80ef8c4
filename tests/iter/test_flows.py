"""What a running plan shows of itself: items in, out and held per edge so far, exactly, and without moving any."""

from __future__ import annotations

import pytest

from flowrl.iter import Queue, from_actors, from_iterable
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import Source


def edges_of(stream):
    """(operator above, operator below) -> (items in, items out, held)."""
    graph = stream.graph()
    return {
        (graph.nodes[above]["operator"], graph.nodes[below]["operator"]): tuple(
            edge.get(name) for name in ("items_in", "items_out", "held")
        )
        for above, below, edge in graph.edges(data=True)
    }


def test_each_edge_of_a_local_chain_has_its_counts():
    plan = from_iterable(range(100)).filter(lambda x: x % 2).for_each(lambda x: [x, x]).flatten().batch(3).for_each(sum)
    with plan.run() as stream:
        assert next(stream) == 1 + 1 + 3
        assert edges_of(stream) == {
            ("from_iterable", "filter"): (4, 4, 0),
            ("filter", "for_each"): (2, 2, 0),
            ("for_each", "flatten"): (2, 2, 0),
            ("flatten", "batch"): (3, 3, 0),
            ("batch", "for_each"): (1, 1, 0),
        }


def test_what_a_batch_and_a_shuffle_hold_is_shown_at_them_alone():
    with from_iterable(range(100)).for_each(abs).shuffle(5, seed=1).filter(lambda x: True).batch(4).run() as stream:
        next(stream)
        edges = edges_of(stream)
        assert edges[("from_iterable", "for_each")] == (8, 8, 0)
        assert edges[("for_each", "shuffle")] == (8, 8, 4)
        assert edges[("shuffle", "filter")] == (4, 4, 0)
        assert edges[("filter", "batch")] == (4, 4, 0)


def test_shards_tell_what_passed_there_summed_over_all_of_them(engine):
    plan = engine.shards(range(10), range(10)).filter(lambda x: x % 2).batch(2).gather_sync().for_each(len)
    with plan.run() as stream:
        assert [next(stream) for _ in range(4)] == [2, 2, 2, 2]
        assert edges_of(stream) == {
            ("from_actors", "filter"): (16, 16, 0),
            ("filter", "batch"): (8, 8, 0),
            ("batch", "gather_sync"): (4, 4, 0),
            ("gather_sync", "for_each"): (4, 4, 0),
        }


def test_an_answer_that_is_not_handed_on_yet_is_held_by_its_gather(serial):
    with serial.shards(range(20)).gather_async(batch_ms=6).run() as stream:
        next(stream)
        assert edges_of(stream) == {("from_actors", "gather_async"): (6, 6, 5)}


def test_a_queue_a_duplicate_and_branches_have_their_counts(engine):
    shared = Queue(8)
    first, second = engine.shards(range(20)).gather_sync().duplicate(2)
    plan = Concurrently([first.for_each(Enqueue(shared)), Dequeue(shared), second.filter(lambda x: False)], round_robin_weights=[3, 1, "*"])
    with plan.run() as stream:
        assert [next(stream) for _ in range(4)] == [0, 1, 2, 0]
        edges = edges_of(stream)
    assert edges[("gather_sync", "duplicate")] == (3, 3, 0)
    assert edges[("Enqueue", "Dequeue")] == (3, 1, 2)
    assert edges[("Enqueue", "Concurrently")] == (3, 3, 0)
    assert edges[("Dequeue", "Concurrently")] == (1, 1, 0)


def test_looking_moves_nothing(engine):
    plan = engine.shards(range(30), range(30)).gather_async(num_async=2).batch(3)
    with plan.run() as stream:
        for _ in range(5):
            next(stream)
            assert stream.explain() and stream.graph()
        assert sum(len(batch) for batch in stream) == 60 - 15


def test_what_passed_stays_readable_after_the_end(engine):
    with engine.shards(range(6)).gather_sync().batch(4).run() as stream:
        list(stream)
    edges = edges_of(stream)
    assert edges[("gather_sync", "batch")] == (6, 6, 0)


def test_a_dead_actor_has_no_counts_and_does_not_hide_the_others(engine):
    actors = [engine.inner.start(Source) for _ in range(2)]
    for actor in actors:
        engine.ask(actor, "load", range(10), False)
    with from_actors(actors).gather_async().for_each(abs).run() as stream:
        next(stream), next(stream)
        engine.inner.stop(actors[0])
        assert edges_of(stream)[("gather_async", "for_each")] == (2, 2, 0)
    engine.inner.stop(actors[1])


@pytest.mark.parametrize("suffix", ["svg", "html", "mmd", "dot", "png"])
def test_a_running_plan_can_be_drawn(tmp_path, suffix):
    with from_iterable(range(9)).batch(2).run() as stream:
        next(stream)
        assert stream.draw(tmp_path / f"running.{suffix}").stat().st_size > 100
