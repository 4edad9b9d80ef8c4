"""The point mass: its best controller, and that the best needs no more than the bounds allow."""

import numpy as np
import pytest

from tests.envs import PointMass, riccati

GAINS, P = riccati(PointMass.A, PointMass.B, PointMass.Q, PointMass.R, PointMass.HORIZON)


def one() -> np.ndarray:
    return np.eye(1)


def episode(env: PointMass, gains: list[np.ndarray], first: np.ndarray) -> tuple[float, int]:
    """Cost and length of an episode under u = -gains[t] x."""
    env.reset(seed=0)
    env.x = first
    cost, t, over = 0.0, 0, False
    while not over:
        _, reward, _, over, _ = env.step((-gains[t] @ env.x).astype(np.float32))
        cost, t = cost - reward, t + 1
    return cost, t


def starts(count: int) -> np.ndarray:
    env = PointMass()
    env.reset(seed=1)
    return np.array([env.reset()[0] for _ in range(count)], np.float64)


def test_one_step_of_riccati_is_the_one_computed_by_hand():
    # From x the cost (x + u)^2 + u^2 is least at u = -x / 2, where it is x^2 / 2.
    gains, p = riccati(one(), one(), one(), one(), 1)
    assert (gains[0].item(), p.item()) == (0.5, 0.5)


def test_two_steps_of_riccati_are_those_computed_by_hand():
    # x'^2 + u^2 + x'^2 / 2 with x' = x + u is least at u = -3/5 x: (2/5)^2 * 3/2 + (3/5)^2 = 3/5.
    gains, p = riccati(one(), one(), one(), one(), 2)
    assert [gain.item() for gain in gains] == pytest.approx([0.6, 0.5])
    assert p.item() == pytest.approx(0.6)


def test_the_best_controller_costs_what_riccati_says():
    env = PointMass()
    for first in starts(20):
        cost, length = episode(env, GAINS, first)
        assert length == PointMass.HORIZON
        assert cost == pytest.approx(first @ P @ first, rel=1e-5)  # actions are float32


def test_no_other_gains_cost_less():
    env, rng = PointMass(), np.random.default_rng(0)
    for first in starts(100):
        others = [gain + rng.normal(0, 0.1, gain.shape) for gain in GAINS]
        assert episode(env, others, first)[0] > first @ P @ first


def test_the_best_actions_stay_inside_the_bounds_from_every_start():
    so_far, highest = np.eye(4), []
    for gain in GAINS:
        action = gain @ so_far  # of the start: linear, so its largest value over all directions and velocities is known
        highest.append((0.5 * np.hypot(action[:, 0], action[:, 1]) + 0.2 * np.abs(action[:, 2:]).sum(axis=1)).max())
        so_far = (PointMass.A - PointMass.B @ gain) @ so_far
    assert 0.9 < max(highest) < 1.0


def test_starts_are_as_far_as_they_should_be_and_differ_by_seed():
    positions, velocities = np.split(starts(1000), 2, axis=1)
    assert np.linalg.norm(positions, axis=1) == pytest.approx(np.full(1000, 0.5))
    assert 0.19 < np.abs(velocities).max() <= 0.2
    assert np.abs(positions.mean(axis=0)).max() < 0.05
    assert PointMass().reset(seed=3)[0].tolist() == PointMass().reset(seed=3)[0].tolist() != PointMass().reset(seed=4)[0].tolist()


def test_an_episode_is_cut_after_its_horizon_and_never_terminates():
    env = PointMass()
    env.reset(seed=0)
    ends = [env.step(np.zeros(2, np.float32))[2:4] for _ in range(PointMass.HORIZON)]
    assert ends == [(False, False)] * (PointMass.HORIZON - 1) + [(False, True)]


def test_an_action_out_of_bounds_is_refused():
    env = PointMass()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="expected one in Box"):
        env.step(np.array([1.01, 0.0], np.float32))
