"""Advantages of a fragment by generalized advantage estimation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["gae"]

Floats = npt.NDArray[np.floating]
Flags = npt.NDArray[np.bool_]


def gae(
    rewards: Floats,
    values: Floats,
    next_values: Floats,
    terminateds: Flags,
    ends: Flags,
    gamma: float,
    lambda_: float,
) -> npt.NDArray[np.float64]:
    """Advantages `[T]` of rows `[T]` that follow each other in time except after `ends`.

    >>> values = np.array([0.5, 1.0, 0.5, 1.0])
    >>> terminateds = np.array([False, True, False, False])
    >>> ends = np.array([False, True, False, True])  # row 3 is where the fragment was cut
    >>> gae(np.ones(4), values, np.array([1.0, 0.0, 1.0, 3.0]), terminateds, ends, gamma=0.9, lambda_=0.8).round(6).tolist()
    [1.4, 0.0, 3.344, 2.7]

    With v_t = `values[t]` and v'_t = `next_values[t]`, the value of the observation that step t led to:

        delta_t = r_t + gamma * (0 if terminated_t else v'_t) - v_t
        A_t     = delta_t + gamma * lambda * (0 if end_t else A_{t+1})

    (Schulman et al., High-Dimensional Continuous Control Using Generalized Advantage Estimation, 2016, eq. 11-16.) `ends[t]` says that
    row t+1 is not the next step of the same episode: the episode ended, or the fragment was cut there. We differ from the paper's
    infinite sum only at such rows: it stops there, with v'_t for what would have come, unless the episode terminated. So a
    truncated episode and a cut one take the value of their true last observation, and nothing crosses episodes.

    Several envs are rows one after the other, the last row of each in `ends`. One pass over plain floats (0.1 us a row, a hundredth of
    what sampling a row costs) is faster than numpy over envs for fewer than a dozen of them.
    """
    deltas = rewards + gamma * np.where(terminateds, 0.0, next_values) - values
    decays = np.where(ends, 0.0, gamma * lambda_)
    advantages = []
    following = 0.0
    for delta, decay in zip(deltas[::-1].tolist(), decays[::-1].tolist()):
        following = delta + decay * following
        advantages.append(following)
    return np.array(advantages[::-1], np.float64)
