import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.algorithms.ppo import PPOConfig
from flowrl.batch import Origin, SampleBatch
from flowrl.errors import ConfigError
from flowrl.policy import ActorCriticPolicy, Categorical

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
TWO = gym.spaces.Discrete(2)


class Learner(ActorCriticPolicy):
    def loss(self, batch):
        raise NotImplementedError


class FixedValue(Learner):
    """V(s) is looked up from t, the last number of an observation."""

    def __init__(self, table: list[float], gamma: float, lambda_: float) -> None:
        super().__init__(PPOConfig(hiddens=(), gamma=gamma, lambda_=lambda_), OBS, TWO, np.random.SeedSequence(0))
        self.table = np.array(table, np.float32)
        self.num_passes = 0

    def values(self, obs):
        self.num_passes += 1
        return self.table[obs[:, -1].astype(int)]


def policy(observation_space=OBS, action_space=TWO, *, weights_seed=0, seed=0, **settings) -> Learner:
    config = PPOConfig(gamma=0.9, lambda_=0.8, seed=weights_seed, **{"hiddens": (8,), **settings})
    return Learner(config, observation_space, action_space, np.random.SeedSequence(seed))


def fragment(table: FixedValue, rows: list[tuple[int, int, bool, bool]], rewards: list[float]) -> SampleBatch:
    """Rows (eps_id, t, terminated, truncated), the values those that the policy sees at t."""
    eps_id, t, terminateds, truncateds = (np.array(column) for column in zip(*rows))
    obs = np.stack([0 * t, eps_id, t], axis=1).astype(np.float32)
    return SampleBatch(
        {
            "obs": obs,
            "new_obs": obs + np.float32([0, 0, 1]),
            "rewards": np.array(rewards, np.float32),
            "terminateds": terminateds,
            "truncateds": truncateds,
            "eps_id": eps_id,
            "vf_preds": table.table[t],
        },
        Origin(1, 0, 0),
    )


def test_a_terminated_a_cut_and_a_truncated_episode_get_their_own_bootstraps():
    # V(t) = t; gamma 0.5, lambda 1: targets are discounted sums up to the end, plus V(the last observation) unless it terminated.
    table = FixedValue([0, 1, 2, 3, 4], gamma=0.5, lambda_=1.0)
    done = table.postprocess(
        fragment(
            table, [(0, 0, False, False), (0, 1, True, False), (1, 0, False, False), (2, 1, False, False), (2, 2, False, True)], [1] * 5
        )
    )
    assert done["value_targets"].tolist() == [1 + 0.5 * 1, 1, 1 + 0.5 * 1, 1 + 0.5 * (1 + 0.5 * 3), 1 + 0.5 * 3]
    assert done["advantages"].tolist() == [1.5 - 0, 1 - 1, 1.5 - 0, 2.25 - 1, 2.5 - 2]
    assert done.origin == Origin(1, 0, 0)


def test_all_bootstraps_come_from_one_forward_pass():
    table = FixedValue([0, 1, 2, 3], gamma=0.5, lambda_=1.0)
    table.postprocess(fragment(table, [(0, 0, False, True), (1, 0, False, True), (2, 0, False, False)], [1] * 3))
    assert table.num_passes == 1


def test_a_fragment_of_terminated_episodes_needs_no_forward_pass():
    table = FixedValue([0, 1], gamma=0.5, lambda_=1.0)
    table.postprocess(fragment(table, [(0, 0, True, False), (1, 0, True, False)], [1, 1]))
    assert table.num_passes == 0


def test_termination_wins_over_truncation():  # a TimeLimit may say both
    table = FixedValue([0, 100], gamma=0.5, lambda_=1.0)
    assert table.postprocess(fragment(table, [(0, 0, True, True)], [1]))["value_targets"].tolist() == [1]


def test_initial_weights_come_from_their_seed_alone():
    a, b, c = policy(seed=1), policy(seed=2), policy(weights_seed=1, seed=1)
    torch.rand(3)
    weights = [p.get_weights() for p in (a, b, c)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not np.array_equal(weights[0]["policy.0.weight"], weights[2]["policy.0.weight"])


def test_building_and_acting_leave_the_global_generators_alone():
    torch.manual_seed(5)
    np.random.seed(5)
    policy().act(np.zeros((2, 3), np.float32), explore=True)
    drawn = torch.rand(1).item(), np.random.rand()
    torch.manual_seed(5)
    np.random.seed(5)
    assert drawn == (torch.rand(1).item(), np.random.rand())


def test_actions_follow_the_probabilities_of_the_network():
    mine = policy(action_space=gym.spaces.Discrete(3), hiddens=())
    weights = mine.get_weights()
    weights["policy.0.weight"] = np.zeros((3, 3), np.float32)
    weights["policy.0.bias"] = np.log([0.2, 0.5, 0.3]).astype(np.float32)
    mine.set_weights(weights)
    actions, columns = mine.act(np.zeros((20_000, 3), np.float32), explore=True)
    # four standard deviations of a share of 20,000 draws are below 0.015
    assert (np.bincount(actions) / 20_000).tolist() == pytest.approx([0.2, 0.5, 0.3], abs=0.015)
    assert np.exp(columns["action_logp"]) == pytest.approx(np.array([0.2, 0.5, 0.3])[actions], rel=1e-5)


def test_without_exploration_the_likeliest_action_is_taken():
    mine = policy(weights_seed=3)
    obs = np.random.default_rng(0).uniform(-1, 1, (50, 3)).astype(np.float32)
    actions, columns = mine.act(obs, explore=False)
    assert np.array_equal(actions, mine.act(obs, explore=False)[0])
    assert (columns["action_logp"] >= np.log(0.5) - 1e-6).all()


def test_actions_start_where_the_space_starts():
    mine = policy(action_space=gym.spaces.Discrete(2, start=-1))
    actions, columns = mine.act(np.zeros((50, 3), np.float32), explore=True)
    assert set(actions.tolist()) == {-1, 0}
    logp, _, _ = mine.evaluate(SampleBatch({"obs": np.zeros((50, 3), np.float32), "actions": actions}))
    assert logp.tolist() == pytest.approx(columns["action_logp"].tolist(), abs=1e-6)


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_observations_of_any_dtype_and_shape_go_through(dtype):  # K9
    mine = policy(gym.spaces.Box(0, 255, (2, 2, 3), dtype))
    obs = np.full((4, 2, 2, 3), 200, dtype)
    actions, columns = mine.act(obs, explore=True)
    logp, _, values = mine.evaluate(SampleBatch({"obs": obs, "actions": actions}))
    assert logp.tolist() == pytest.approx(columns["action_logp"].tolist(), abs=1e-5)
    assert values.tolist() == pytest.approx(columns["vf_preds"].tolist(), abs=1e-3)


def test_weights_are_copies_both_ways():
    mine, other = policy(weights_seed=1), policy(weights_seed=2)
    weights = mine.get_weights()
    other.set_weights(weights)
    weights["value.2.bias"][:] = 9.0
    assert [p.get_weights()["value.2.bias"].tolist() for p in (mine, other)] == [[0.0], [0.0]]


def test_acting_uses_weights_as_soon_as_they_are_set():
    mine = policy()
    weights = mine.get_weights()
    weights["value.2.bias"] = np.array([1000.0], np.float32)
    mine.set_weights(weights)
    assert mine.act(np.zeros((1, 3), np.float32), explore=True)[1]["vf_preds"][0] == pytest.approx(1000.0, abs=10)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_policy_acts_by_its_own_network(duplicate):
    mine = policy()
    other = duplicate(mine)
    weights = other.get_weights()
    weights["value.2.bias"] = np.array([1000.0], np.float32)
    other.set_weights(weights)
    values = [p.act(np.zeros((1, 3), np.float32), explore=False)[1]["vf_preds"][0] for p in (mine, other)]
    assert values == pytest.approx([0, 1000], abs=10)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda w: w.pop("value.2.bias"), "this policy has"),
        (lambda w: w.update({"value.2.bias": np.zeros(2)}), r"shape \(2,\): expected \(1,\)"),
    ],
)
def test_weights_of_another_network_are_refused(change, message):
    weights = policy().get_weights()
    change(weights)
    with pytest.raises(ValueError, match=message):
        policy().set_weights(weights)


class OwnNet(torch.nn.Module):
    """Shares its first layer; takes observations in their shape; dropout would show if it were in training mode."""

    def __init__(self, observation_space, num_outputs: int) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.Linear(int(np.prod(observation_space.shape)), 6), torch.nn.Dropout(0.5)
        )
        self.policy, self.value = torch.nn.Linear(6, num_outputs), torch.nn.Linear(6, 1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, obs):
        self.shape = tuple(obs.shape)
        hidden = torch.tanh(self.body(obs))
        return self.policy(hidden), self.value(hidden)


@pytest.mark.parametrize("space", [TWO, gym.spaces.MultiDiscrete([2, 3]), gym.spaces.Box(0, 5, (2,))], ids=repr)
def test_a_model_of_the_users_own_acts_and_learns_as_one_network(space):
    mine = policy(gym.spaces.Box(0, 255, (2, 2, 3), np.uint8), space, model=OwnNet)
    obs = np.random.default_rng(0).integers(0, 255, (4, 2, 2, 3)).astype(np.uint8)
    actions, columns = mine.act(obs, explore=True)
    assert all(space.contains(action) for action in actions)
    logp, _, values = mine.evaluate(SampleBatch({"obs": obs, "actions": columns["actions"]}))
    assert logp.tolist() == pytest.approx(columns["action_logp"].tolist(), abs=1e-5)
    assert values.tolist() == pytest.approx(columns["vf_preds"].tolist(), abs=1e-5)
    assert mine.network.shape == (4, 2, 2, 3)
    assert "seen" in mine.get_weights()


def test_a_models_first_weights_come_from_the_configs_seed():
    one, same, other = (policy(model=OwnNet, weights_seed=seed).get_weights()["policy.weight"] for seed in (1, 1, 2))
    assert np.array_equal(one, same) and not np.array_equal(one, other)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda space, num_outputs: "net", "made str: expected a torch.nn.Module"),
        (lambda space, num_outputs: torch.nn.Flatten(), "made Flatten: expected a torch.nn.Module with parameters"),
        (torch.nn.Linear(3, 2), "is a network already: pass its class"),
        (lambda: torch.nn.Linear(3, 2), r"is called as model\(observation_space, num_outputs\): too many positional arguments"),
    ],
)
def test_a_model_that_is_no_network_is_refused_when_built(model, message):
    with pytest.raises(ConfigError, match=message):
        policy(model=model)


def test_a_model_that_gives_something_else_is_told_what_is_expected():
    with pytest.raises(ValueError, match=r"the model gave Tensor: expected \(outputs \[2, 2\], values \[2\]\)"):
        policy(model=lambda space, num_outputs: torch.nn.Linear(3, 2)).act(np.zeros((2, 3), np.float32), explore=True)
    with pytest.raises(ValueError, match=r"outputs \[2, 9\] and values \[2\]: expected \(outputs \[2, 2\]"):
        policy(model=lambda space, num_outputs: OwnNet(space, 9)).act(np.zeros((2, 3), np.float32), explore=True)


def test_a_network_made_float64_is_followed_by_acting_and_learning():
    mine = policy()
    mine.network.double()
    weights = mine.get_weights()
    weights["value.2.bias"] = np.array([1000.0])
    mine.set_weights(weights)
    obs = np.zeros((1, 3), np.float32)
    assert mine.act(obs, explore=False)[1]["vf_preds"][0] == pytest.approx(1000, abs=10)
    assert mine.evaluate(SampleBatch({"obs": obs, "actions": [0]}))[2].dtype == torch.float64


def test_the_stored_action_of_a_box_is_the_one_whose_probability_counts():  # K1
    space = gym.spaces.Box(np.array([-2, 0], np.float32), np.array([0, 5], np.float32))
    mine = policy(action_space=space, initial_log_std=np.log(3))
    obs = np.zeros((1000, 3), np.float32)
    actions, columns = mine.act(obs, explore=True)
    assert all(space.contains(action) for action in actions)
    assert np.abs(columns["actions"]).max() > 3  # not clipped
    logp, _, _ = mine.evaluate(SampleBatch({"obs": obs, "actions": columns["actions"]}))
    assert logp.tolist() == pytest.approx(columns["action_logp"].tolist(), abs=1e-4)


def normalised(**settings) -> Learner:
    return policy(observation_filter="MeanStdFilter", normalize_rewards=True, **settings)


def test_sampling_and_learning_see_observations_normalised_by_the_same_moments():
    mine = normalised()
    rng = np.random.default_rng(0)
    mine.learned(mine.moments_of(SampleBatch({"obs": rng.normal(100, 5, (500, 3)), "discounted_returns": np.zeros(500)})))
    obs = rng.normal(100, 5, (20, 3)).astype(np.float32)
    _, columns = mine.act(obs, explore=True)
    logp, _, values = mine.evaluate(SampleBatch({"obs": obs, "actions": columns["actions"]}))
    assert logp.tolist() == pytest.approx(columns["action_logp"].tolist(), abs=1e-5)
    assert values.tolist() == pytest.approx(columns["vf_preds"].tolist(), abs=1e-5)
    assert np.abs(mine.network_input(obs).numpy()).max() < 5


def test_moments_travel_with_the_weights():
    mine, other = normalised(), normalised(seed=1)
    mine.learned(mine.moments_of(SampleBatch({"obs": np.arange(12.0).reshape(4, 3), "discounted_returns": np.arange(4.0)})))
    other.set_weights(mine.get_weights())
    assert other.obs_filter.moments.mean.tolist() == [4.5, 5.5, 6.5]
    assert other.reward_filter.moments.count == 4
    with pytest.raises(ValueError, match="this policy has"):
        policy().set_weights(mine.get_weights())


def test_rewards_are_divided_by_the_deviation_of_the_discounted_return():
    mine = normalised()  # gamma 0.9
    rows = SampleBatch(
        {
            "obs": np.zeros((3, 3), np.float32),
            "new_obs": np.zeros((3, 3), np.float32),
            "rewards": np.array([1, 1, 1], np.float32),
            "terminateds": np.array([False, True, False]),
            "truncateds": np.zeros(3, bool),
            "eps_id": np.array([7, 7, 8]),
            "vf_preds": np.zeros(3, np.float32),
        }
    )
    first = mine.postprocess(rows)
    assert first["discounted_returns"].tolist() == pytest.approx([1, 1.9, 1])
    assert first["rewards"].tolist() == pytest.approx([1 / np.std([1, 1.9, 1])] * 3, rel=1e-5)  # by its own, before the first batch
    mine.learned(mine.moments_of(first))
    going_on = rows.with_columns(eps_id=np.array([8, 8, 9]))
    second = mine.postprocess(going_on)
    assert second["discounted_returns"].tolist() == pytest.approx([1.9, 2.71, 1])  # episode 8 goes on
    assert second["rewards"].tolist() == pytest.approx([1 / np.std([1, 1.9, 1])] * 3, rel=1e-5)


class OwnReturns(Learner):
    def postprocess(self, fragment):
        return fragment


def test_a_postprocess_that_forgets_the_rewards_is_told_so():
    mine = OwnReturns(PPOConfig(normalize_rewards=True), OBS, TWO, np.random.SeedSequence(0))
    with pytest.raises(ValueError, match=r"OwnReturns\.postprocess made no column 'discounted_returns': .*scale_rewards"):
        mine.moments_of(SampleBatch({"obs": np.zeros((2, 3)), "rewards": np.zeros(2)}))


class TakesNames(OwnNet):
    def __init__(self, observation_space, num_outputs):
        super().__init__(observation_space, num_outputs)
        self.log_std = torch.nn.Parameter(torch.zeros(1))


def test_a_model_whose_names_the_policy_needs_is_refused():
    with pytest.raises(ConfigError, match="calls parts of itself log_std"):
        policy(action_space=gym.spaces.Box(-1, 1, (2,)), model=TakesNames)


def test_a_network_that_gives_nan_is_said_where_it_sampled():
    mine = FixedValue([np.nan, 0], gamma=0.5, lambda_=1.0)
    with pytest.raises(FloatingPointError, match="gave NaN or infinity"):
        mine.postprocess(fragment(mine, [(0, 0, True, False)], [1]))


def test_a_logit_of_minus_infinity_masks_an_action():
    mask = np.array([[0.0, -np.inf, 0.0]], np.float32)
    actions = [Categorical(3).draw(mask, np.random.default_rng(seed))[0][0] for seed in range(50)]
    assert set(actions) == {0, 2}
    outputs = torch.tensor(mask, requires_grad=True)
    logp, entropy = Categorical(3).evaluate(outputs, torch.tensor([2]))
    (logp + entropy).sum().backward()
    assert entropy.item() == pytest.approx(np.log(2)) and torch.isfinite(outputs.grad).all()


def test_choices_of_small_integers_are_learned_from():
    mine = policy(action_space=gym.spaces.MultiDiscrete([2, 3], dtype=np.int8))
    obs = np.zeros((4, 3), np.float32)
    _, columns = mine.act(obs, explore=True)
    logp, _, _ = mine.evaluate(SampleBatch({"obs": obs, "actions": columns["actions"]}))
    assert logp.tolist() == pytest.approx(columns["action_logp"].tolist(), abs=1e-5)
