import math

import gymnasium as gym
import numpy as np
import pytest
import torch

from flowrl.errors import ConfigError
from flowrl.policy import Categorical, Gaussian, MultiCategorical, distribution_for

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
        (box([-1, 0], [1, 2]), Gaussian, 2),
    ],
)
def test_each_kind_of_space_has_its_distribution(space, kind, num_outputs):
    distribution = distribution_for(space)
    assert (type(distribution), distribution.num_outputs) == (kind, num_outputs)


@pytest.mark.parametrize("space", [gym.spaces.Box(-1, 1, (100,), np.int32), gym.spaces.MultiBinary(3), gym.spaces.Text(2)])  # K3
def test_other_action_spaces_are_refused_by_name(space):
    with pytest.raises(ConfigError, match=type(space).__name__):
        distribution_for(space)


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
    choices = MultiCategorical(space)
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
    actions, _ = MultiCategorical(space).draw(np.zeros((3, 14), np.float32), np.random.default_rng(0))
    assert actions.shape == (3, 2, 2) and space.contains(actions[0])
