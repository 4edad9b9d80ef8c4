"""Engines: start, call, result, wait, stop; who chooses; and what is said where it cannot work."""

from __future__ import annotations

import time

import pytest

from flowrl.errors import ActorDiedError, ClusterError, PlanError
from flowrl.iter import ActorHandle, Engine, SerialEngine, current_engine, from_actors, from_items, from_iterable, from_range
from flowrl.iter import engine as engine_block
from flowrl.iter.choose import engine_by_name
from tests.iter.workers import Recorder, Source

# --- the calls of an engine ----------------------------------------------------------------------------------------


def test_start_call_result_stop(engine):
    with engine_block(engine.inner) as e:
        actor = e.start(Recorder)
        calls = [e.call(actor, "tell", value) for value in "abc"]
        assert [e.result(call) for call in calls] == [1, 2, 3]
        assert e.result(e.call(actor, "all")) == ["a", "b", "c"]
        e.stop(actor)
        with pytest.raises(ActorDiedError):
            e.result(e.call(actor, "all"))


def test_calls_of_an_actor_are_answered_in_their_order(engine):
    (recorder,) = engine.pool(1, Recorder)
    engine.ask(recorder, "clear")
    calls = [engine.inner.call(recorder, "tell", number) for number in range(20)]
    assert engine.inner.result(calls[-1]) == 20
    assert engine.ask(recorder, "all") == list(range(20))


def test_wait_tells_the_done_calls_from_the_others(engine):
    actors = engine.pool(2, Recorder)
    calls = [engine.inner.call(actor, "tell", "x") for actor in actors]
    done, others = engine.inner.wait(calls, num=2)
    assert set(done) == set(calls) and others == []
    done, others = engine.inner.wait(calls, 1.0)
    assert len(done) >= 1 and set(done) | set(others) == set(calls)


def test_wait_is_over_after_its_timeout(on_ray):
    actors = on_ray.pool(2, Sleeper)
    for actor in actors:  # both have started
        on_ray.ask(actor, "sleep", 0)
    slow, fast = on_ray.inner.call(actors[0], "sleep", 1.0), on_ray.inner.call(actors[1], "sleep", 0)
    began = time.monotonic()
    done, others = on_ray.inner.wait([slow, fast], 0.3, num=2)
    assert time.monotonic() - began < 0.9
    assert (done, others) == ([fast], [slow])
    assert on_ray.inner.result(slow) == 1.0


class Sleeper:
    """An actor that takes as long as it is told."""

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds


def test_an_error_of_a_method_keeps_its_type_and_is_raised_at_each_result(engine):
    (recorder,) = engine.pool(1, Recorder)
    call = engine.inner.call(recorder, "fail")
    for _ in range(2):
        with pytest.raises(KeyError, match="told to fail"):
            engine.inner.result(call)


def test_an_unknown_method_is_an_attribute_error(engine):
    (recorder,) = engine.pool(1, Recorder)
    with pytest.raises(AttributeError, match="tel"):
        engine.inner.call(recorder, "tel")


def test_the_engines_keep_the_protocol(engine):
    wanted = [name for name in vars(Engine) if not name.startswith("_")]
    assert all(hasattr(engine.inner, name) for name in wanted)
    assert engine.inner.name == engine.name
    assert engine.inner.clock == ("count" if engine.name == "serial" else "real")


def test_resources_of_an_actor_are_taken_of_the_cluster(on_ray):
    import ray

    before = ray.available_resources()["CPU"]
    with engine_block(on_ray.inner) as e:
        actor = e.start(Recorder, resources={"num_cpus": 2})
        e.result(e.call(actor, "all"))
        assert ray.available_resources()["CPU"] <= before - 2
        plain = e.start(Recorder)
        e.result(e.call(plain, "all"))
        assert ray.available_resources()["CPU"] <= before - 2


# --- the block ------------------------------------------------------------------------------------------------------


def test_actors_live_until_the_block_ends(engine):
    with engine_block(engine.inner) as e:
        actor = e.start(Recorder)
        assert engine.ask(actor, "tell", 1) == 1
    with pytest.raises(ActorDiedError):
        engine.ask(actor, "tell", 2)


def test_actors_of_a_block_end_also_after_an_error(engine):
    with pytest.raises(KeyError), engine_block(engine.inner) as e:
        actor = e.start(Recorder)
        raise KeyError
    with pytest.raises(ActorDiedError):
        engine.ask(actor, "tell", 2)


def test_engine_without_with_says_so():
    loose = engine_block("serial")
    assert "has no effect without `with`" in repr(loose)
    with pytest.raises(AttributeError, match="write `with engine\\('serial'\\) as e:`"):
        loose.start(Recorder)
    with pytest.warns(UserWarning, match="dropped without `with`"):
        del loose


def test_an_engine_that_was_entered_may_be_dropped():
    with engine_block("serial"):
        pass


@pytest.mark.parametrize("wanted", ["sereal", "", 3, object()])
def test_an_unknown_engine_is_refused_and_the_message_names_those_there_are(wanted):
    for choose in (engine_block, from_iterable([1]).run):
        with pytest.raises(PlanError, match="'serial', 'ray'"):
            choose(wanted)


# --- who chooses ----------------------------------------------------------------------------------------------------


def engine_of(plan, **options):
    with plan.run(**options) as stream:
        return stream.engine


class Prefers(ActorHandle):
    """A handle whose config asks for an engine."""

    preferred_engine = "ray"


def test_nobody_says_anything_serial():
    assert engine_of(from_iterable([1])).name == "serial"


def test_a_handles_config_is_before_the_default_a_block_before_it_and_run_before_all():
    plan = from_actors([Prefers(Source)]).gather_sync()
    assert "RayEngine" in plan.explain()
    block, asked = SerialEngine(seed=5), SerialEngine(seed=6)
    with engine_block(block):
        assert engine_of(plan) is block
        assert engine_of(plan, engine=asked) is asked
        assert engine_of(plan, engine="serial").name == "serial"


def test_the_innermost_block_wins():
    outer, inner = SerialEngine(seed=1), SerialEngine(seed=2)
    with engine_block(outer):
        with engine_block(inner):
            assert engine_of(from_iterable([1])) is inner
        assert engine_of(from_iterable([1])) is outer


def test_a_run_goes_where_its_actors_are():
    engine = SerialEngine(seed=9)
    handle = ActorHandle(Source)
    with handle.open(engine=engine):
        assert engine_of(from_actors([handle]).gather_sync()) is engine


def test_actors_of_ray_make_a_run_on_ray(ray_under_test):
    plan = from_actors(ray_under_test.pool(1, Source)).gather_sync()
    assert engine_of(plan).name == "ray"


def test_actors_of_another_engine_are_refused_with_the_remedy(ray_under_test, serial_under_test):
    for under_test, other in ((ray_under_test, serial_under_test), (serial_under_test, ray_under_test)):
        plan = from_actors(under_test.pool(1, Source)).gather_sync()
        with pytest.raises(PlanError, match="does not live on"), plan.run(engine=other.inner):
            pass


def test_current_engine_inside_a_run_in_a_block_and_outside():
    asked, block = SerialEngine(seed=1), SerialEngine(seed=2)
    with engine_block(block) as e:
        assert current_engine() is e
        plan = from_iterable([1]).for_each(lambda x: current_engine())
        assert plan.take(1) == [block]
        with plan.run(engine=asked) as stream:
            assert next(stream) is asked
    assert current_engine() is current_engine()
    assert current_engine().name == "serial"


def test_explain_and_repr_show_the_engine():
    engine = SerialEngine(seed=7)
    plan = from_range(4).gather_sync()
    with engine_block(engine):
        assert "SerialEngine(seed=7)" in plan.explain()
        with plan.run() as stream:
            assert "SerialEngine(seed=7)" in repr(stream) and "SerialEngine(seed=7)" in stream.explain()


def test_engine_by_name_is_one_ray_engine_and_a_new_serial_one():
    assert engine_by_name("ray") is engine_by_name("ray")
    assert engine_by_name("serial") is not engine_by_name("serial")


# --- a cluster too small --------------------------------------------------------------------------------------------


def test_a_cluster_that_is_too_small_is_an_error_at_once(on_ray):
    began = time.monotonic()
    plan = from_actors([ActorHandle(Source, resources={"num_cpus": 3}) for _ in range(3)]).gather_sync()
    with pytest.raises(ClusterError, match=r"the plan asks for CPU: 9, the cluster has CPU: 4"), plan.run():
        pass
    assert time.monotonic() - began < 5


def test_a_resource_that_nobody_has_is_named(on_ray):
    plan = from_range(4).for_each(abs, max_concurrency=2, resources={"resources": {"moon": 1}}).gather_sync()
    with pytest.raises(ClusterError, match=r"moon: 1, the cluster has moon: 0"), plan.run():
        pass


def test_a_cluster_that_is_taken_is_an_error_within_10_seconds(on_ray):
    with engine_block(on_ray.inner) as e:
        actor = e.start(Recorder, resources={"num_cpus": 3})
        e.result(e.call(actor, "all"))
        plan = from_actors([ActorHandle(Source, resources={"num_cpus": 2})]).gather_sync()
        began = time.monotonic()
        with pytest.raises(ClusterError, match=r"CPU: 2, and only CPU: 1 is free"), plan.run():
            pass
        assert time.monotonic() - began < 10


def test_plans_take_no_cpu_of_rays_accounting(on_ray):
    """Eight shards on four CPUs, as 2 workers and 2 replay actors on 2 cores: they must never wait for ever."""
    assert sorted(from_items(range(6), num_shards=6).gather_async()) == list(range(6))


# --- what workers cannot import -------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path):
    """A module that only the driver can import: its folder is not on the workers' path."""
    import importlib.util
    import sys

    path = tmp_path / "only_the_driver_has_it.py"
    path.write_text(
        "class Thing:\n"
        "    def __init__(self, x):\n"
        "        self.x = x\n"
        "class Wrong(Exception):\n"
        "    def __init__(self, x, why):\n"
        "        super().__init__(why)\n"
        "        self.x = x\n"
        "def wrap(x):\n"
        "    if x == 2:\n"
        "        raise Wrong(x, 'two')\n"
        "    return Thing(x)\n"
    )
    spec = importlib.util.spec_from_file_location("only_the_driver_has_it", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_a_module_that_workers_cannot_import_is_sent_by_value(engine, elsewhere):
    with engine.shards(range(4)).for_each(elsewhere.wrap).gather_sync().run() as stream:
        things = [next(stream), next(stream)]
        with pytest.raises(elsewhere.Wrong, match="two") as caught:
            next(stream)
        things.append(next(stream))
    assert [thing.x for thing in things] == [0, 1, 3]
    assert all(isinstance(thing, elsewhere.Thing) for thing in things)
    assert caught.value.x == 2


def test_a_class_of_such_a_module_can_be_an_actor(on_ray, tmp_path):
    import importlib.util
    import sys

    path = tmp_path / "an_actor_of_the_driver.py"
    path.write_text("class Adder:\n    def add(self, a, b):\n        return a + b\n")
    spec = importlib.util.spec_from_file_location("an_actor_of_the_driver", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with engine_block(on_ray.inner) as e:
        assert e.result(e.call(e.start(module.Adder), "add", 1, 2)) == 3


def test_arguments_of_an_actor_from_such_a_module_reach_it(on_ray, elsewhere):
    with engine_block(on_ray.inner) as e:
        holder = e.start(Holder, {"thing": elsewhere.Thing(7), "cls": elsewhere.Thing})
        assert e.result(e.call(holder, "ask")) == (7, "Thing")


class Holder:
    def __init__(self, things):
        self.things = things

    def ask(self):
        return self.things["thing"].x, self.things["cls"].__name__


def test_what_cannot_travel_at_all_names_the_operator_and_the_remedy(engine):
    import threading

    lock = threading.Lock()

    def locked(x):
        with lock:
            return x

    with pytest.raises(PlanError, match=r"for_each\(locked @ test_engines\.py:\d+\) at test_engines\.py:\d+ cannot travel") as caught:
        engine.shards([1]).for_each(locked).gather_sync().take(1)
    assert "inside the function" in str(caught.value)


def test_a_module_that_is_missing_in_the_workers_and_cannot_be_sent_is_named(on_ray):
    def load():
        def fail(x):
            return x

        return fail

    class Trap:
        """Pickles to something that needs a module which nobody has."""

        def __call__(self, x):
            return x

        def __reduce__(self):
            return __import__, ("a_module_that_nobody_has",)

    with pytest.raises(PlanError, match=r"a worker cannot import the module 'a_module_that_nobody_has'.*PYTHONPATH"):
        on_ray.shards([1]).for_each(Trap()).gather_sync().take(1)


# --- what a process without Ray up gets -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fresh_process(python):
    """A process that had no Ray: what its runs found. One process for several tests, as Ray takes seconds to start."""
    out = python(
        """
        import os
        from flowrl.iter import ActorHandle, ParallelIteratorWorker, engine, from_actors, from_items
        from flowrl.iter.choose import engine_by_name

        class Letters(ParallelIteratorWorker):
            def __init__(self, letters):
                super().__init__(letters, False)

        plan = from_actors([ActorHandle(Letters, [letter], {"num_cpus": 2}) for letter in "abc"]).gather_sync()
        with plan.run("ray") as stream:
            print("items", "".join(stream))
        import ray
        print("initialised", ray.is_initialized())
        print("cpus", int(ray.cluster_resources()["CPU"]), os.cpu_count())
        job = ray.get_runtime_context().get_job_id()
        with engine("ray"):
            print("again", from_items([1, 2], 1).gather_sync().take(2), ray.get_runtime_context().get_job_id() == job)
        """
    )
    return dict(line.split(" ", 1) for line in out.splitlines() if line)


def test_with_no_ray_up_a_local_one_is_started_with_the_cpus_that_the_actors_ask(fresh_process):
    assert fresh_process["items"] == "abc"
    cpus, cores = map(int, fresh_process["cpus"].split())
    assert cpus == max(6, cores)


def test_the_local_ray_is_kept_for_later_runs_and_its_process_ends_by_itself(fresh_process):
    assert fresh_process["initialised"] == "True"
    assert fresh_process["again"] == "[1, 2] True"
