"""Training as an operator."""

import numpy as np
import pytest

import flowrl as fl
from flowrl.ops import ConcatBatches, ParallelRollouts, TrainOneStep
from tests.envs import CountEnv


def config(**settings) -> fl.PPOConfig:
    return fl.PPOConfig(**{"env": lambda context: CountEnv(3), "rollout_fragment_length": 4, "hiddens": (4,), "lr": 0.1, **settings})


def test_after_a_step_every_worker_has_the_learners_weights_and_samples_with_them(engine):
    workers = fl.WorkerSet(config(num_workers=2))
    with ParallelRollouts(workers).for_each(TrainOneStep(workers)).run() as train:
        before = workers.local_worker().get_weights()
        for version in range(3):
            batch, _ = next(train)
            assert set(batch["policy_version"]) == {version}  # C2: made with the weights of the round before
            local, *remote = workers.foreach_worker(lambda worker: worker.get_weights())
            assert all(np.array_equal(other[name], local[name]) for other in remote for name in local)
        assert any(not np.array_equal(before[name], local[name]) for name in local)
        assert train.metrics.counters["num_weight_syncs"] == 6


def test_steps_trained_count_rows_once_whatever_the_epochs_and_minibatches():
    workers = fl.WorkerSet(config(num_workers=1, engine="serial"))
    plan = ParallelRollouts(workers).combine(ConcatBatches(10)).for_each(TrainOneStep(workers, num_sgd_iter=5, sgd_minibatch_size=3))
    with plan.run() as train:
        batch, statistics = next(train)
        metrics = train.metrics
        assert batch.count == metrics.counters["num_steps_trained"] == metrics.timers["learn"].units == 12
        assert metrics.info["learner"] == statistics
        assert {"policy_loss", "vf_loss", "entropy", "kl", "grad_norm", "explained_variance"} <= set(statistics)
        assert all(np.isfinite(value) for value in statistics.values())


def test_a_worker_that_refuses_weights_is_heard(engine):
    workers = fl.WorkerSet(config(num_workers=1))

    def spoil(worker):
        worker.policy.set_weights = lambda weights: 1 / 0

    with workers.open(), ParallelRollouts(workers).for_each(TrainOneStep(workers)).run() as train:
        workers.engine.result(workers.remote_workers()[0].apply.remote(spoil))
        with pytest.raises(ZeroDivisionError):
            [next(train) for _ in range(3)]


def test_the_picture_shows_the_weights_on_their_way_back():
    workers = fl.WorkerSet(config(num_workers=2))
    graph = ParallelRollouts(workers).for_each(TrainOneStep(workers)).graph()
    messages = [
        (graph.nodes[a]["operator"], graph.nodes[b]["operator"], edge["label"])
        for a, b, edge in graph.edges(data=True)
        if edge["kind"] == "message"
    ]
    assert messages == [("TrainOneStep", "ParallelRollouts", "weights")]
