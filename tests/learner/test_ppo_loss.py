import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.algorithms.ppo import PPOConfig, PPOPolicy
from flowrl.batch import SampleBatch
from flowrl.learner import learn_on_batch
from flowrl.metrics import Mean

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
    stats = learn_on_batch(mine, mine.make_optimizer(1e-2), rows, np.random.default_rng(0), num_sgd_iter=3, sgd_minibatch_size=2)
    assert all(math.isfinite(mean.value) for mean in stats.values())
    assert all(np.isfinite(w).all() for w in mine.get_weights().values())


def test_what_paid_becomes_likelier():
    mine = policy(0.5)
    learn_on_batch(mine, mine.make_optimizer(1e-2), batch([0.5] * 4, [1.0] * 4), np.random.default_rng(0), num_sgd_iter=5)
    _, columns = mine.act(np.zeros((100, 1), np.float32), explore=False)
    assert np.exp(columns["action_logp"][0]) > 0.5


@pytest.mark.parametrize("setting", [{"num_sgd_iter": 0}, {"sgd_minibatch_size": -1}, {"lambda_": 1.5}, {"clip_param": -0.1}], ids=str)
def test_wrong_settings_are_refused(setting):
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name}="):
        PPOConfig(**setting)


def test_with_vf_clip_param_a_value_may_not_gain_by_moving_far():
    # old value 0, target 1: a value of 0.5 counts as one of 0.2; a value of -0.5, further off, counts in full
    for value, error in ((0.5, 0.8**2), (-0.5, 1.5**2), (0.1, 0.9**2)):
        _, stats = policy(0.5, value=value, vf_clip_param=0.2).loss(batch([0.5], [0.0], targets=1.0))
        assert stats["vf_loss"] == pytest.approx(error)


def test_the_kl_term_has_its_coefficient():
    rows = batch([0.5, 0.25], [0.0, 0.0])
    with_kl, stats = policy(0.55, kl_coeff=2.0).loss(rows)
    without, _ = policy(0.55).loss(rows)
    assert with_kl.item() - without.item() == pytest.approx(2.0 * stats["kl"], rel=1e-4)


def test_the_gradient_of_the_kl_term_is_that_of_kl_in_expectation():
    # All actions, weighted by the old policy's probabilities: the estimator's gradient is then exactly that of KL(old, new).
    old = np.array([0.3, 0.7], np.float32)
    mine = policy(0.5, kl_coeff=1.0)
    logits = mine.network.policy[0].bias
    for action, probability in enumerate(old):
        row = batch([float(probability)], [0.0]).with_columns(actions=np.array([action]))
        loss, _ = mine.loss(row)
        (loss * float(probability)).backward()
    estimated = logits.grad.clone()
    logits.grad = None
    kl = (torch.tensor(old) * (torch.log(torch.tensor(old)) - torch.log_softmax(logits, 0))).sum()
    kl.backward()
    assert estimated.tolist() == pytest.approx(logits.grad.tolist(), abs=1e-6)


@pytest.mark.parametrize(("kl", "most", "least"), [(0.1, 100.0, 1.0), (0.0, 0.2, 1e-4)])
def test_the_kl_coefficient_moves_towards_its_target_and_stays_finite(kl, most, least):  # F7
    mine = policy(0.5, kl_coeff=0.2, kl_target=0.01)
    mine.learned({"kl": Mean.of(kl)})
    assert mine.kl_coeff == pytest.approx(0.4 if kl else 0.1)
    for _ in range(3000):
        mine.learned({"kl": Mean.of(kl)})
    assert mine.kl_coeff == pytest.approx(most if kl else least)


def test_near_its_target_the_kl_coefficient_stays_and_without_one_none_appears():
    mine, none = policy(0.5, kl_coeff=0.2, kl_target=0.01), policy(0.5)
    for one in (mine, none):
        one.learned({"kl": Mean.of(0.012)})
        one.learned({"kl": Mean.of(0.007)})
    assert (mine.kl_coeff, none.kl_coeff) == (0.2, 0.0)


def test_a_batch_is_left_before_the_update_that_is_too_far():
    rows = batch([0.5] * 8, [1.0] * 8)

    def num_updates(max_kl):
        mine = policy(0.5, max_kl=max_kl)
        optimizer = mine.make_optimizer(0.05)
        learn_on_batch(mine, optimizer, rows, np.random.default_rng(0), num_sgd_iter=20)
        return next(iter(optimizer.state.values()))["step"].item()

    assert num_updates(None) == 20
    assert 1 < num_updates(0.005) < 20
    assert num_updates(0.0) == 1  # at the first minibatch nothing has moved yet


def test_the_clip_range_follows_its_schedule():
    mine = policy(0.55, clip_param_schedule=((0, 0.2), (1000, 0.05)))
    far = batch([0.25], [2.0])
    assert mine.loss(far)[1]["policy_loss"] == pytest.approx(-1.2 * 2, rel=1e-5)
    mine.num_steps_sampled = 1000
    assert mine.loss(far)[1]["policy_loss"] == pytest.approx(-1.05 * 2, rel=1e-5)


def test_a_loss_that_is_not_finite_is_said_and_leaves_the_weights():
    mine = policy(0.5)
    before = mine.get_weights()
    with pytest.raises(FloatingPointError, match="norm is nan"):
        learn_on_batch(mine, mine.make_optimizer(1e-2), batch([0.5], [math.nan]), np.random.default_rng(0))
    assert all(np.array_equal(mine.get_weights()[name], before[name]) for name in before)


@pytest.mark.parametrize("space", [gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(-1, 1, (2,))], ids=repr)
def test_a_minibatch_of_one_row_gives_no_nan_whatever_the_actions(space):
    config = PPOConfig(observation_filter="MeanStdFilter", vf_clip_param=0.1, kl_coeff=0.1)
    mine = config.make_policy(OBS, space, np.random.SeedSequence(0))
    obs = np.zeros((5, 1), np.float32)
    _, columns = mine.act(obs, explore=True)
    ones = np.ones(5, np.float32)
    rows = SampleBatch({"obs": obs, **columns, "advantages": ones, "value_targets": ones})
    stats = learn_on_batch(mine, mine.make_optimizer(1e-2), rows, np.random.default_rng(0), num_sgd_iter=3, sgd_minibatch_size=2)
    assert all(math.isfinite(mean.value) for mean in stats.values())
    assert all(np.isfinite(weight).all() for weight in mine.get_weights().values())


def test_what_is_enough_ends_all_epochs_and_what_adapts_goes_by_the_last_one():
    class Counts(PPOPolicy):
        def __init__(self, *args):
            super().__init__(*args)
            self.kls, self.adapted = [], None

        def loss(self, batch):
            loss, stats = super().loss(batch)
            self.kls.append(stats["kl"])
            return loss, stats

        def is_enough(self, stats):
            return len(self.kls) == 5

        def learned(self, info):
            self.adapted = info["kl"].value

    mine = Counts(PPOConfig(hiddens=()), OBS, gym.spaces.Discrete(2), np.random.SeedSequence(0))
    learn_on_batch(mine, mine.make_optimizer(0.05), batch([0.5] * 4, [1.0, -1.0, 2.0, 0.5]), np.random.default_rng(0), 10, 2)
    assert len(mine.kls) == 5  # the first minibatch of the third epoch
    assert mine.adapted == pytest.approx(mine.kls[4])


def test_ppo_normalises_by_what_it_learned_from():
    config = PPOConfig(observation_filter="MeanStdFilter")
    mine = config.make_policy(OBS, gym.spaces.Discrete(2), np.random.SeedSequence(0))
    rows = batch([0.5] * 4, [1.0] * 4)
    learn_on_batch(mine, mine.make_optimizer(0.01), rows, np.random.default_rng(0), num_sgd_iter=3, sgd_minibatch_size=2)
    assert mine.get_weights()["obs_filter.count"].tolist() == [4.0]  # each row once, whatever the epochs
