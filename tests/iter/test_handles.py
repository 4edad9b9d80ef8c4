"""Handles: names for things that run only while somebody has opened them, and whoever opened them closes them."""

from __future__ import annotations

import copy
import pickle

import cloudpickle
import pytest

from flowrl.errors import NotOpenError, PlanError, RunError
from flowrl.iter import ActorHandle, Handle, Queue, SerialEngine, create_colocated, from_actors, from_iterable, from_range
from tests.iter.workers import Recorder, Source


class Lamp(Handle):
    """The simplest handle: it counts how often it was lit and put out."""

    def __init__(self):
        super().__init__()
        self.lit, self.put_out = 0, 0

    def start_live(self, engine):
        self.lit += 1
        return [f"light {self.lit}"]

    def stop_live(self, engine, live):
        self.put_out += 1


class Shine:
    """An operator that names a handle."""

    def __init__(self, lamp):
        self.lamp = lamp

    def __call__(self, x):
        return (x, self.lamp.live[0])


# --- identity -------------------------------------------------------------------------------------------------------


def test_a_handle_is_itself_after_copying_and_pickling():
    handle = ActorHandle(Recorder)
    for again in (
        copy.copy(handle),
        copy.deepcopy(handle),
        pickle.loads(pickle.dumps(handle)),
        cloudpickle.loads(cloudpickle.dumps(handle)),
    ):
        assert again is handle
    assert copy.deepcopy([handle, {"h": handle}])[1]["h"] is handle


def test_handles_are_hashed_by_identity():
    one, other = create_colocated(Recorder, [], 2)
    assert one != other
    assert len({one, other, one}) == 2


def test_create_colocated_is_a_plain_list_and_starts_nothing():
    handles = create_colocated(Recorder, [], 3)
    assert isinstance(handles, list) and len(handles) == 3 and handles[:2] == [handles[0], handles[1]]
    assert not any(handle.is_open for handle in handles)
    with pytest.raises(ValueError, match="count=0"):
        create_colocated(Recorder, [], 0)


def test_a_wrong_method_is_an_attribute_error_at_once():
    with pytest.raises(AttributeError, match="Recorder has no method 'tel'"):
        ActorHandle(Recorder).tel.remote(1)


def test_calling_a_method_without_remote_says_what_to_do():
    with pytest.raises(TypeError, match=r"call tell\.remote"):
        ActorHandle(Recorder).tell(1)


# --- closed and open ------------------------------------------------------------------------------------------------


def test_a_closed_handle_says_what_to_do():
    with pytest.raises(NotOpenError, match=r"nothing runs behind ActorHandle\(Recorder, closed\).*with plan\.run\(\).*queue\.open\(\)"):
        ActorHandle(Recorder).tell.remote(1)


def test_what_the_user_opened_is_live_until_the_block_ends(engine):
    (handle,) = create_colocated(Recorder, [], 1)
    with handle.open():
        assert handle.is_open and "open" in repr(handle)
        assert handle.engine.name == engine.name
        assert engine.inner.result(handle.tell.remote("a")) == 1
        assert engine.inner.result(handle.tell.remote("b")) == 2
        assert engine.inner.result(handle.all.remote()) == ["a", "b"]
    assert not handle.is_open
    with pytest.raises(NotOpenError):
        handle.all.remote()


def test_on_ray_a_call_is_an_object_ref(on_ray):
    import ray

    (handle,) = create_colocated(Recorder, [], 1)
    with handle.open():
        ref = handle.tell.remote("a")
        assert isinstance(ref, ray.ObjectRef)
        assert ray.get(ref) == 1
        assert ray.get(handle.tell.remote(ray.put("b"))) == 2


def test_on_the_serial_engine_a_call_is_made_at_once(serial):
    (handle,) = create_colocated(Recorder, [], 1)
    with handle.open():
        call = handle.tell.remote("a")
        assert call.done
        assert serial.inner.result(call) == 1


def test_an_error_of_a_call_comes_with_its_result(engine):
    with engine_handle() as handle, pytest.raises(KeyError, match="told to fail"):
        engine.inner.result(handle.fail.remote())


def engine_handle():
    return create_colocated(Recorder, [], 1)[0].open()


def test_a_handle_cannot_be_used_on_two_engines_at_once(serial):
    lamp = Lamp()
    with lamp.open():
        other = SerialEngine()
        other.name = "other"
        with pytest.raises(RunError, match="cannot be used on"), lamp.open(engine=other):
            pass


def test_opening_twice_starts_once_and_the_last_one_out_stops():
    lamp = Lamp()
    with lamp.open():
        with lamp.open():
            assert lamp.lit == 1
        assert lamp.is_open
    assert (lamp.is_open, lamp.lit, lamp.put_out) == (False, 1, 1)


# --- opened by a run ------------------------------------------------------------------------------------------------


def test_a_run_opens_the_handles_that_its_nodes_name_at_its_start_and_closes_them():
    lamp = Lamp()
    plan = from_iterable(range(3)).for_each(Shine(lamp))
    assert not lamp.is_open
    with plan.run() as stream:
        assert lamp.is_open
        assert next(stream) == (0, "light 1")
    assert (lamp.is_open, lamp.put_out) == (False, 1)
    assert list(plan) == [(i, "light 2") for i in range(3)], "the next run starts afresh"


def test_a_handle_that_only_a_closure_names_is_opened_at_first_use_and_closed_with_the_run():
    lamp = Lamp()
    with from_iterable(range(3)).for_each(lambda x: lamp.live[0]).run() as stream:
        assert not lamp.is_open
        assert next(stream) == "light 1"
        assert lamp.is_open
    assert (lamp.is_open, lamp.lit, lamp.put_out) == (False, 1, 1)


def test_an_actor_handle_in_a_closure_is_opened_on_the_runs_engine(engine):
    from flowrl.iter import current_engine

    (recorder,) = create_colocated(Recorder, [], 1)
    plan = engine.shards(range(3)).gather_sync().for_each(lambda x: current_engine().result(recorder.tell.remote(x)))
    assert list(plan) == [1, 2, 3]
    assert not recorder.is_open
    assert list(plan) == [1, 2, 3], "the next run starts afresh"


def test_what_the_user_opened_keeps_its_contents_from_run_to_run(engine):
    from flowrl.iter import current_engine

    (recorder,) = create_colocated(Recorder, [], 1)
    plan = from_range(2, 1).gather_sync().for_each(lambda x: current_engine().result(recorder.tell.remote(x)))
    with recorder.open():
        assert list(plan) == [1, 2]
        assert list(plan) == [3, 4]
        assert engine.inner.result(recorder.all.remote()) == [0, 1, 0, 1]


def test_two_runs_at_once_share_what_the_first_one_opened():
    lamp = Lamp()
    plan = from_iterable(range(3)).for_each(Shine(lamp))
    with plan.run() as one:
        next(one)
        with plan.run() as other:
            assert next(other) == (0, "light 1")
        assert lamp.is_open, "the second run must not close what the first one uses"
        assert next(one) == (1, "light 1")
    assert (lamp.lit, lamp.put_out) == (1, 1)


def test_the_run_that_opened_it_first_may_end_first():
    lamp = Lamp()
    plan = from_iterable(range(3)).for_each(Shine(lamp))
    one, other = plan.run(), plan.run()
    next(one), next(other)
    one.close()
    assert next(other) == (1, "light 1")
    other.close()
    assert (lamp.is_open, lamp.put_out) == (False, 1)


def test_a_run_closes_its_handles_after_an_error():
    lamp = Lamp()
    with pytest.raises(ZeroDivisionError), from_iterable([0]).for_each(Shine(lamp)).for_each(lambda pair: 1 / pair[0]).run() as stream:
        next(stream)
    assert (lamp.is_open, lamp.put_out) == (False, 1)


def test_a_run_that_could_not_open_one_handle_closes_the_others():
    class Broken(Lamp):
        def start_live(self, engine):
            raise OSError("no power")

    lamp, broken = Lamp(), Broken()
    plan = from_iterable([1]).for_each(Shine(lamp)).for_each(Shine(broken))
    with pytest.raises(OSError, match="no power"), plan.run():
        pass
    assert (lamp.is_open, lamp.lit, lamp.put_out) == (False, 1, 1)


def test_a_stream_whose_opening_failed_is_closed_and_says_so():
    class Broken(Lamp):
        def start_live(self, engine):
            raise OSError("no power")

    stream = from_iterable([1]).for_each(Shine(Broken())).run()
    with pytest.raises(OSError, match="no power"):
        next(stream)
    with pytest.raises(ValueError, match="closed"):
        next(stream)
    del stream  # and no warning that it was left open


def test_handles_in_lists_and_in_fields_are_found():
    first, second = Lamp(), Lamp()
    operator = Shine(first)
    operator.more = [second]
    with from_iterable([1]).for_each(operator).run():
        assert first.is_open and second.is_open
    assert not first.is_open and not second.is_open


# --- from_actors over handles ---------------------------------------------------------------------------------------


class Letters(Source):
    """A shard with items from the start."""

    def __init__(self, letters):
        super().__init__()
        self.load(letters, False)


def test_a_run_opens_the_handles_of_its_shards(engine):
    handles = [ActorHandle(Letters, ["ab"]), ActorHandle(Letters, ["xy"])]
    assert list(from_actors(handles).gather_sync()) == ["a", "x", "b", "y"]
    assert not any(handle.is_open for handle in handles)


def test_only_the_handles_that_a_plan_reaches_are_opened(serial):
    handles = [ActorHandle(Letters, ["ab"]), ActorHandle(Letters, ["xy"])]
    with from_actors(handles).get_shard(1).run() as stream:
        assert next(stream) == "x"
        assert handles[1].is_open


def test_a_handle_of_another_class_is_refused():
    with pytest.raises(PlanError, match="must be a subclass of ParallelIteratorWorker"):
        from_actors([ActorHandle(Recorder)])


def test_the_same_actor_twice_is_refused():
    handle = ActorHandle(Letters, ["ab"])
    with pytest.raises(PlanError, match="an actor twice"):
        from_actors([handle, handle])


# --- in another process ---------------------------------------------------------------------------------------------


def test_an_open_handle_works_inside_an_actor(engine):
    (recorder,) = create_colocated(Recorder, [], 1)

    def tell(x):
        recorder.tell.remote(x)
        return x

    with recorder.open():
        assert engine.shards(range(3)).for_each(tell).gather_sync().take(3) == [0, 1, 2]
        while len(engine.inner.result(recorder.all.remote())) < 3:
            pass
        assert engine.inner.result(recorder.all.remote()) == [0, 1, 2]


def test_a_handle_that_travels_closed_and_later_open_is_open_there(engine):
    """An actor that kept a handle from before sees the live thing once it gets it again."""
    (recorder,) = create_colocated(Recorder, [], 1)
    (keeper,) = engine.pool(1, Keeper)
    engine.ask(keeper, "keep", recorder)
    assert engine.ask(keeper, "tell", "a") == "NotOpenError"
    with recorder.open():
        engine.ask(keeper, "keep", recorder)
        assert engine.ask(keeper, "tell", "b") == "told"
        assert engine.inner.result(recorder.all.remote()) == ["b"]
    engine.ask(keeper, "keep", recorder)
    assert engine.ask(keeper, "tell", "c") == "NotOpenError"


class Keeper:
    """An actor that keeps the handles that it was given."""

    def __init__(self):
        self.kept = []

    def keep(self, handle):
        self.kept.append(handle)

    def tell(self, value):
        from flowrl.errors import NotOpenError

        try:
            call = self.kept[-1].tell.remote(value)
        except NotOpenError:
            return "NotOpenError"
        import ray

        if isinstance(call, ray.ObjectRef):
            ray.get(call)
        return "told"


def test_a_queue_is_a_handle_too():
    shared = Queue(3)
    assert pickle.loads(pickle.dumps(shared)) is shared
    assert not shared.is_open
    with shared.open():
        shared.put(1)
    with shared.open():
        assert shared.empty(), "who opens it anew finds it empty"
