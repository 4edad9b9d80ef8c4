import math

import gymnasium as gym
import numpy as np
import pytest

from flowrl.algorithms.ppo import PPOConfig, PPOPolicy
from flowrl.batch import SampleBatch
from flowrl.learner import learn_on_batch, make_optimizer

OBS = gym.spaces.Box(-1, 1, (1,), np.float32)


def policy(probability: float, value: float = 0.0, **settings) -> PPOPolicy:
    """Takes action 1 with this probability, and gives every state this value."""
    config = PPOConfig(hiddens=(), **settings)
    mine = config.make_policy(OBS, gym.spaces.Discrete(2), np.random.SeedSequence(0))
    weights = {name: np.zeros_like(w) for name, w in mine.get_weights().items()}
    weights["policy.0.bias"] = np.log([1 - probability, probability]).astype(np.float32)
    weights["value.0.bias"] = np.array([value], np.float32)
    mine.set_weights(weights)
    return mine


def batch(old_probabilities, advantages, targets=0.0) -> SampleBatch:
    count = len(advantages)
    return SampleBatch(
        {
            "obs": np.zeros((count, 1), np.float32),
            "actions": np.ones(count, np.int64),
            "action_logp": np.log(np.array(old_probabilities, np.float32)),
            "advantages": np.array(advantages, np.float32),
            "value_targets": np.full(count, targets, np.float32),
            "vf_preds": np.zeros(count, np.float32),
        }
    )


@pytest.mark.parametrize(
    ("old", "advantage", "gain"),
    [
        (0.5, 2.0, 1.1 * 2),  # ratio 1.1: inside
        (0.25, 2.0, 1.2 * 2),  # ratio 2.2, good: no more than 1.2 pays
        (0.25, -2.0, 2.2 * -2),  # ratio 2.2, bad: pays in full
        (1.0, -2.0, 0.8 * -2),  # ratio 0.55, bad: no less than 0.8 pays
        (1.0, 2.0, 0.55 * 2),
    ],
)
def test_the_surrogate_is_the_lower_of_plain_and_clipped(old, advantage, gain):
    loss, stats = policy(0.55).loss(batch([old], [advantage]))
    assert loss.item() == pytest.approx(-gain, rel=1e-5)
    assert stats["policy_loss"] == pytest.approx(-gain, rel=1e-5)


def test_the_loss_adds_the_error_of_the_values_and_takes_off_the_entropy():
    loss, stats = policy(0.5, value=1.0, vf_loss_coeff=0.25, entropy_coeff=0.1).loss(batch([0.5], [0.0], targets=3.0))
    assert stats["vf_loss"] == pytest.approx(4.0)
    assert stats["entropy"] == pytest.approx(math.log(2))
    assert loss.item() == pytest.approx(0.25 * 4.0 - 0.1 * math.log(2))


def test_kl_and_clip_fraction_say_how_far_the_policy_moved():
    _, stats = policy(0.55).loss(batch([0.5, 0.25], [0.0, 0.0]))
    assert stats["kl"] == pytest.approx((0.1 - math.log(1.1) + 1.2 - math.log(2.2)) / 2, rel=1e-4)
    assert stats["clip_fraction"] == 0.5
    _, unmoved = policy(0.5).loss(batch([0.5], [1.0]))
    assert (unmoved["kl"], unmoved["clip_fraction"]) == pytest.approx((0.0, 0.0), abs=1e-6)


def test_a_last_minibatch_of_one_row_gives_no_nan():
    mine = policy(0.5)
    rows = batch([0.5] * 5, [1.0, -1.0, 0.5, 0.0, 2.0], targets=1.0)
    stats = learn_on_batch(mine, make_optimizer(mine, 1e-2), rows, np.random.default_rng(0), num_sgd_iter=3, sgd_minibatch_size=2)
    assert all(math.isfinite(mean.value) for mean in stats.values())
    assert all(np.isfinite(w).all() for w in mine.get_weights().values())


def test_what_paid_becomes_likelier():
    mine = policy(0.5)
    learn_on_batch(mine, make_optimizer(mine, 1e-2), batch([0.5] * 4, [1.0] * 4), np.random.default_rng(0), num_sgd_iter=5)
    _, columns = mine.act(np.zeros((100, 1), np.float32), explore=False)
    assert np.exp(columns["action_logp"][0]) > 0.5


@pytest.mark.parametrize("setting", [{"num_sgd_iter": 0}, {"sgd_minibatch_size": -1}, {"lambda_": 1.5}, {"clip_param": -0.1}], ids=str)
def test_wrong_settings_are_refused(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name}="):
        PPOConfig(**setting)
