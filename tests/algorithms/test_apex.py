"""Ape-X as a whole: its branches, its ratio of training to sampling, and that it can be repeated on the serial engine."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest

import flowrl as fl
from flowrl.algorithms import a2c, a3c, apex, dqn, ppo
from tests.envs import CountEnv

CONFIG = fl.ApexConfig(
    env="CartPole-v1",
    num_workers=2,
    num_envs=2,
    rollout_fragment_length=16,
    learning_starts=200,
    buffer_size=5000,
    train_batch_size=32,
    target_network_update_freq=500,
    max_weight_sync_delay=100,
    min_steps_per_reporting=0,
    hiddens=(16,),
)
INTENSITIES = [None, 4.0]


def without_times(result):
    info = {"counters": result["info"]["counters"], "learner": result["info"]["learner"]}
    return {**{name: value for name, value in result.items() if name not in ("time_s", "steps_per_s")}, "info": info}


@pytest.mark.parametrize("intensity", INTENSITIES)
def test_every_branchs_counters_appear_in_one_result(engine, intensity):
    with CONFIG.replace(training_intensity=intensity, engine=engine.name).build() as trainer:
        while True:
            result = trainer.train()
            if result["num_target_updates"] >= 2 and result["num_weight_syncs"] >= 2 and result["episodes_total"] > 0:
                break
    assert result["num_steps_sampled"] >= 200 and result["num_steps_trained"] >= 1000
    assert result["info"]["learner"]["loss"] >= 0
    assert {"learner_dequeue", "learner_grad", "learner_overall", "sync_weights"} <= result["info"]["timers"].keys()


@pytest.mark.parametrize("intensity", INTENSITIES)
def test_a_whole_run_on_the_serial_engine_can_be_repeated_from_its_seed(intensity):
    def run(seed):
        config = CONFIG.replace(training_intensity=intensity, seed=seed)
        workers = fl.WorkerSet(config)
        with apex.execution_plan(workers, config).run(engine=fl.SerialEngine(seed=seed)) as stream:
            results = [without_times(next(stream)) for _ in range(60)]
        return repr(results), {name: array.tobytes() for name, array in workers.local_worker().get_weights().items()}

    first, again, other = run(3), run(3), run(4)
    assert first == again
    assert first[1] != other[1]


@pytest.mark.parametrize(("intensity", "num_sampled"), [(40.0, 1500), (0.5, 4000)])  # 40 batches a fragment: more than the queue holds
def test_training_intensity_is_held_within_5_percent_after_the_warm_up(engine, intensity, num_sampled):
    config = CONFIG.replace(training_intensity=intensity, engine=engine.name)
    with config.build() as trainer:
        result = trainer.train()
        while result["num_steps_sampled"] < 600 or result["num_steps_trained"] < 1000:
            result = trainer.train()
        began = result
        while result["num_steps_sampled"] - began["num_steps_sampled"] < num_sampled:
            result = trainer.train()
    trained, sampled = (result[name] - began[name] for name in ("num_steps_trained", "num_steps_sampled"))
    assert trained / sampled == pytest.approx(intensity, rel=0.05)


def test_returns_are_those_of_the_greediest_third_of_the_workers():
    config = CONFIG.replace(num_workers=3, training_intensity=1.0)
    workers = fl.WorkerSet(config)
    with apex.execution_plan(workers, config).run(engine="serial") as stream:
        while True:
            result = next(stream)
            if result["episodes_total"] >= 5:
                break
        finished = stream.metrics.values["episodes"].since(0)
    assert result["episodes_total"] == sum(episode.worker == 3 for episode in finished) < len(finished)


def test_before_learn_on_batch_sees_each_replayed_batch(serial):
    seen = []

    def doubled(batch, workers, config):
        seen.append((batch.count, workers, config))
        return batch.with_columns(rewards=2 * batch["rewards"])

    config = CONFIG.replace(before_learn_on_batch=doubled, engine="serial")
    with config.build() as trainer:
        trainer.train()
    count, workers, given = seen[0]
    assert count == 32 and isinstance(workers, fl.WorkerSet) and given.before_learn_on_batch is doubled


def test_the_learners_own_error_reaches_the_consumer(engine):
    def poisoned(batch, workers, config):
        return batch.with_columns(rewards=np.full(batch.count, np.nan, np.float32))

    config = CONFIG.replace(before_learn_on_batch=poisoned, engine=engine.name)
    with config.build() as trainer, pytest.raises(FloatingPointError, match="the gradient's norm is nan"):
        trainer.train()


@pytest.mark.parametrize(
    ("module", "most"), [(ppo, 12), (a2c, 10), (a3c, 6), (dqn, 20), (apex, 30)], ids=lambda value: getattr(value, "__name__", value)
)
def test_plans_are_short(module, most):
    plans = [inspect.getsource(getattr(module, name)) for name in ("sub_plan", "execution_plan") if hasattr(module, name)]
    code = [line for plan in plans for line in plan.splitlines() if line.strip() and not line.strip().startswith(('"""', "#"))]
    assert len(code) - len(plans) <= most  # without the `def` lines


class SlowEnv(CountEnv):
    """Slower than any patience of a queue should be."""

    def step(self, action):
        time.sleep(0.02)
        return super().step(action)


def test_a_learner_waits_for_slow_envs(on_ray):
    """J4: it has no time-out of its own; the counters go on."""
    config = CONFIG.replace(
        env=lambda context: SlowEnv(5, "term"),
        num_envs=1,
        rollout_fragment_length=8,
        learning_starts=16,
        max_weight_sync_delay=8,
        engine="ray",
    )
    with config.build() as trainer:
        results = [trainer.train() for _ in range(3)]
        while results[-1]["num_weight_syncs"] < 4:
            results.append(trainer.train())
    assert results[-1]["num_steps_trained"] > results[0]["num_steps_trained"] > 0


def test_more_shards_than_rows_are_refused_by_the_setting_s_name():
    with pytest.raises(fl.ConfigError, match="buffer_size=10: expected a row for each of num_replay_buffer_shards=11"):
        fl.ApexConfig(num_replay_buffer_shards=11, buffer_size=10, learning_starts=5)
