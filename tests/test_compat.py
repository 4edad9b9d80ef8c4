"""Plans in RLlib's old spellings run as they are; this one is a plan of our own in them."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

import flowrl as fl
from flowrl import compat
from flowrl.compat import *  # noqa: F403

CONFIG = fl.ApexConfig(
    env="CartPole-v1",
    num_workers=2,
    rollout_fragment_length=20,
    learning_starts=100,
    buffer_size=2000,
    train_batch_size=32,
    target_network_update_freq=200,
    max_weight_sync_delay=40,
    min_steps_per_reporting=0,
    hiddens=(16,),
)


def execution_plan(workers: WorkerSet, config: dict):  # noqa: F405
    """Sampling into replay actors, learning beside it; weights, priorities and counters by hand."""
    settings = config["optimizer"]
    replay_actors = create_colocated(  # noqa: F405
        ReplayActor,  # noqa: F405
        [
            settings["num_replay_buffer_shards"],
            config["learning_starts"],
            config["buffer_size"],
            config["train_batch_size"],
            config["prioritized_replay_alpha"],
            config["prioritized_replay_beta"],
            config["prioritized_replay_eps"],
        ],
        settings["num_replay_buffer_shards"],
    )
    learner = LearnerThread(workers.local_worker())  # noqa: F405
    learner.start()

    def count_and_update(item):
        actor, priorities, count = item
        actor.update_priorities.remote(priorities)
        metrics = _get_shared_metrics()  # noqa: F405
        metrics.counters[STEPS_TRAINED_COUNTER] += count  # noqa: F405
        metrics.timers["learner_grad"] = learner.grad_timer
        assert LocalIterator.get_metrics() is metrics  # noqa: F405

    store = ParallelRollouts(workers, mode="async", async_queue_depth=2).for_each(StoreToReplayActors(replay_actors))  # noqa: F405
    if workers.remote_workers():
        delay = settings["max_weight_sync_delay"]
        store = store.zip_with_source_actor().for_each(UpdateWorkerWeights(learner, workers, max_weight_sync_delay=delay))  # noqa: F405
    replay = ParallelReplay(replay_actors, async_queue_depth=4).zip_with_source_actor().for_each(Enqueue(learner.inqueue))  # noqa: F405
    update = Dequeue(learner.outqueue, check=learner.is_alive).for_each(count_and_update)  # noqa: F405
    update = update.for_each(UpdateTargetNetwork(workers, config["target_network_update_freq"], by_steps_trained=True))  # noqa: F405
    merged = Concurrently([store, replay, update], mode="async", output_indexes=[2])  # noqa: F405

    def add_learner(result):
        result["info"]["learner_stats"] = copy.deepcopy(learner.stats)
        result["info"]["learner_queue"] = learner.learner_queue_size.stats()
        result["info"]["debug"] = config["optimizer"].get("debug")
        return result

    return StandardMetricsReporting(merged, workers, config).for_each(add_learner)  # noqa: F405


@pytest.mark.parametrize("num_workers", [2, 0])
def test_a_plan_in_the_old_spellings_samples_stores_replays_trains_and_syncs(engine, num_workers):
    config = CONFIG.replace(num_workers=num_workers)
    workers = fl.WorkerSet(config)
    plan = execution_plan(workers, config)
    for _ in range(2 if engine.name == "serial" else 1):  # a second run starts over
        with plan.run() as stream:
            for result in stream:
                if result["num_target_updates"] >= 2 and (result["num_weight_syncs"] >= 2 or not num_workers):
                    break
        assert 100 <= result["num_steps_sampled"] < 20_000
        assert result["num_steps_trained"] >= 400
        assert result["info"]["learner_stats"]["loss"] >= 0 and result["info"]["learner_queue"]["count"] > 0
        assert result["info"]["timers"]["learner_grad"]["units"] >= 400
        assert result["info"]["debug"] is False


def test_building_checking_and_drawing_start_nothing(python):
    python(
        """
        import threading, ray
        from tests.test_compat import CONFIG, execution_plan
        import flowrl as fl
        plan = execution_plan(fl.WorkerSet(CONFIG), CONFIG)
        plan.check()
        assert "test_compat.py:" in plan.explain()
        plan.graph()
        assert threading.active_count() == 1 and not ray.is_initialized()
        """
    )


def test_its_picture_knows_the_plans_lines():
    workers = fl.WorkerSet(CONFIG)
    text = execution_plan(workers, CONFIG).explain()
    for operator in ("ParallelRollouts", "StoreToReplayBuffer", "UpdateWorkerWeights", "Enqueue", "Dequeue", "count_and_update"):
        (line,) = [line for line in text.splitlines() if operator in line and "see above" not in line and "┄>" not in line]
        assert "test_compat.py:" in line
    assert "LearnerThread" in text


def test_it_only_renames():
    """No more than 120 lines, no class, no loop, no thread and no actor of its own."""
    import ast

    source = Path(compat.__file__).read_text()
    assert len(source.splitlines()) <= 120
    kinds = {type(node) for node in ast.walk(ast.parse(source))}
    assert not kinds & {ast.ClassDef, ast.For, ast.While, ast.With, ast.Try, ast.Lambda}


def test_the_old_spellings_are_all_there():
    assert set(compat.__all__) == {
        *("WorkerSet", "create_colocated", "ReplayActor", "LearnerThread", "LocalIterator", "ParallelRollouts", "StoreToReplayBuffer"),
        *("StoreToReplayActors", "Replay", "ParallelReplay", "UpdateWorkerWeights", "UpdateTargetNetwork", "Enqueue", "Dequeue"),
        *("Concurrently", "StandardMetricsReporting", "STEPS_TRAINED_COUNTER", "STEPS_SAMPLED_COUNTER", "_get_shared_metrics"),
    }
