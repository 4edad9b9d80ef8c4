import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.errors import ConfigError
from flowrl.policy import Bernoulli, Categorical, Gaussian, MultiCategorical, distribution_for

INF = np.inf


def box(low, high, dtype=np.float32) -> gym.spaces.Box:
    return gym.spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)


def in_env(space: gym.spaces.Box, *actions) -> list[list[float]]:
    return Gaussian(space).for_env(np.array(actions, np.float32)).tolist()


@pytest.mark.parametrize(
    ("space", "kind", "num_outputs"),
    [
        (gym.spaces.Discrete(3), Categorical, 3),
        (gym.spaces.MultiDiscrete([2, 3]), MultiCategorical, 5),
        (gym.spaces.MultiDiscrete([[2, 3], [4, 5]]), MultiCategorical, 14),
        (gym.spaces.MultiBinary(3), Bernoulli, 3),
        (gym.spaces.MultiBinary([2, 3]), Bernoulli, 6),
        (gym.spaces.Box(-1, 1, (100,), np.int32), MultiCategorical, 300),  # K3
        (gym.spaces.Box(0, 255, (2,), np.uint8), MultiCategorical, 512),
        (box([-1, 0], [1, 2]), Gaussian, 2),
    ],
)
def test_each_kind_of_space_has_its_distribution(space, kind, num_outputs):
    distribution = distribution_for(space)
    assert (type(distribution), distribution.num_outputs) == (kind, num_outputs)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (gym.spaces.Text(2), "Text.*expected Discrete, MultiDiscrete, MultiBinary or Box"),
        (gym.spaces.Box(0, 10**6, (2,), np.int64), "an output for each of them, 2,000,002 in all"),
        (gym.spaces.Box(np.iinfo(np.int64).min, np.iinfo(np.int64).max, (2,), np.int64), "a Box of whole numbers.*wrap the env"),
    ],
)
def test_other_action_spaces_are_refused_by_name(space, message):
    with pytest.raises(ConfigError, match=message):
        distribution_for(space)


@pytest.mark.parametrize(
    "space",
    [
        gym.spaces.MultiBinary([2, 3]),
        gym.spaces.Box(-1, 1, (100,), np.int32),
        gym.spaces.Box(np.array([[-3, 0], [250, 7]]), np.array([[-1, 2], [255, 7]]), dtype=np.int16),
        gym.spaces.Box(0, 3, (), np.uint8),
    ],
    ids=repr,
)
@pytest.mark.parametrize("how", ["draw", "likeliest"])
def test_bits_and_whole_numbers_are_in_their_space_and_reach_all_of_it(space, how):  # K3
    distribution = distribution_for(space)
    rng = np.random.default_rng(0)
    outputs = rng.standard_normal((300, distribution.num_outputs)).astype(np.float32)
    stored, logp = distribution.draw(outputs, rng) if how == "draw" else distribution.likeliest(outputs)
    actions = distribution.for_env(stored)
    assert actions.dtype == space.dtype and all(space.contains(np.asarray(action)) for action in actions)
    low, high = (0, 1) if isinstance(space, gym.spaces.MultiBinary) else (space.low, space.high)
    assert (actions.min(axis=0) == low).all() and (actions.max(axis=0) == high).all()
    own_logp, _ = distribution.evaluate(torch.tensor(outputs), torch.tensor(stored))
    assert own_logp.numpy() == pytest.approx(logp, abs=1e-3)


def test_bits_are_independent_bernoullis():
    space = gym.spaces.MultiBinary(4)
    bits = Bernoulli(space)
    logits = np.random.default_rng(0).standard_normal((40, 4)).astype(np.float32)
    actions, logp = bits.draw(logits, np.random.default_rng(1))
    peer = torch.distributions.Bernoulli(logits=torch.tensor(logits))
    expected = peer.log_prob(torch.tensor(actions, dtype=torch.float32)).sum(dim=1)
    assert logp == pytest.approx(expected.numpy(), abs=1e-5)
    own_logp, entropy = bits.evaluate(torch.tensor(logits), torch.tensor(actions))
    assert own_logp.numpy() == pytest.approx(expected.numpy(), abs=1e-5)
    assert entropy.numpy() == pytest.approx(peer.entropy().sum(dim=1).numpy(), abs=1e-5)
    assert bits.likeliest(logits)[0].tolist() == (logits > 0).astype(int).tolist()


def test_bits_come_as_often_as_their_probability_says():
    drawn, _ = Bernoulli(gym.spaces.MultiBinary(3)).draw(np.tile(np.float32([-2, 0, 1]), (20_000, 1)), np.random.default_rng(0))
    assert drawn.mean(axis=0) == pytest.approx([1 / (1 + math.exp(2)), 0.5, 1 / (1 + math.exp(-1))], abs=0.01)


@pytest.mark.parametrize("logit", [-200.0, 200.0])
def test_bits_that_are_all_but_sure_have_a_finite_gradient(logit):
    outputs = torch.full((1, 2), logit, requires_grad=True)
    logp, entropy = Bernoulli(gym.spaces.MultiBinary(2)).evaluate(outputs, torch.tensor([[0, 1]], dtype=torch.int8))
    (logp + entropy).sum().backward()
    assert logp.isfinite().all() and entropy.abs().max() < 1e-6 and outputs.grad.isfinite().all()


def test_a_gaussian_takes_no_box_of_whole_numbers():  # K3
    with pytest.raises(ConfigError, match="expected a Box of floats"):
        Gaussian(box([-1], [1], np.int32))


def test_numbers_of_a_bounded_box_are_scaled_and_then_clipped():  # K1, K2
    assert in_env(box([0], [1]), [-1], [0], [1], [-7], [7]) == [[0.0], [0.5], [1.0], [0.0], [1.0]]
    assert in_env(box([-2, 0], [0, 5]), [-1, -1], [1, 1], [0, 0]) == [[-2, 0], [0, 5], [-1, 2.5]]
    assert in_env(box([300], [500]), [0]) == [[400]]


def test_noise_reaches_all_of_a_bounded_box():  # K2
    space = box([0], [1])
    gaussian = Gaussian(space)
    drawn, _ = gaussian.draw(np.zeros((500, 1), np.float32), np.random.default_rng(0))
    actions = gaussian.for_env(drawn)
    assert actions.min() == 0.0 and actions.max() == 1.0
    assert np.histogram(actions, bins=10, range=(0, 1))[0].min() > 10


def test_half_bounded_and_infinite_numbers_respect_what_bound_there_is():
    space = box([3, -INF, -INF], [INF, 3, INF])
    actions = np.array(in_env(space, [0, 0, 0], [20, -20, 20], [-50, 50, -50], [-1e4, 1e4, -1e4]))
    assert actions[0].tolist() == pytest.approx([3 + math.log(2), 3 - math.log(2), 0])
    assert actions[1].tolist() == pytest.approx([23, -17, 20])
    assert actions[2].tolist() == pytest.approx([3, 3, -50])
    assert all(space.contains(row) for row in actions.astype(np.float32))


def test_bounds_as_wide_as_the_dtype_are_none():
    widest = float(np.finfo(np.float32).max)
    assert in_env(box([-widest], [widest]), [2.5]) == [[2.5]]
    assert in_env(box([-widest], [0]), [-20]) == [[pytest.approx(-20)]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_the_env_gets_the_dtype_and_shape_of_its_space_and_nothing_outside(dtype):  # K1, K9
    space = gym.spaces.Box(-0.3, 0.7, (2, 3), dtype)
    gaussian = Gaussian(space, initial_log_std=math.log(3))
    stored, logp = gaussian.draw(np.zeros((1000, 6), np.float32), np.random.default_rng(0))
    actions = gaussian.for_env(stored)
    assert actions.dtype == dtype and actions.shape == stored.shape == (1000, 2, 3) and logp.shape == (1000,)
    assert all(space.contains(action) for action in actions)


def test_a_box_of_one_number_without_a_shape():
    space = gym.spaces.Box(-2, 2, (), np.float32)
    gaussian = Gaussian(space)
    stored, _ = gaussian.draw(np.zeros((3, 1), np.float32), np.random.default_rng(0))
    assert stored.shape == gaussian.for_env(stored).shape == (3,)
    assert space.contains(np.array(gaussian.for_env(stored)[0]))


def test_a_gaussians_log_probability_and_entropy_are_those_of_torch():
    gaussian = Gaussian(box([-1, -1], [1, 1]), initial_log_std=-0.5)
    with torch.no_grad():
        gaussian.log_std[1] = 0.7
    means = np.random.default_rng(0).standard_normal((50, 2)).astype(np.float32)
    stored, logp = gaussian.draw(means, np.random.default_rng(1))
    reference = torch.distributions.Normal(torch.tensor(means), torch.tensor([math.exp(-0.5), math.exp(0.7)]))
    assert logp == pytest.approx(reference.log_prob(torch.tensor(stored)).sum(1).numpy(), abs=1e-5)
    own_logp, entropy = gaussian.evaluate(torch.tensor(means), torch.tensor(stored))
    assert own_logp.detach().numpy() == pytest.approx(logp, abs=1e-5)
    assert entropy.detach().numpy() == pytest.approx(reference.entropy().sum(1).numpy(), abs=1e-5)
    assert gaussian.likeliest(means)[0].tolist() == means.tolist()


def test_a_gaussian_trains_its_log_std():
    gaussian = Gaussian(box([-1], [1]))
    gaussian.evaluate(torch.zeros(1, 1), torch.tensor([[3.0]]))[0].sum().backward()
    assert gaussian.named_parameters().keys() == {"log_std"}
    assert gaussian.log_std.grad.item() == pytest.approx(3.0**2 - 1)  # d/ds of -z^2/2 - s with z = 3 exp(-s)


def test_choices_of_a_multidiscrete_are_independent_categoricals():
    space = gym.spaces.MultiDiscrete([2, 3], start=np.array([5, -1]))
    choices = distribution_for(space)
    logits = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
    actions, logp = choices.draw(logits, np.random.default_rng(1))
    assert actions.dtype == space.dtype and all(space.contains(action) for action in actions)
    parts = [torch.distributions.Categorical(logits=torch.tensor(part)) for part in (logits[:, :2], logits[:, 2:])]
    indices = torch.tensor(actions - np.array([5, -1]))
    expected = sum(part.log_prob(indices[:, at]) for at, part in enumerate(parts))
    assert logp == pytest.approx(expected.numpy(), abs=1e-5)
    own_logp, entropy = choices.evaluate(torch.tensor(logits), torch.tensor(actions))
    assert own_logp.numpy() == pytest.approx(expected.numpy(), abs=1e-5)
    assert entropy.numpy() == pytest.approx(sum(part.entropy() for part in parts).numpy(), abs=1e-5)
    assert choices.likeliest(logits)[0].tolist() == np.stack([logits[:, :2].argmax(1) + 5, logits[:, 2:].argmax(1) - 1], 1).tolist()


def test_a_multidiscrete_of_any_shape_keeps_it():
    space = gym.spaces.MultiDiscrete([[2, 3], [4, 5]])
    actions, _ = distribution_for(space).draw(np.zeros((3, 14), np.float32), np.random.default_rng(0))
    assert actions.shape == (3, 2, 2) and space.contains(actions[0])
