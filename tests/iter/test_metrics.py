"""One metrics context a run: shared by all branches, fed from the shards, there while the stages work and not after."""

from __future__ import annotations

import threading

import pytest

from flowrl.errors import MetricsContextError
from flowrl.iter import LocalIterator, Queue, from_iterable
from flowrl.metrics import Max, Mean, get_metrics
from flowrl.ops import Concurrently, Dequeue, Enqueue
from tests.iter.workers import never


def bump(name, keep=True):
    """A function of an item that counts it."""

    def count(x):
        from flowrl.metrics import get_metrics

        get_metrics().counters[name] += 1
        return x if keep is True else keep

    return count


def test_all_branches_of_a_run_share_one_context(engine):
    seen = []

    def look(x):
        seen.append(get_metrics())
        return x

    shared = Queue(4)
    shards = engine.shards(range(5), range(5))
    plan = Concurrently(
        [
            shards.gather_async().for_each(look).for_each(Enqueue(shared)),
            Dequeue(shared).for_each(look),
            from_iterable("ab").for_each(look),
        ],
        mode="async",
    )
    with plan.run() as stream:
        list(stream)
        assert len(seen) == 22
        assert all(context is stream.metrics for context in seen)


@pytest.mark.parametrize(
    "gather",
    [
        lambda s: s.gather_sync(),
        lambda s: s.batch_across_shards(),
        lambda s: s.gather_async(),
        lambda s: s.gather_async(batch_ms=3, num_async=2),
        lambda s: s.repartition(2).gather_async(),
    ],
)
def test_what_shards_count_is_merged(engine, gather):
    with gather(engine.shards(range(10), range(7)).for_each(bump("n"))).run() as stream:
        list(stream)
        assert dict(stream.metrics.counters) == {"n": 17}


def test_what_shards_count_is_there_with_the_item(engine):
    with engine.shards(range(5)).for_each(bump("n")).gather_sync().run() as stream:
        for number, _ in enumerate(stream, 1):
            assert stream.metrics.counters["n"] == number


def test_what_was_counted_of_dropped_items_arrives_with_the_next_answer_or_the_end(engine):
    with engine.shards(range(10)).filter(lambda x: bump("n")(x) == 6).gather_sync().run() as stream:
        assert next(stream) == 6
        assert stream.metrics.counters["n"] == 7
        assert list(stream) == []
        assert stream.metrics.counters["n"] == 10


def test_what_a_shard_counted_before_an_error_arrives(engine):
    def fail_after_count(x):
        bump("n")(x)
        raise ValueError("counted")

    for width in (1, 2):
        with engine.shards([1]).for_each(fail_after_count, max_concurrency=width).gather_sync().run() as stream:
            with pytest.raises(ValueError, match="counted"):
                next(stream)
            assert stream.metrics.counters["n"] == 1


def test_a_concurrent_for_each_counts_too(engine):
    with engine.shards(range(6)).for_each(bump("n"), max_concurrency=2).gather_sync().run() as stream:
        list(stream)
        assert stream.metrics.counters["n"] == 6


def test_timers_values_and_info_of_shards_merge(engine):
    def measure(x):
        from flowrl.metrics import get_metrics

        context = get_metrics()
        context.timers["t"].push_units_processed(2)
        with context.timers["t"]:
            pass
        context.observe("mean", Mean.of(float(x)))
        context.observe("max", Max(float(x)))
        context.info["last"] = "told"
        return x

    with engine.shards([0, 1, 2], [9]).for_each(measure).gather_sync().run() as stream:
        list(stream)
        assert (stream.metrics.timers["t"].calls, stream.metrics.timers["t"].units) == (4, 8)
        assert stream.metrics.values["mean"].value == 3.0
        assert stream.metrics.values["max"].value == 9.0
        assert stream.metrics.info["last"] == "told"


def test_each_run_begins_at_0(engine):
    plan = engine.shards(range(3)).for_each(bump("n")).gather_sync().for_each(bump("m"))
    for _ in range(2):
        with plan.run() as stream:
            list(stream)
            assert dict(stream.metrics.counters) == {"n": 3, "m": 3}


def test_what_was_counted_stays_readable_after_the_end():
    with from_iterable(range(3)).for_each(bump("n")).run() as stream:
        list(stream)
    assert stream.metrics.counters["n"] == 3


# --- nowhere else ---------------------------------------------------------------------------------------------------


def test_outside_a_run_it_is_an_error_that_says_what_to_do():
    for ask in (get_metrics, LocalIterator.get_metrics):
        with pytest.raises(MetricsContextError, match=r"inside a function of the plan|stream\.metrics"):
            ask()


@pytest.mark.parametrize(
    "make", [lambda s: s.gather_sync(), lambda s: from_iterable(range(4)), lambda s: from_iterable(range(4)).union(from_iterable([]))]
)
@pytest.mark.parametrize("read", ["next", "for", "plan"])
def test_it_is_unset_while_the_consumer_has_an_item(engine, make, read):
    plan = make(engine.shards(range(4))).for_each(bump("n"))
    with plan.run() as stream:
        for _ in plan if read == "plan" else stream:
            with pytest.raises(MetricsContextError):
                get_metrics()
            if read == "next":
                next(stream, None)
                with pytest.raises(MetricsContextError):
                    get_metrics()


def test_it_is_unset_after_an_error():
    with from_iterable([0]).for_each(lambda x: 1 / x).run() as stream:
        for read in (next, list):
            with pytest.raises(ZeroDivisionError) if read is next else pytest.raises(MetricsContextError):
                read(stream)
                get_metrics()
    with pytest.raises(MetricsContextError):
        get_metrics()


def test_a_nested_run_has_its_own_and_gives_the_outer_one_back(engine):
    inner_plan = from_iterable(range(2)).for_each(bump("inner"))

    def nested(x):
        outer = get_metrics()
        with inner_plan.run() as inner:
            list(inner)
            assert inner.metrics.counters["inner"] == 2
        assert get_metrics() is outer
        outer.counters["outer"] += 1
        return x

    with engine.shards(range(3)).gather_sync().for_each(nested).run() as stream:
        list(stream)
        assert dict(stream.metrics.counters) == {"outer": 3}


def test_two_runs_in_turn_do_not_mix():
    plan = from_iterable(range(10)).for_each(bump("n"))
    with plan.run() as one, plan.run() as other:
        next(one), next(one), next(other)
        loop = iter(one)
        next(loop), next(other), next(loop)
        assert (one.metrics.counters["n"], other.metrics.counters["n"]) == (4, 2)


def test_a_thread_of_the_user_has_no_context():
    errors = []

    def work():
        try:
            get_metrics()
        except MetricsContextError as error:
            errors.append(error)

    def in_thread(x):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return x

    assert from_iterable([1]).for_each(in_thread).take(1) == [1]
    assert len(errors) == 1


def test_time_is_counted_on_the_serial_engine(serial):
    times = []
    plan = serial.shards(range(5)).gather_sync().for_each(lambda x: times.append(get_metrics().now_s()) or x)
    assert plan.filter(never).take(1) == []
    assert times == pytest.approx([0.001, 0.002, 0.003, 0.004, 0.005])
