import numpy as np
import pytest

import flowrl as fl
from flowrl.rollout.trained import TrainedPolicy
from gates import scores
from tests.envs import PointMass

CONFIG = fl.PPOConfig(env=PointMass, seed=3)


def best_evaluation(seed: int = 3) -> dict:
    env = PointMass()
    return TrainedPolicy(scores._BestConfig(env=PointMass, seed=seed), env.observation_space, env.action_space).evaluate(100)


def test_a_score_is_the_mean_return_where_nothing_else_is_said():
    assert scores.mean_return(CONFIG, {"episode_return_mean": 12.5, "episode_return_min": 0.0}) == 12.5


def test_the_best_controller_scores_one():
    assert scores.cost_over_optimum(CONFIG, best_evaluation()) == 1.0


def test_half_as_much_again_scores_one_and_a_half():
    returns = [1.5 * value for value in best_evaluation()["episode_returns"]]
    assert scores.cost_over_optimum(CONFIG, {"episode_returns": returns}) == pytest.approx(1.5)


def test_a_trainer_evaluates_in_the_episodes_that_the_best_controller_plays():
    with CONFIG.replace(rollout_fragment_length=30, train_batch_size=30).build() as trainer:
        returns = np.array(trainer.evaluate(100)["episode_returns"])
    # An untrained policy does nearly nothing: what it costs is nearly what the start says.
    assert np.corrcoef(returns, best_evaluation()["episode_returns"])[0, 1] > 0.9
    assert scores.cost_over_optimum(CONFIG, {"episode_returns": returns}) > 2


def test_other_episodes_are_refused():
    with pytest.raises(ValueError, match="evaluated with the same seeds"):
        scores.cost_over_optimum(CONFIG, best_evaluation(seed=4))
