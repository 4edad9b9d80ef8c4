"""The plan lives on: after messages that fail, metrics that clash, actors that die, and Ctrl-C."""

import signal
import time

import pytest

import flowrl as fl
from flowrl.errors import ActorDiedError, MetricsContextError
from flowrl.iter import LocalIterator, ParallelIteratorWorker, from_actors, from_items, from_iterable
from flowrl.metrics import Max, Mean
from flowrl.ops import ParallelRollouts, TrainOneStep
from tests.envs import CountEnv
from tests.iter.workers import Recorder, slowly

get_metrics = LocalIterator.get_metrics


def outcomes(stream, errors: tuple, most: int = 200) -> tuple[list, list]:
    """Items and errors, up to the end."""
    items, seen = [], []
    for _ in range(most):
        try:
            items.append(next(stream))
        except StopIteration:
            return items, seen
        except errors as error:
            seen.append(error)
    raise AssertionError("it never ends")


class Refusing(ParallelIteratorWorker):
    def __init__(self, first: int) -> None:
        super().__init__(lambda: iter(range(first, first + 5)), False)

    def refuse(self, x: int) -> None:
        raise ValueError(f"no {x}")


def test_messages_that_fail_cost_no_item_and_each_is_told_of(engine):
    actors = engine.pool(1, Refusing, 0) + engine.pool(1, Refusing, 100)

    def send(x):
        for actor in actors:
            get_metrics().run.tell(engine.inner.call(actor, "refuse", x))
        return x

    with from_actors(actors).gather_sync().for_each(send).run() as stream:
        items, errors = outcomes(stream, (ValueError,))
    assert sorted(items) == [*range(5), *range(100, 105)]
    assert len(errors) == 2 * len(items)


def test_messages_that_arrive_do_not_wake_a_run_that_waits_for_an_item(on_ray, monkeypatch):
    (recorder,) = on_ray.pool(1, Recorder)
    on_ray.ask(recorder, "clear")  # it has started
    told, slept_on = set(), []

    def send(x):
        for _ in range(5):
            call = on_ray.inner.call(recorder, "tell", x)
            told.add(call)
            get_metrics().run.tell(call, to=recorder)
        return x

    wait = on_ray.inner.wait

    def noted(calls, timeout_s=None, most=1):
        if timeout_s != 0:
            slept_on.append(set(calls))
        return wait(calls, timeout_s, most)

    shards = on_ray.shards(slowly(range(5), 0.05), slowly(range(5), 0.05))
    with shards.gather_async(num_async=1).for_each(send).run() as stream:
        monkeypatch.setattr(on_ray.inner, "wait", noted)
        for _ in range(10):
            next(stream)
    assert slept_on and not any(calls & told for calls in slept_on)


def test_messages_of_a_plan_without_shards_are_heard_in_its_loop(serial):
    (actor,) = serial.pool(1, Refusing, 0)
    plan = from_iterable(range(100)).for_each(lambda x: [get_metrics().run.tell(serial.inner.call(actor, "refuse", x)), x][1])
    with plan.run() as stream:
        items, errors = outcomes(iter(stream), (ValueError,), 400)
    assert items == list(range(100))
    assert len(errors) == 100


def clash(x: int) -> int:
    if x in (2, 5):
        get_metrics().observe("v", Max(1.0) if x == 2 else Mean.of(1.0))
    return x


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async", "in batches", "batch_across_shards"])
def test_metrics_that_clash_cost_no_item(gather, engine):
    shards = engine.shards([1, 4], [2, 6], [5, 3]).for_each(clash)
    plan = shards.gather_async(batch_ms=20) if gather == "in batches" else getattr(shards, gather)()
    with plan.run() as stream:
        items, errors = outcomes(stream, (TypeError,))
    flat = [x for item in items for x in item] if gather == "batch_across_shards" else items
    assert sorted(flat) == [1, 2, 3, 4, 5, 6]
    assert len(errors) == 1


def test_a_dead_worker_is_told_of_once_though_weights_are_sent_to_it(engine):
    config = fl.PPOConfig(env=lambda context: CountEnv(3), num_workers=2, rollout_fragment_length=4, hiddens=(4,))
    workers = fl.WorkerSet(config)
    with ParallelRollouts(workers).for_each(TrainOneStep(workers)).run() as train:
        assert next(train)[0].count == 8
        engine.inner.stop(workers.remote_workers()[1].live)
        counts, errors = [], []
        while len(counts) < 6:
            try:
                counts.append(next(train)[0].count)
            except ActorDiedError as error:
                errors.append(error)
    assert counts[-1] == 4
    assert len(errors) == 1


@pytest.mark.parametrize("gather", ["gather_sync", "batch_across_shards", "gather_async"])
def test_after_ctrl_c_in_a_shard_of_the_serial_engine_the_others_lose_nothing(gather, serial):
    def interrupted(x):
        if x == 5:
            raise KeyboardInterrupt
        return x

    with getattr(from_items(range(1, 13), num_shards=3).for_each(interrupted), gather)().run() as stream:
        items, errors = outcomes(stream, (KeyboardInterrupt, fl.RunError))
    flat = [x for item in items for x in item] if gather == "batch_across_shards" else items
    assert sorted(flat) == [x for x in range(1, 13) if x != 5]
    assert [type(error) for error in errors] == [KeyboardInterrupt, fl.RunError]


def test_after_ctrl_c_a_transform_in_a_thread_goes_on_where_it_was(engine):
    def slow(items):
        for x in items:
            if x == 3:
                signal.raise_signal(signal.SIGINT)  # comes to the main thread, which waits for this one
                time.sleep(0.2)
            yield x

    with engine.shards(range(1, 13)).gather_async().transform(slow).run() as stream:
        items, errors = outcomes(stream, (KeyboardInterrupt,))
    assert items == list(range(1, 13))
    assert len(errors) == 1


class Out(BaseException):
    """Not an Exception: what few catch."""


def raise_out(x: int) -> int:
    if x == 3:
        raise Out("three")
    return x


@pytest.mark.parametrize("gather", ["gather_sync", "gather_async"])
def test_a_base_exception_is_an_error_like_others(gather, engine):
    with getattr(engine.shards([1, 3, 5], [2, 4, 6]).for_each(raise_out), gather)().run() as stream:
        items, errors = outcomes(stream, (Out,))
    assert sorted(items) == [1, 2, 4, 5, 6]
    assert len(errors) == 1


def test_generator_exit_of_a_function_leaves_no_context_behind(serial):
    def leave(x):
        raise GeneratorExit

    for plan in (from_iterable([1]).for_each(leave), from_iterable([1]).for_each(leave).union(from_iterable([2]), deterministic=True)):
        with plan.run() as stream, pytest.raises(GeneratorExit):
            list(stream)
        with pytest.raises(MetricsContextError):
            get_metrics()


def test_a_closed_run_opens_no_handle(serial):
    handle = fl.create_colocated(Refusing, [0], 1)[0]
    with from_iterable([1]).run() as stream:
        context = stream.metrics
    with pytest.raises(fl.NotOpenError, match="is closed"):
        context.run.open_handle(handle)
    assert not handle.is_open
