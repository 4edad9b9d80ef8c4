"""DQN as a whole: its plan in every form, the ratio of training to sampling, and that it can be repeated."""

from __future__ import annotations

import numpy as np
import pytest

import flowrl as fl
from flowrl.algorithms import dqn
from flowrl.ops import Concurrently, ParallelRollouts, Replay, StoreToReplayBuffer, TrainOneStep, UpdatePriorities
from flowrl.replay.local_buffer import LocalReplayBuffer

CONFIG = fl.DQNConfig(
    env="CartPole-v1",
    num_envs=4,
    rollout_fragment_length=8,
    learning_starts=100,
    train_batch_size=32,
    target_network_update_freq=200,
    min_steps_per_reporting=100,
    hiddens=(16,),
)
FORMS = {
    "plain": {"double_q": False, "dueling": False},
    "double dueling": {},
    "n-step": {"n_step": 3},
    "prioritized": {"prioritized_replay": True},
    "everything": {"n_step": 3, "prioritized_replay": True, "observation_filter": "MeanStdFilter", "training_intensity": 4.0},
}


def run(engine="serial", num_results=6, **settings):
    config = CONFIG.replace(**settings)
    workers = fl.WorkerSet(config)
    with dqn.execution_plan(workers, config).run(engine=engine) as stream:
        results = [next(stream) for _ in range(num_results)]
    return results, {name: array.tobytes() for name, array in workers.local_worker().get_weights().items()}


def comparable(results):
    return repr([(result["info"]["counters"], result["info"]["learner"], result["episode_return_mean"]) for result in results])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_trains_and_can_be_repeated_from_its_seed(form):
    (results, weights), (again, same) = run(**form), run(**form)
    assert comparable(results) == comparable(again) and weights == same
    last = results[-1]
    assert last["num_steps_trained"] > 0 and last["num_target_updates"] >= 2
    assert run(seed=1, **form)[1] != weights


@pytest.mark.parametrize("num_workers", [0, 2])
def test_serial_and_ray_give_the_same_bits(on_ray, num_workers):
    """C12: its rollouts are a barrier, and its replay is in the driver."""
    settings = {"num_workers": num_workers, **FORMS["everything"]}
    one, other = run("serial", **settings), run("ray", **settings)
    assert comparable(one[0]) == comparable(other[0]) and one[1] == other[1]


@pytest.mark.parametrize("intensity", [4, 0.25])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_training_intensity_is_held_after_the_warm_up(intensity, num_workers):
    """F2: 2,000 sampled steps after learning starts."""
    config = CONFIG.replace(num_workers=num_workers, training_intensity=intensity)
    with dqn.execution_plan(fl.WorkerSet(config), config).run(engine="serial") as stream:
        began = next(stream)
        while (began := next(stream))["num_steps_sampled"] < 500:
            pass
        while (last := next(stream))["num_steps_sampled"] - began["num_steps_sampled"] < 2000:
            pass
    trained, sampled = (last[name] - began[name] for name in ("num_steps_trained", "num_steps_sampled"))
    assert trained / sampled == pytest.approx(intensity, rel=0.05)


def test_without_it_each_fragment_is_followed_by_one_train_batch():
    results, _ = run(num_results=8)
    first, last = results[2], results[-1]
    fragments = (last["num_steps_sampled"] - first["num_steps_sampled"]) / 32
    assert last["num_steps_trained"] - first["num_steps_trained"] == 32 * fragments


def test_the_replay_buffer_starts_at_learning_starts():
    results, _ = run(num_results=1, learning_starts=320)
    assert results[0]["num_steps_sampled"] >= 320
    assert 1 <= results[0]["num_steps_trained"] // 32 <= 5  # at most four turns are owed, and its own


def test_priorities_follow_the_td_errors(serial):
    """After training, the rows of the buffer have priorities of their own."""
    config = CONFIG.replace(prioritized_replay=True, train_batch_size=64)

    workers, buffer = fl.WorkerSet(config), LocalReplayBuffer(*config.replay_settings)
    store = ParallelRollouts(workers).for_each(StoreToReplayBuffer(local_buffer=buffer))
    train = Replay(local_buffer=buffer).for_each(TrainOneStep(workers)).for_each(UpdatePriorities(local_buffer=buffer))
    with Concurrently([store, train], output_indexes=[1]).run() as stream:
        batch, report = next(stream)
        assert "td_errors" not in report and batch["td_errors"].shape == (64,)
        again, _ = next(stream)
    assert len(set(batch["weights"].tolist())) == 1  # all alike before the first update
    assert len(set(again["weights"].tolist())) > 1


@pytest.mark.parametrize("learning_starts", [0, 500])
def test_round_robin_of_storing_and_training_starts_by_itself(learning_starts):
    """F3: the learner waits for rows that only the branch beside it brings."""
    config = CONFIG.replace(learning_starts=learning_starts)
    with dqn.execution_plan(fl.WorkerSet(config), config).run(engine="serial") as stream:
        sampled = [next(stream)["num_steps_sampled"] for _ in range(4)]
    assert sampled[0] >= learning_starts and sampled == sorted(set(sampled))


def test_after_each_result_all_workers_have_the_learners_weights(engine):
    """F6: a synchronous plan."""
    config = CONFIG.replace(num_workers=2, lr=0.1)
    workers = fl.WorkerSet(config)
    first = None
    with dqn.execution_plan(workers, config).run() as stream:
        for _ in range(3):
            next(stream)
            local, *remote = workers.foreach_worker(lambda worker: {name: w.copy() for name, w in worker.get_weights().items()})
            assert all(np.array_equal(local[name], other[name]) for other in remote for name in local)
            assert first is None or not np.array_equal(first, next(iter(local.values())))
            first = next(iter(local.values()))
