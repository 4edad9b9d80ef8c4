"""DQN's settings and its loss, against what one computes by hand."""

import hashlib
import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.algorithms.dqn import DQNConfig, DQNPolicy
from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError
from flowrl.learner import compute_gradients
from flowrl.policy import Policy
from tests.policy.threads import with_other_threads

OBS = gym.spaces.Box(-1, 1, (1,), np.float32)
NETWORK, TARGET = [1.0, 3.0], [7.0, 5.0]
"""What the two actions are worth, whatever is seen, to the network and to its target."""


def set_values(mine: DQNPolicy, values: list[float]) -> None:
    mine.set_weights({"q.weight": np.zeros((2, 1), np.float32), "q.bias": np.array(values, np.float32)})


def policy(**settings) -> DQNPolicy:
    config = DQNConfig(hiddens=(), dueling=False, **settings)
    mine = config.make_policy(OBS, gym.spaces.Discrete(2), np.random.SeedSequence(0))
    set_values(mine, TARGET)
    mine.update_target()
    set_values(mine, NETWORK)
    return mine


def batch(actions, rewards, terminateds, discounts, **more) -> SampleBatch:
    count = len(actions)
    columns = {
        "obs": np.zeros((count, 1), np.float32),
        "new_obs": np.zeros((count, 1), np.float32),
        "actions": np.array(actions),
        "rewards": np.array(rewards, np.float32),
        "terminateds": np.array(terminateds),
        "truncateds": np.zeros(count, bool),
        "discounts": np.array(discounts, np.float32),
    }
    return SampleBatch(columns | {name: np.array(values, np.float32) for name, values in more.items()})


def huber(error: float) -> float:
    return error**2 / 2 if abs(error) <= 1 else abs(error) - 1 / 2


def test_the_target_network_values_the_action_that_the_network_chooses():
    # the network takes action 1, which the target values at 5: y = -2 + 0.5 * 5; the error of action 0 is 1 - 0.5
    loss, stats = policy(double_q=True).loss(batch([0], [-2], [False], [0.5]))
    assert loss.item() == stats["loss"].item() == pytest.approx(huber(0.5))
    assert stats["td_errors"].tolist() == pytest.approx([0.5])


def test_without_double_q_the_target_network_takes_its_own_highest():
    # y = -2 + 0.5 * 7
    _, stats = policy(double_q=False).loss(batch([0, 1], [-2, -2], [False, False], [0.5, 0.5]))
    assert stats["td_errors"].tolist() == pytest.approx([1 - 1.5, 3 - 1.5])
    assert stats["loss"].item() == pytest.approx((huber(-0.5) + huber(1.5)) / 2)
    assert stats["mean_q"].item() == pytest.approx((1 + 3) / 2)
    assert stats["mean_td_error"].item() == pytest.approx((-0.5 + 1.5) / 2)


def test_a_terminated_row_is_worth_its_rewards_alone_and_a_truncated_one_more():  # C6
    rows = batch([0, 0], [4, 4], [True, False], [0.9, 0.9]).with_columns(truncateds=np.array([False, True]))
    assert policy(double_q=False).loss(rows)[1]["td_errors"].tolist() == pytest.approx([1 - 4, 1 - (4 + 0.9 * 7)])


def test_each_row_has_the_discount_of_its_own_window():
    _, stats = policy(double_q=False).loss(batch([0, 0], [0, 0], [False, False], [0.9**3, 0.9]))
    assert stats["td_errors"].tolist() == pytest.approx([1 - 0.729 * 7, 1 - 0.9 * 7])


def test_weights_of_replayed_rows_count_in_the_loss_and_not_in_the_errors():
    rows = batch([0, 0], [0.5, 3], [True, True], [0.9, 0.9], weights=[1.0, 0.25])
    loss, stats = policy().loss(rows)
    assert loss.item() == pytest.approx((huber(0.5) + 0.25 * huber(-2)) / 2)
    assert stats["td_errors"].tolist() == pytest.approx([0.5, -2])


def test_td_errors_carry_no_graph_and_only_the_network_is_trained():
    mine = policy()
    loss, stats = mine.loss(batch([0, 1], [0, 0], [False, True], [0.9, 0.9]))
    loss.backward()
    assert not stats["td_errors"].requires_grad
    assert all(parameter.grad is None for parameter in mine.target.parameters())
    # each row gives its action's bias the clipped error, divided by the number of rows: 1 - 0.9 * 5, and 3 - 0
    assert mine.network.q.bias.grad.tolist() == pytest.approx([-1 / 2, 1 / 2])


def test_the_gradient_does_not_depend_on_the_number_of_rows():  # F5
    rows = batch([0, 1], [0.5, 3], [False, True], [0.9, 0.9], weights=[1.0, 0.5])
    once, twice = (compute_gradients(policy(), rows)[0], compute_gradients(policy(), SampleBatch.concat([rows, rows]))[0])
    assert all(np.allclose(once[name], twice[name], atol=1e-6) for name in once)


def test_actions_are_counted_from_where_the_space_starts():
    config = DQNConfig(hiddens=(), dueling=False)
    mine = config.make_policy(OBS, gym.spaces.Discrete(2, start=5), np.random.SeedSequence(0))
    set_values(mine, NETWORK)
    assert mine.loss(batch([5, 6], [0, 0], [True, True], [0.9, 0.9]))[1]["td_errors"].tolist() == [1, 3]


@pytest.mark.parametrize("dueling", [False, True])
def test_steps_along_the_gradient_bring_values_to_their_targets(dueling):
    # one state that goes on for ever with reward 1, and one that ends with 0: Q = 1 / (1 - 0.5), and 0
    mine = DQNConfig(hiddens=(16,), dueling=dueling).make_policy(OBS, gym.spaces.Discrete(2), np.random.SeedSequence(0))
    rows = batch([0, 1, 0, 1], [1, 1, 0, 0], [False, False, True, True], [0.5] * 4)
    rows = rows.with_columns(obs=np.float32([[1], [1], [-1], [-1]]), new_obs=np.float32([[1], [1], [-1], [-1]]))
    optimizer = mine.make_optimizer(0.02)
    for step in range(400):
        optimizer.zero_grad()
        mine.loss(rows)[0].backward()
        optimizer.step()
        if step % 10 == 0:
            mine.update_target()
    assert mine.q_values(np.float32([[1], [-1]])) == pytest.approx(np.array([[2, 2], [0, 0]]), abs=0.05)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_step": 0}, "n_step=0: expected a whole number, 1 or more"),
        ({"learning_starts": 60_000}, "learning_starts=60000: expected at most buffer_size=50000"),
        ({"prioritized_replay_eps": 0}, "prioritized_replay_eps=0: expected more than 0"),
        ({"prioritized_replay_alpha": 1.5}, "prioritized_replay_alpha=1.5: expected a number from 0.0 to 1.0"),
        ({"training_intensity": 0}, "training_intensity=0: expected more than 0"),
        ({"training_intensity": 1e-7}, "training_intensity=1e-07: expected so much that"),
        ({"training_intensity": math.nan}, "training_intensity=nan: expected a finite number"),
        ({"epsilon_schedule": [(0, 1.5)]}, r"epsilon_schedule=\[\(0, 1.5\)\]: expected points"),
        ({"double_q": 1}, "double_q=1: expected true or false"),
        ({"before_learn_on_batch": 3}, "before_learn_on_batch=3: expected a function"),
        ({"normalize_rewards": True}, "normalize_rewards=True: expected False: .*scale them in the env"),
        ({"hiddens": (8, 1)}, r"hiddens=\(8, 1\): expected 2 units or more in the last layer, where dueling=True"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        DQNConfig(**settings)


def learned_by(hiddens, num_rows: int, weighted: bool, **settings) -> tuple[DQNPolicy, SampleBatch]:
    """A policy of three actions whose target is another network, and rows with errors on both sides of 1."""
    spaces = gym.spaces.Box(-1, 1, (5,), np.float32), gym.spaces.Discrete(3, start=1)
    mine, other = (DQNConfig(seed=seed, hiddens=hiddens, **settings).make_policy(*spaces, np.random.SeedSequence(0)) for seed in (0, 1))
    mine.target.load_state_dict(other.network.state_dict())
    rng = np.random.default_rng(0)
    columns = {
        "obs": rng.standard_normal((num_rows, 5)).astype(np.float32),
        "new_obs": rng.standard_normal((num_rows, 5)).astype(np.float32),
        "actions": rng.integers(1, 4, num_rows),
        "rewards": rng.normal(0, 2, num_rows).astype(np.float32),
        "terminateds": rng.random(num_rows) < 0.3,
        "discounts": rng.uniform(0.5, 1, num_rows).astype(np.float32),
    }
    return mine, SampleBatch(columns | ({"weights": rng.random(num_rows).astype(np.float32)} if weighted else {}))


def found_by(backward, mine: DQNPolicy, rows: SampleBatch):
    mine.network.zero_grad()
    stats = backward(mine, rows)
    return [parameter.grad for parameter in mine.network.parameters()], {name: np.asarray(value) for name, value in stats.items()}


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.float64, 1e-10)])
@pytest.mark.parametrize("hiddens", [(), (8,), (7, 5), (300, 21, 4)], ids=str)
@pytest.mark.parametrize("num_rows", [1, 64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("double_q", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
def test_the_gradient_by_hand_is_that_of_the_loss(dtype, tolerance, hiddens, num_rows, weighted, double_q, dueling):
    mine, rows = learned_by(hiddens, num_rows, weighted, double_q=double_q, dueling=dueling)
    mine.network.to(dtype)
    mine.q_values(rows["obs"])  # which looks at the network anew
    by_hand, own_stats = found_by(DQNPolicy.backward, mine, rows)
    by_autograd, stats = found_by(Policy.backward, mine, rows)
    for own, other in zip(by_hand, by_autograd, strict=True):
        assert own.dtype == dtype
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance / 100)
    assert own_stats.keys() == stats.keys()
    for name, values in stats.items():
        np.testing.assert_allclose(own_stats[name], values, rtol=1e-4, atol=1e-6)


def test_a_loss_of_ones_own_is_what_is_learned():
    class Doubled(DQNPolicy):
        def loss(self, batch):
            loss, stats = super().loss(batch)
            return 2 * loss, stats

    ours, rows = learned_by((8,), 16, weighted=False)
    spaces = gym.spaces.Box(-1, 1, (5,), np.float32), gym.spaces.Discrete(3, start=1)
    theirs = Doubled(ours.config, *spaces, np.random.SeedSequence(0))
    theirs.target.load_state_dict(ours.target.state_dict())
    once, twice = compute_gradients(ours, rows)[0], compute_gradients(theirs, rows)[0]
    assert all(np.allclose(2 * once[name], twice[name], rtol=1e-4, atol=1e-6) for name in once)


def test_a_parameter_that_is_held_gets_no_gradient():
    mine, rows = learned_by((8,), 16, weighted=False)
    mine.network.trunk.requires_grad_(False)
    gradients, _ = found_by(DQNPolicy.backward, mine, rows)
    held = [not parameter.requires_grad for parameter in mine.network.parameters()]
    assert [gradient is None for gradient in gradients] == held and sum(held) == 2


def digest() -> str:
    """Of gradients, for small and large layers and few and many rows."""
    sha = hashlib.sha256()
    for hiddens, dueling in (((8,), True), ((256, 256), True), ((256, 256), False), ((512,), True)):
        for num_rows in (1, 64, 300):
            mine, rows = learned_by(hiddens, num_rows, weighted=True, dueling=dueling)
            for gradient in compute_gradients(mine, rows)[0].values():
                sha.update(gradient.tobytes())
    return sha.hexdigest()


def test_gradients_have_the_same_bits_with_one_thread_and_with_two():
    assert digest() == with_other_threads("from tests.algorithms.test_dqn_loss import digest; print(digest())")
