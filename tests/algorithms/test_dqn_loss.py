"""DQN's settings and its loss, against what one computes by hand."""

import math

import gymnasium as gym
import numpy as np
import pytest

from flowrl.algorithms.dqn import DQNConfig, DQNPolicy
from flowrl.batch import SampleBatch
from flowrl.errors import ConfigError
from flowrl.learner import compute_gradients

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
