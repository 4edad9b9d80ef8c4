"""State lives in fields of stage objects, never in closures or generator frames of flowrl's (C14)."""

from __future__ import annotations

import gc
import types
from fractions import Fraction
from pathlib import Path

import pytest

import flowrl
from flowrl.iter import Queue, from_iterable
from flowrl.iter.chain import build_chain
from flowrl.iter.fuse import LinearOp
from flowrl.iter.nodes import Batch, Combine, Filter, Flatten, Map, Shuffle
from flowrl.iter.sources import Feed
from flowrl.metrics import MetricsContext
from flowrl.ops import Concurrently, Dequeue, Enqueue

PACKAGE = str(Path(flowrl.__file__).parent)


def one_of_everything(engine):
    shared = Queue(5)
    shards = engine.shards(range(60), range(100, 160)).local_shuffle(5, seed=3).batch(2).flatten()
    first, second = shards.gather_async(batch_ms=3, num_async=2).shuffle(7, seed=1).duplicate(2)
    local = from_iterable(range(20)).filter(lambda x: x % 3).combine(lambda x: [x, x])
    return Concurrently(
        [
            first.for_each(Enqueue(shared)),
            Dequeue(shared).batch(4),
            second.transform(iter),
            local,
        ],
        mode="async",
        round_robin_weights=[1, "*", Fraction(2, 3), 2],
    )


def reachable(roots):
    """All that hangs on some objects, less what belongs to modules, types and code."""
    seen, todo = {}, list(roots)
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, type | types.ModuleType | types.CodeType | types.FrameType):
            continue
        seen[id(thing)] = thing
        if isinstance(thing, types.FunctionType):
            todo.extend(thing.__closure__ or ())
        else:
            todo.extend(gc.get_referents(thing))
    return list(seen.values())


def frames_of_flowrl(things):
    return [
        thing
        for thing in things
        if isinstance(thing, types.GeneratorType | types.CoroutineType)
        and (thing.gi_code.co_filename.startswith(PACKAGE) or thing.gi_code.co_filename == "<flowrl step>")
    ]


def test_no_stage_of_a_run_holds_a_generator_of_flowrls(engine):
    with one_of_everything(engine).run() as stream:
        for _ in range(12):
            next(stream)
        assert len(stream._run.objects) > 8
        assert frames_of_flowrl(reachable(stream._run.objects)) == []


def test_no_stage_in_a_shard_holds_a_generator_of_flowrls(serial):
    plan = serial.shards(range(60)).filter(lambda x: x % 7).for_each(lambda x: x, max_concurrency=2).batch(3).local_shuffle(2, seed=1)
    with plan.repartition(1).combine(list).gather_async().run() as stream:
        next(stream)
        instances = [shard.actor.instance for _, shard in stream._run.shard_plans]
        streams = [slot for instance in instances for slot in instance._open_streams.slots if slot is not None]
        assert len(streams) == 2
        assert frames_of_flowrl(reachable([stage for stream in streams for stage in stream.stages])) == []


def test_a_loop_that_was_left_keeps_nothing_that_the_stream_needs():
    """The generator behind a `for` over a local plan is a way of reading: state is beside it, and it may be thrown away."""
    with from_iterable(range(20)).filter(lambda x: x % 3).combine(lambda x: [x, -x]).batch(3).run() as stream:
        loop = iter(stream)
        first = next(loop)
        del loop
        assert first == [1, -1, 2]
        assert next(stream) == [-2, 4, -4]
        assert next(iter(stream)) == [5, -5, 7]


# Chains that hold something at each place: what a fused step remembers can be taken out and put into another one.
CHAINS = {
    "maps": [Map(lambda x: x + 1), Filter(lambda x: x % 2)],
    "flatten": [Combine(lambda x: [x, 10 * x, 100 * x]), Filter(lambda x: x % 3)],
    "batch": [Filter(lambda x: x % 5), Batch(4)],
    "flatten then batch": [Combine(lambda x: [x] * 3), Batch(4)],
    "shuffle": [Map(lambda x: -x), Shuffle(5, seed=2)],
    "two flattens": [Combine(lambda x: [[x, x], [x]]), Flatten()],
    "all": [Combine(lambda x: [x, -x]), Shuffle(4, seed=1), Batch(3), Flatten(), Filter(lambda x: x % 2), Batch(2)],
}


def steps_of(stages):
    ops = [LinearOp(stage, str(stage)) for stage in stages]
    feed = Feed(range(30))
    made, _ = build_chain(ops, None, feed, "source", MetricsContext())
    return made


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("num_before", [0, 1, 4, 7])
def test_the_state_of_a_chain_can_be_moved_to_another_one(chain, num_before):
    """Two chains of the same plan: the second one takes the first one's fields and goes on as the first would have."""
    from flowrl.iter.signals import END

    def rest(pull):
        items = []
        while (x := pull()) is not END:
            items.append(x)
        return items

    whole = rest(steps_of(CHAINS[chain])[-1].pull)
    first, second = steps_of(CHAINS[chain]), steps_of(CHAINS[chain])
    before = [first[-1].pull() for _ in range(min(num_before, len(whole)))]
    for old, new in zip(first, second):
        for name in old.state.__slots__:
            value = getattr(old.state, name)
            if isinstance(value, list):
                getattr(new.state, name)[:] = value
            else:
                setattr(new.state, name, value)
        if isinstance(old.state.feed, Feed):
            new.state.feed.state = new.state
    assert before + rest(second[-1].pull) == whole


def test_no_function_of_the_run_has_state_of_its_own(engine):
    """`pull` of a fused step closes over the step's fields, its constants and the users' functions, and rebinds none of them."""
    with one_of_everything(engine).run() as stream:
        for stage in stream._run.objects:
            pull = stage.pull
            if isinstance(pull, types.FunctionType):
                assert not set(pull.__code__.co_freevars) & set(_rebound(pull.__code__))


def _rebound(code):
    """Free variables that a function assigns to."""
    import dis

    return [i.argval for i in dis.get_instructions(code) if i.opname in ("STORE_DEREF", "DELETE_DEREF") and i.argval in code.co_freevars]
