"""Ape-X's settings, and what its workers do by themselves: explore each in its own measure, and say priorities."""

import gymnasium as gym
import numpy as np
import pytest

from flowrl.algorithms.apex import ApexConfig, ApexPolicy
from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError

OBS = gym.spaces.Box(-1, 1, (1,), np.float32)
TWO = gym.spaces.Discrete(2)


def policy(worker_index=0, action_space=TWO, **settings) -> ApexPolicy:
    mine = ApexConfig(**{"hiddens": (8,), **settings}).make_policy(OBS, action_space, np.random.SeedSequence(worker_index))
    mine.worker_index = worker_index
    return mine


def test_each_worker_explores_in_its_own_measure():  # L3
    found = [policy(index, num_workers=4).epsilon for index in (1, 2, 3, 4)]
    # Horgan et al., 2018, section 4, with 4 actors
    assert found == pytest.approx([0.4, 0.0471556, 0.00555913, 0.00065536], rel=1e-5)


@pytest.mark.parametrize(("num_workers", "worker_index"), [(1, 1), (0, 0), (4, 0)])
def test_a_worker_alone_and_the_local_one_explore_as_the_first(num_workers, worker_index):  # L3
    assert policy(worker_index, num_workers=num_workers).get_exploration_info() == {"epsilon": pytest.approx(0.4)}


def test_base_and_exponent_can_be_set():
    assert policy(2, num_workers=2, epsilon_base=0.5, epsilon_exponent=2).epsilon == pytest.approx(0.5**3)


def test_a_schedule_takes_the_place_of_the_workers_own():
    mine = policy(2, num_workers=2, epsilon_schedule=((0, 1.0), (100, 0.0)))
    mine.num_steps_sampled = 25
    assert mine.epsilon == pytest.approx(0.75)


def test_evaluation_explores_nothing():  # L3
    mine = policy(1, num_workers=1, epsilon_base=1.0)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 1)).astype(np.float32)
    assert np.array_equal(mine.act(obs, explore=False)[0], mine.q_values(obs).argmax(axis=1))


@pytest.mark.parametrize("start", [0, 3])
def test_priorities_are_the_errors_of_the_workers_own_network(start):
    mine = policy(
        action_space=gym.spaces.Discrete(2, start=start), n_step=3, gamma=0.9, prioritized_replay_eps=0.5, hiddens=(), dueling=False
    )
    # Q(s, a) = (1, 2) + (10, -10) s
    mine.set_weights({"q.weight": np.float32([[10], [-10]]), "q.bias": np.float32([1, 2])})
    t = np.arange(5)
    rows = mine.postprocess(
        SampleBatch(
            {
                "obs": (t[:, None] / 10).astype(np.float32),
                "new_obs": ((t[:, None] + 1) / 10).astype(np.float32),
                "actions": np.array([0, 1, 0, 1, 0]) + start,
                "rewards": np.arange(1, 6).astype(np.float32),
                "terminateds": t == 4,
                "truncateds": np.zeros(5, bool),
                "eps_id": np.zeros(5, int),
                "t": t,
            }
        )
    )
    q = [1 + 0, 2 - 1, 1 + 2, 2 - 3, 1 + 4]
    # the last three windows reach the end, the first two s = 0.3 and 0.4, where the highest is action 0's
    y = [1 + 2 * 0.9 + 3 * 0.81 + 0.729 * 4, 2 + 3 * 0.9 + 4 * 0.81 + 0.729 * 5, 3 + 4 * 0.9 + 5 * 0.81, 4 + 5 * 0.9, 5]
    assert rows["priorities"].tolist() == pytest.approx([abs(a - b) + 0.5 for a, b in zip(q, y)], rel=1e-5)
    assert rows["priorities"].dtype == np.float32


def test_priorities_are_those_that_the_learner_would_give_while_its_target_is_fresh():
    mine = policy(double_q=True)
    obs = np.random.default_rng(0).uniform(-1, 1, (6, 1)).astype(np.float32)
    ends = np.arange(5) == 2
    rows = mine.postprocess(
        SampleBatch(
            {
                "obs": obs[:-1],
                "new_obs": obs[1:],
                "actions": np.arange(5) % 2,
                "rewards": np.ones(5, np.float32),
                "terminateds": ends,
                "truncateds": ends & ~ends,
            }
        )
    )
    errors = mine.loss(rows)[1]["td_errors"].numpy()
    assert rows["priorities"] == pytest.approx(np.abs(errors) + mine.config.prioritized_replay_eps, abs=1e-5)


def test_old_plans_read_their_settings_from_a_view_that_is_no_setting():
    config = ApexConfig(num_replay_buffer_shards=3, max_weight_sync_delay=100)
    assert dict(config["optimizer"]) == {"num_replay_buffer_shards": 3, "max_weight_sync_delay": 100, "debug": False}
    assert config.get("optimizer").get("debug") is False and config.optimizer == config["optimizer"]
    assert "optimizer" not in config and "optimizer" not in list(config) and "optimizer" not in dict(config)
    assert "num_replay_buffer_shards" in config and "lrr" not in config
    with pytest.raises(TypeError, match="does not support item assignment"):
        config["optimizer"]["debug"] = True


def test_the_view_does_not_hide_a_wrong_key():
    with pytest.raises(KeyError, match="ApexConfig has no setting 'optimiser'"):
        ApexConfig()["optimiser"]


def test_settings_survive_a_file():
    config = ApexConfig(epsilon_base=0.3, num_replay_buffer_shards=1)
    assert dict(ApexConfig.from_dict(config.to_dict())) == dict(config)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prioritized_replay": False}, "prioritized_replay=False: expected True, Ape-X replays by priority"),
        ({"epsilon_base": 1.5}, "epsilon_base=1.5: expected a number from 0.0 to 1.0"),
        ({"num_replay_buffer_shards": 0}, "num_replay_buffer_shards=0: expected a whole number, 1 or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        ApexConfig(**settings)
