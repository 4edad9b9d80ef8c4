import itertools

import gymnasium as gym
import numpy as np
import pytest

import flowrl as fl
from flowrl.rollout.trained import TrainedPolicy
from gates import scores
from tests.envs import PointMass, frozen_lake

CONFIG = fl.PPOConfig(env=PointMass, seed=3)
LAKE = fl.DQNConfig(env=frozen_lake, gamma=0.99, hiddens=(8,))


def unasked(obs):
    raise AssertionError("this score looks at the evaluation alone")


def best_evaluation(seed: int = 3) -> dict:
    env = PointMass()
    return TrainedPolicy(scores._BestConfig(env=PointMass, seed=seed), env.observation_space, env.action_space).evaluate(100)


def test_a_score_is_the_mean_return_where_nothing_else_is_said():
    assert scores.mean_return(CONFIG, {"episode_return_mean": 12.5, "episode_return_min": 0.0}, unasked) == 12.5


def test_the_best_controller_scores_one():
    assert scores.cost_over_optimum(CONFIG, best_evaluation(), unasked) == 1.0


def test_half_as_much_again_scores_one_and_a_half():
    returns = [1.5 * value for value in best_evaluation()["episode_returns"]]
    assert scores.cost_over_optimum(CONFIG, {"episode_returns": returns}, unasked) == pytest.approx(1.5)


def test_a_trainer_evaluates_in_the_episodes_that_the_best_controller_plays():
    with CONFIG.replace(rollout_fragment_length=30, train_batch_size=30).build() as trainer:
        returns = np.array(trainer.evaluate(100)["episode_returns"])
    # An untrained policy does nearly nothing: what it costs is nearly what the start says.
    assert np.corrcoef(returns, best_evaluation()["episode_returns"])[0, 1] > 0.9
    assert scores.cost_over_optimum(CONFIG, {"episode_returns": returns}, unasked) > 2


def test_other_episodes_are_refused():
    with pytest.raises(ValueError, match="evaluated with the same seeds"):
        scores.cost_over_optimum(CONFIG, best_evaluation(seed=4), unasked)


# At 0: stay for 1, or go to 1 for nothing. At 1: to the end for 5, or for nothing, half the time. 2 is the end.
THREE_STATES = {
    0: {0: [(1.0, 0, 1.0, False)], 1: [(1.0, 1, 0.0, False)]},
    1: {0: [(1.0, 2, 5.0, True)], 1: [(0.5, 1, 0.0, False), (0.5, 2, 0.0, True)]},
    2: {0: [(1.0, 2, 0.0, True)], 1: [(1.0, 2, 0.0, True)]},
}


def test_the_values_of_three_states_are_those_computed_by_hand():
    probs, rewards = scores.tabulated(THREE_STATES)
    # Staying at 0.5: 1 / (1 - 0.5) = 2; going: 0.5 * 5 = 2.5, and 0.5 * 0 where 1 takes its other action.
    assert scores.values_of(np.array([0, 0, 0]), probs, rewards, 0.5) == pytest.approx([2, 5, 0])
    assert scores.values_of(np.array([1, 0, 0]), probs, rewards, 0.5) == pytest.approx([2.5, 5, 0])
    assert scores.values_of(np.array([1, 1, 0]), probs, rewards, 0.5) == pytest.approx([0, 0, 0])
    assert scores.optimal_values(probs, rewards, 0.5) == pytest.approx([2.5, 5, 0])
    # At 0.9 it pays to stay: 1 / (1 - 0.9) = 10 against 0.9 * 5.
    assert scores.optimal_values(probs, rewards, 0.9) == pytest.approx([10, 5, 0])


def test_no_policy_of_a_small_mdp_is_worth_more_than_the_optimum():
    rng = np.random.default_rng(0)
    probs, rewards = 0.9 * rng.dirichlet(np.ones(4), (4, 3)), rng.normal(size=(4, 3))
    each = [scores.values_of(np.array(policy), probs, rewards, 0.95) for policy in itertools.product(range(3), repeat=4)]
    assert np.max(each, axis=0) == pytest.approx(scores.optimal_values(probs, rewards, 0.95), abs=1e-9)


def lake() -> tuple[np.ndarray, np.ndarray]:
    return scores.tabulated(gym.make("FrozenLake-v1").unwrapped.P)


def test_the_best_on_the_frozen_lake_gets_there_14_times_out_of_17():
    # Known of the 4x4 lake: without discount its start is worth 14/17, the chance of ever getting to the goal.
    assert scores.optimal_values(*lake(), 1.0)[0] == pytest.approx(14 / 17, abs=1e-6)


def act_as(policy):
    """What acts like this: the state is where the one is."""
    return lambda obs: policy[int(np.argmax(obs))]


def test_the_best_policy_of_the_lake_scores_one_and_another_what_it_plays():
    probs, rewards = lake()
    best = (rewards + 0.99 * probs @ scores.optimal_values(probs, rewards, 0.99)).argmax(axis=1)
    assert scores.start_value_over_optimum(LAKE, {}, act_as(best)) == pytest.approx(1.0, abs=1e-9)
    worse = best.copy()
    worse[14] = (best[14] + 1) % 4
    assert scores.start_value_over_optimum(LAKE, {}, act_as(worse)) == pytest.approx(played(worse) / played(best), abs=0.03)


def played(policy: np.ndarray, num_episodes: int = 20_000) -> float:
    """Mean discounted return of so many episodes at once, drawn from the table."""
    probs, rewards = lake()
    rng, states, total, discount = np.random.default_rng(1), np.zeros(num_episodes, int), 0.0, 1.0
    over = np.zeros(num_episodes, bool)
    ends = 1 - probs.sum(axis=2)
    while discount > 1e-3 and not over.all():
        actions = policy[states]
        total += discount * (rewards[states, actions] * ~over).sum()
        steps = np.concatenate([probs[states, actions], ends[states, actions, None]], axis=1)
        following = (rng.random((num_episodes, 1)) > steps.cumsum(axis=1)).sum(axis=1)
        over |= following >= 16
        states, discount = np.minimum(following, 15), discount * 0.99
    return total / num_episodes


def test_the_score_of_the_lake_takes_a_trainer_as_it_is():
    with LAKE.build() as trainer:
        assert 0 <= scores.start_value_over_optimum(LAKE, {}, trainer.compute_action) <= 1


def test_the_lake_is_observed_one_hot():
    env = frozen_lake({"is_slippery": False})
    assert env.observation_space == gym.spaces.Box(0.0, 1.0, (16,), np.float32)
    first, _ = env.reset(seed=0)
    second, *_ = env.step(2)  # to the right
    assert (first.tolist(), second.tolist()) == (np.eye(16)[0].tolist(), np.eye(16)[1].tolist())
    assert first in env.observation_space
