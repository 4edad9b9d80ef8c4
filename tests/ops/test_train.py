"""Training as an operator."""

import numpy as np
import pytest

import flowrl as fl
from flowrl.algorithms.ppo import PPOPolicy
from flowrl.metrics import Mean
from flowrl.ops import ApplyGradients, AverageGradients, ComputeGradients, ConcatBatches, ParallelRollouts, TrainOneStep
from flowrl.ops.train import BatchGradient
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


def rows_for(workers: fl.WorkerSet, num_rows: int) -> fl.SampleBatch:
    parts = []
    while sum(part.count for part in parts) < num_rows:
        parts.append(workers.local_worker().sample())
    return fl.SampleBatch.concat(parts)[:num_rows]


def run_once(operator, item):
    """What the operator makes of this one item, in a run."""
    return fl.from_iterable([0]).for_each(lambda _: item).for_each(operator).take(1)[0]


@pytest.mark.parametrize("make", [fl.A2CConfig, fl.PPOConfig])
def test_parts_of_7_16_and_41_rows_give_the_gradient_of_all_64(make):  # F4
    workers = fl.WorkerSet(make(env="CartPole-v1", entropy_coeff=0.01))
    with workers.open():
        batch = rows_for(workers, 64)
        workers.local_worker().policy.network.double()
        whole = run_once(ComputeGradients(workers), batch)
        parts = run_once(ComputeGradients(workers), [batch[:7], batch[7:23], batch[23:]])
        assert [part.num_rows for part in parts] == [7, 16, 41]
        average = run_once(AverageGradients(), parts)
    assert average.num_rows == whole.num_rows == 64
    for name, gradient in whole.gradient[0].items():
        assert gradient.dtype == np.float64
        assert np.abs(average.gradient[0][name] - gradient).max() < 1e-6
        assert np.abs(gradient).max() > 1e-6 or "policy" in name
    for name in ("policy_loss", "vf_loss", "entropy"):
        assert average.gradient[1][name].value == pytest.approx(whole.gradient[1][name].value, abs=1e-6)


def test_an_average_is_weighted_by_rows():
    gradients = [BatchGradient(({"w": np.array([value])}, {"loss": Mean.of(value, rows)}), rows) for value, rows in ((1.0, 1), (4.0, 2))]
    ((average, info), num_rows) = AverageGradients()(gradients)
    assert (average["w"].tolist(), info["loss"].value, num_rows) == ([3.0], 3.0, 3)
    assert gradients[0].gradient[1]["loss"] == Mean(1.0, 1)  # what came in stays as it was
    with pytest.raises(ValueError, match="no gradients"):
        AverageGradients()([])


def test_applying_the_average_is_one_optimizer_step_and_one_version_for_all(engine):
    workers = fl.WorkerSet(config(num_workers=2, observation_filter="MeanStdFilter"))
    plan = (
        ParallelRollouts(workers)
        .for_each(lambda batch: batch.split(3))
        .for_each(ComputeGradients(workers))
        .for_each(AverageGradients())
        .for_each(ApplyGradients(workers))
    )
    with plan.run() as train:
        for version in range(1, 4):
            part, statistics = next(train)
            assert part.num_rows == 8
            assert workers.local_worker().policy_version == version
            assert train.metrics.counters["num_steps_trained"] == train.metrics.counters["num_steps_sampled"] == 8 * version
            assert train.metrics.info["learner"] == statistics and {"policy_loss", "grad_norm", "lr"} <= set(statistics)
            local, *remote = workers.foreach_worker(lambda worker: worker.get_weights())
            assert all(np.array_equal(other[name], local[name]) for other in remote for name in local)
            assert local["obs_filter.count"].tolist() == [8.0 * version]  # moments travelled with the gradients
        assert train.metrics.counters["num_weight_syncs"] == 6


def test_the_learning_rate_follows_its_schedule_by_sampled_steps():
    workers = fl.WorkerSet(config(rollout_fragment_length=10, lr_schedule=[[0, 0.2], [40, 0.0]]))
    rates = [statistics["lr"] for _, statistics in ParallelRollouts(workers).for_each(TrainOneStep(workers)).take(5)]
    assert rates == pytest.approx([0.15, 0.1, 0.05, 0.0, 0.0])


def test_normalisation_is_the_same_in_every_worker_and_is_made_of_all_their_rows(engine):
    workers = fl.WorkerSet(config(num_workers=2, observation_filter="MeanStdFilter", normalize_rewards=True, gamma=0.5))
    with ParallelRollouts(workers).for_each(TrainOneStep(workers)).run() as train:
        batches = [next(train)[0] for _ in range(3)]
        states = workers.foreach_worker(lambda worker: worker.get_weights())
    obs = np.concatenate([batch["obs"] for batch in batches]).astype(np.float64)
    for weights in states:
        assert weights["obs_filter.count"].tolist() == [24.0]
        assert np.allclose(weights["obs_filter.mean"], obs.mean(0))
        assert np.allclose(weights["obs_filter.deviations"], ((obs - obs.mean(0)) ** 2).sum(0))
        # CountEnv(3) pays 1, 2, 3: discounted returns 1, 2.5, 4.25 in every episode
        assert set(np.concatenate([batch["discounted_returns"] for batch in batches]).tolist()) == {1.0, 2.5, 4.25}
    assert all(episode.episode_return == 6.0 for batch in batches for episode in batch.episodes)  # H6: returns stay the env's own


@pytest.mark.parametrize("operator", [TrainOneStep, ComputeGradients, ApplyGradients])
def test_operators_that_learn_want_a_worker_set(operator):
    with pytest.raises(fl.PlanError, match=rf"{operator.__name__}\('workers'\) at .*: pass a WorkerSet"):
        operator("workers")


def test_after_an_error_in_the_middle_of_a_batch_all_workers_have_what_the_learner_has(engine):
    class Breaks(PPOPolicy):
        calls = 0

        def loss(self, batch):
            self.calls += 1
            if self.calls == 2:
                raise ZeroDivisionError("in the loss")
            return super().loss(batch)

    class BreaksConfig(fl.PPOConfig):
        def make_policy(self, observation_space, action_space, seed):
            return Breaks(self, observation_space, action_space, seed)

    workers = fl.WorkerSet(BreaksConfig(**dict(config(num_workers=1))))
    with ParallelRollouts(workers).for_each(TrainOneStep(workers, sgd_minibatch_size=2)).run() as train:
        before = workers.local_worker().get_weights()
        with pytest.raises(ZeroDivisionError):
            next(train)
        local, remote = workers.foreach_worker(lambda worker: (worker.policy_version, worker.get_weights()))
        assert any(not np.array_equal(before[name], local[1][name]) for name in before)  # the first minibatch had changed them
        assert local[0] == remote[0] == 1
        assert all(np.array_equal(remote[1][name], local[1][name]) for name in before)
        assert set(next(train)[0]["policy_version"]) == {1}


def test_schedules_go_by_the_same_steps_in_parts_as_in_one():
    seen = []

    class Looks(PPOPolicy):
        def loss(self, batch):
            seen.append(self.num_steps_sampled)
            return super().loss(batch)

    class LooksConfig(fl.PPOConfig):
        def make_policy(self, observation_space, action_space, seed):
            return Looks(self, observation_space, action_space, seed)

    workers = fl.WorkerSet(LooksConfig(**dict(config(rollout_fragment_length=10, lr_schedule=[[0, 0.2], [40, 0.0]]))))
    plan = ParallelRollouts(workers).for_each(ComputeGradients(workers)).for_each(ApplyGradients(workers))
    rates = [statistics["lr"] for _, statistics in plan.take(3)]
    assert seen == [10, 20, 30]
    assert rates == pytest.approx([0.15, 0.1, 0.05])


def test_explained_variance_of_parts_is_that_of_the_whole():
    workers = fl.WorkerSet(fl.A2CConfig(env="CartPole-v1"))
    with workers.open():
        batch = rows_for(workers, 64)
        whole = run_once(ComputeGradients(workers), batch)
        average = run_once(AverageGradients(), run_once(ComputeGradients(workers), batch.split(5)))
    assert average.gradient[1]["explained_variance"].value == pytest.approx(whole.gradient[1]["explained_variance"].value, abs=1e-9)


def test_after_an_error_behind_the_step_of_applied_gradients_all_workers_have_what_the_learner_has(engine):
    class Breaks(PPOPolicy):
        def learned(self, info):
            raise ZeroDivisionError("behind the step")

    class BreaksConfig(fl.PPOConfig):
        def make_policy(self, observation_space, action_space, seed):
            return Breaks(self, observation_space, action_space, seed)

    workers = fl.WorkerSet(BreaksConfig(**dict(config(num_workers=1))))
    with ParallelRollouts(workers).for_each(ComputeGradients(workers)).for_each(ApplyGradients(workers)).run() as train:
        with pytest.raises(ZeroDivisionError):
            next(train)
        local, remote = workers.foreach_worker(lambda worker: (worker.policy_version, worker.get_weights()))
        assert local[0] == remote[0] == 1
        assert all(np.array_equal(remote[1][name], local[1][name]) for name in local[1])
