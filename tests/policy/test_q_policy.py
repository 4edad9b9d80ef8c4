import copy
import hashlib
import pickle

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.algorithms.dqn import DQNConfig
from flowrl.batch import Origin, SampleBatch
from flowrl.errors import ConfigError
from flowrl.policy import QNetwork, QPolicy
from flowrl.policy.dense import DenseQ
from flowrl.policy.networks import seeded
from tests.policy.threads import with_other_threads

OBS = gym.spaces.Box(-1, 1, (3,), np.float32)
THREE = gym.spaces.Discrete(3)


class Learner(QPolicy):
    def loss(self, batch):
        raise NotImplementedError


def policy(observation_space=OBS, action_space=THREE, *, weights_seed=0, seed=0, **settings) -> Learner:
    config = DQNConfig(seed=weights_seed, **{"hiddens": (8,), **settings})
    return Learner(config, observation_space, action_space, np.random.SeedSequence(seed))


def valued(values: list[float], **settings) -> Learner:
    """A policy to which actions are worth `values`, whatever it sees."""
    mine = policy(hiddens=(), dueling=False, **settings)
    weights = mine.get_weights()
    mine.set_weights(weights | {"q.weight": np.zeros_like(weights["q.weight"]), "q.bias": np.array(values, np.float32)})
    return mine


def observations(count: int) -> np.ndarray:
    return np.random.default_rng(0).uniform(-1, 1, (count, 3)).astype(np.float32)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("num_inputs", [1, 4, 600])
@pytest.mark.parametrize("hiddens", [(), (8,), (7,), (300, 21), (256, 256)])
def test_acting_and_learning_see_the_same_q_network(num_inputs, hiddens, dueling):
    torch.manual_seed(0)
    network = QNetwork(num_inputs, 3, hiddens, dueling)
    for rows in (1, 8, 70):
        obs = np.random.default_rng(0).standard_normal((rows, num_inputs)).astype(np.float32)
        before = obs.copy()
        assert np.allclose(DenseQ(network)(obs), network(torch.tensor(obs)).detach(), atol=1e-5)
        assert np.array_equal(obs, before)


def test_dueling_adds_the_states_value_to_advantages_without_their_mean():
    network = QNetwork(1, 3, (), dueling=True)
    with torch.no_grad():
        network.value.weight[:], network.value.bias[:] = 0.0, 5.0
        network.advantage.weight[:], network.advantage.bias[:] = 0.0, torch.tensor([1.0, 2.0, 6.0])
    assert network(torch.zeros(1, 1)).tolist() == [[5 + 1 - 3, 5 + 2 - 3, 5 + 6 - 3]]


def test_a_dueling_network_has_about_as_many_weights_as_a_plain_one():
    plain, dueling = (sum(p.numel() for p in QNetwork(4, 2, (256, 256), kind).parameters()) for kind in (False, True))
    # the last layer: 256 x 2 + 2, against 128 x 1 + 1 and 128 x 2 + 2
    assert plain - dueling == (256 * 2 + 2) - (128 + 1 + 128 * 2 + 2)


def test_the_gradient_of_a_q_network_is_that_of_finite_differences():
    torch.manual_seed(0)
    network = QNetwork(3, 2, (6, 4), dueling=True).double()
    assert torch.autograd.gradcheck(network, torch.randn(5, 3, dtype=torch.float64, requires_grad=True))


def test_without_exploration_the_action_of_the_highest_value_is_taken():
    mine = policy(weights_seed=3)
    obs = observations(50)
    actions, columns = mine.act(obs, explore=False)
    assert np.array_equal(actions, mine.evaluate(mine.network, obs).argmax(dim=1).numpy())
    assert len(set(actions.tolist())) > 1 and columns == {}


def test_of_equal_values_the_first_is_taken():
    assert valued([1, 2, 2]).act(observations(4), explore=False)[0].tolist() == [1] * 4


@pytest.mark.parametrize("start", [-1, 0, 5])
def test_actions_start_where_the_space_starts(start):
    mine = valued([0, 0, 1], action_space=gym.spaces.Discrete(3, start=start), epsilon_schedule=((0, 1.0),))
    assert mine.act(observations(4), explore=False)[0].tolist() == [start + 2] * 4
    actions = mine.act(observations(200), explore=True)[0]
    assert set(actions.tolist()) == {start, start + 1, start + 2}
    assert mine.action_indices(SampleBatch({"actions": actions})).tolist() == (actions - start).tolist()


def test_a_share_of_epsilon_is_drawn_evenly_from_all_actions():
    mine = valued([0, 1, 0], epsilon_schedule=((0, 0.3),))
    actions, _ = mine.act(observations(30_000), explore=True)
    # four standard deviations of a share of 30,000 draws are below 0.012
    assert (np.bincount(actions) / 30_000).tolist() == pytest.approx([0.1, 0.8, 0.1], abs=0.012)


def test_epsilon_follows_its_schedule_and_stays_at_its_last_value():  # L4
    mine = policy(epsilon_schedule=((0, 1.0), (1000, 0.1)))
    found = []
    for mine.num_steps_sampled in (0, 400, 1000, 2000):
        found.append(mine.get_exploration_info()["epsilon"])
    assert found == pytest.approx([1, 0.64, 0.1, 0.1])


def test_without_a_schedule_no_action_is_random():
    assert policy(epsilon_schedule=None).epsilon == 0


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.0])
def test_random_numbers_drawn_depend_neither_on_epsilon_nor_on_what_comes_of_it(epsilon):
    mine, other = policy(epsilon_schedule=((0, epsilon),)), policy(epsilon_schedule=((0, 0.1),))
    for each in (mine, other):
        each.act(observations(7), explore=True)
        each.act(observations(7), explore=False)
    assert mine.rng.random() == other.rng.random()


def test_only_update_target_moves_the_target():
    mine, obs = policy(), observations(4)
    before = mine.evaluate(mine.target, obs)
    assert torch.equal(before, mine.evaluate(mine.network, obs))
    mine.set_weights(policy(weights_seed=1).get_weights())
    assert torch.equal(before, mine.evaluate(mine.target, obs))
    mine.update_target()
    assert torch.equal(mine.evaluate(mine.target, obs), mine.evaluate(mine.network, obs))
    assert not torch.equal(before, mine.evaluate(mine.target, obs))


def test_the_target_is_copied_to_in_place_and_never_trained():
    mine = policy()
    tensors = list(mine.target.parameters())
    mine.update_target()
    assert all(one is other for one, other in zip(tensors, mine.target.parameters(), strict=True))
    assert not any(tensor.requires_grad for tensor in tensors)
    assert not {id(tensor) for tensor in tensors} & {id(parameter) for parameter in mine.named_parameters().values()}


def test_weights_are_those_of_the_network_alone_and_copies_both_ways():
    mine, other = policy(weights_seed=1), policy(weights_seed=2)
    weights = mine.get_weights()
    assert weights.keys() == dict(mine.network.named_parameters()).keys()
    other.set_weights(weights)
    weights["value.bias"][:] = 9.0
    assert [np.abs(p.get_weights()["value.bias"]).max() < 9 for p in (mine, other)] == [True, True]


def test_initial_weights_come_from_the_configs_seed_alone():
    one, same, other = policy(seed=1), policy(seed=2), policy(weights_seed=1, seed=1)
    names = one.get_weights()
    assert all(np.array_equal(one.get_weights()[name], same.get_weights()[name]) for name in names)
    assert not np.array_equal(one.get_weights()["trunk.0.weight"], other.get_weights()["trunk.0.weight"])


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))], ids=["deepcopy", "pickle"])
def test_a_copy_of_a_policy_acts_by_its_own_network(duplicate):
    mine = valued([0, 0, 1])
    other = duplicate(mine)
    other.set_weights(other.get_weights() | {"q.bias": np.array([1, 0, 0], np.float32)})
    other.update_target()
    assert [p.act(observations(1), explore=False)[0].tolist() for p in (mine, other)] == [[2], [0]]
    assert other.evaluate(other.target, observations(1)).argmax().item() == 0


@pytest.mark.parametrize("dtype", [np.float64, np.uint8])
def test_observations_of_any_dtype_and_shape_go_through(dtype):
    mine = policy(gym.spaces.Box(0, 255, (2, 2, 3), dtype))
    obs = np.random.default_rng(0).integers(0, 255, (4, 2, 2, 3)).astype(dtype)
    assert mine.q_values(obs) == pytest.approx(mine.evaluate(mine.network, obs).detach().numpy(), rel=1e-4, abs=1e-3)


@pytest.mark.parametrize("width", [3, 600])
def test_a_network_made_float64_is_followed_by_acting_and_learning(width):
    mine, obs = policy(gym.spaces.Box(-1, 1, (width,)), hiddens=(300,)), np.zeros((4, width), np.float32)
    mine.network.double()
    assert mine.q_values(obs).dtype == np.float64
    assert [mine.evaluate(network, obs).dtype for network in (mine.network, mine.target)] == [torch.float64] * 2


@pytest.mark.parametrize("space", [gym.spaces.Box(-1, 1, (2,)), gym.spaces.MultiDiscrete([2, 3])], ids=repr)
def test_other_action_spaces_are_refused_with_a_remedy(space):
    with pytest.raises(ConfigError, match=r"action space (Box|MultiDiscrete).*expected Discrete; wrap the env"):
        policy(action_space=space)


class OwnNet(torch.nn.Module):
    """Takes observations in their shape; gives Q-values, alone or with something else."""

    def __init__(self, observation_space, num_actions: int, *, beside=False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(int(np.prod(observation_space.shape)), num_actions)
        self.dropout = torch.nn.Dropout(0.5)
        self.register_buffer("seen", torch.zeros(1))
        self.beside = beside

    def forward(self, obs):
        self.shape = tuple(obs.shape)
        values = self.dropout(self.layer(obs.flatten(1)))
        return (values, values[:, 0]) if self.beside else values


@pytest.mark.parametrize("beside", [False, True], ids=["Q-values alone", "a tuple"])
def test_a_model_of_the_users_own_acts_and_learns_as_one_network(beside):
    mine = policy(gym.spaces.Box(0, 255, (2, 2), np.uint8), model=lambda space, num_actions: OwnNet(space, num_actions, beside=beside))
    obs = np.random.default_rng(0).integers(0, 255, (4, 2, 2)).astype(np.uint8)
    assert np.array_equal(mine.q_values(obs), mine.evaluate(mine.network, obs).detach().numpy())
    assert mine.network.shape == (4, 2, 2)
    mine.network.seen += 1
    mine.update_target()
    assert mine.target.seen.item() == 1 and "seen" in mine.get_weights()


def test_a_model_that_changes_the_q_network_acts_and_learns_by_what_it_makes_of_it():
    class Doubled(QNetwork):
        def forward(self, obs):
            return 2 * super().forward(obs)

    mine = policy(model=lambda space, num_actions: Doubled(3, num_actions, (8,), dueling=False))
    assert np.array_equal(mine.q_values(observations(4)), 2 * QNetwork.forward(mine.network, torch.tensor(observations(4))).detach())


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda space, num_outputs: "net", "made str: expected a torch.nn.Module"),
        (torch.nn.Linear(3, 3), "is a network already: pass its class"),
        (lambda: torch.nn.Linear(3, 3), r"is called as model\(observation_space, num_outputs\): too many positional arguments"),
    ],
)
def test_a_model_that_is_no_network_is_refused_when_built(model, message):
    with pytest.raises(ConfigError, match=message):
        policy(model=model)


def test_a_model_that_gives_something_else_is_told_what_is_expected():
    with pytest.raises(ValueError, match=r"the model gave \[2, 9\]: expected Q-values \[2, 3\], or a tuple that begins with them"):
        policy(model=lambda space, num_outputs: torch.nn.Linear(3, 9)).act(observations(2), explore=True)


def test_values_that_are_no_numbers_are_said_where_it_sampled():
    with pytest.raises(FloatingPointError, match="the network gave NaN or infinity"):
        valued([0, np.nan, 0]).act(observations(1), explore=True)


def test_sampling_and_learning_see_observations_normalised_by_the_same_moments():
    mine, other = policy(observation_filter="MeanStdFilter"), policy(observation_filter="MeanStdFilter", weights_seed=1)
    obs = np.random.default_rng(0).normal(100, 5, (500, 3)).astype(np.float32)
    mine.learned(mine.moments_of(SampleBatch({"obs": obs})))
    assert mine.q_values(obs) == pytest.approx(mine.evaluate(mine.network, obs).detach().numpy(), abs=1e-5)
    other.set_weights(mine.get_weights())
    assert np.array_equal(other.q_values(obs), mine.q_values(obs))
    assert np.allclose(policy().q_values((obs - obs.mean(0)) / obs.std(0)), mine.q_values(obs), atol=1e-3)


def fragment(num_rows: int) -> SampleBatch:
    obs = observations(num_rows + 1)
    ends = np.arange(num_rows) == num_rows - 1
    columns = {"obs": obs[:-1], "new_obs": obs[1:], "actions": np.arange(num_rows) % 3, "rewards": np.arange(1.0, num_rows + 1)}
    more = {"terminateds": ends, "truncateds": np.zeros(num_rows, bool), "eps_id": np.zeros(num_rows, int), "t": np.arange(num_rows)}
    return SampleBatch(columns | more, Origin(1, 0, 0))


def test_fragments_become_rows_of_n_steps():  # D1, D3
    rows = policy(n_step=3, gamma=0.9).postprocess(fragment(5))
    assert rows["rewards"].tolist() == pytest.approx([5.23, 7.94, 10.65, 8.5, 5.0])
    assert rows["discounts"].tolist() == pytest.approx([0.9**3, 0.9**3, 0.9**3, 0.9**2, 0.9])
    assert np.array_equal(rows["obs"], fragment(5)["obs"]) and rows.origin == Origin(1, 0, 0)


def digest() -> str:
    """Of first weights, values and actions, for small and large layers and few and many rows."""
    sha = hashlib.sha256()
    rng = np.random.default_rng(0)
    for hiddens, dueling in (((8,), True), ((256, 256), True), ((256, 256), False), ((512,), True)):
        network = seeded(0, lambda h=hiddens, d=dueling: QNetwork(4, 3, h, d))
        for rows in (1, 8, 64, 300):
            sha.update(DenseQ(network)(rng.standard_normal((rows, 4)).astype(np.float32)).tobytes())
    return sha.hexdigest()


def test_first_weights_and_acting_give_the_same_bits_with_one_thread_and_with_two():
    assert digest() == with_other_threads("from tests.policy.test_q_policy import digest; print(digest())")
