"""Rewards over several steps, for targets that look further than one step ahead."""

from __future__ import annotations

import numpy as np

from flowrl.batch import Array, SampleBatch

__all__ = ["n_step"]

# T rows; m_t <= n the length of row t's window


def n_step(fragment: SampleBatch, n: int, gamma: float) -> SampleBatch:
    """The fragment's rows `[T]` with the rewards of up to `n` steps summed, and a column `discounts` (float32 `[T]`).

    >>> ends = np.array([False, False, False, False, True])
    >>> fragment = SampleBatch({"rewards": np.arange(1.0, 6.0), "new_obs": range(1, 6), "terminateds": ends, "truncateds": ~ends & ends})
    >>> looking_ahead = n_step(fragment, n=3, gamma=0.9)
    >>> looking_ahead["rewards"].round(6).tolist(), looking_ahead["new_obs"].tolist()
    ([5.23, 7.94, 10.65, 8.5, 5.0], [3, 4, 5, 5, 5])

    With the window of row t being its next m_t <= n steps:

        R_t = sum over k < m_t of gamma^k * r_{t+k}
        discounts_t = gamma^{m_t}
        new_obs, terminateds, truncateds of row t = those of row t + m_t - 1

    (Sutton, Learning to predict by the methods of temporal differences, 1988; Hessel et al., Rainbow, 2018, eq. 1 of its section on
    multi-step learning.) So R + discounts * (1 - terminateds) * max_a Q(new_obs, a) is a target for every row. We differ from Rainbow's
    only where n steps are not there: a window ends with its episode (a termination, a truncation, another `eps_id`, a jump in `t`,
    where the fragment has these) and with the fragment, whose last rows look less far instead of being left out. Nothing is shared
    with the fragment that could change it; all other columns stay, and rewards keep their dtype (whole numbers become float64).
    """
    if not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n={n}: a window holds 1 step or more, 3 say")
    rows = np.arange(fragment.count)
    lasts = np.minimum(rows + (min(int(n), fragment.count + 1) - 1), _episode_lasts(fragment))
    lengths = lasts - rows + 1
    discounts = (gamma ** lengths.astype(np.float64)).astype(np.float32)
    if n == 1 and fragment["rewards"].dtype.kind == "f":
        return fragment.with_columns(discounts=discounts)
    ahead = {name: fragment[name][lasts] for name in ("new_obs", "terminateds", "truncateds")}
    return fragment.with_columns(rewards=_summed(fragment["rewards"], lengths, gamma), **ahead, discounts=discounts)


def _summed(rewards: Array, lengths: Array, gamma: float) -> Array:
    sums = rewards.astype(np.float64)
    for k in range(1, int(lengths.max(initial=1))):
        reaching = np.flatnonzero(lengths > k)
        sums[reaching] += gamma**k * rewards[reaching + k]
    return sums.astype(rewards.dtype) if rewards.dtype.kind == "f" else sums


def _episode_lasts(fragment: SampleBatch) -> Array:
    """For each row the last one that follows it in time within its episode, as far as the fragment goes."""
    ends = fragment["terminateds"] | fragment["truncateds"]
    ends[-1:] = True
    if "eps_id" in fragment:
        ends[:-1] |= np.diff(fragment["eps_id"]) != 0
    if "t" in fragment:
        ends[:-1] |= np.diff(fragment["t"]) != 1
    lasts = np.flatnonzero(ends)
    return lasts[np.searchsorted(lasts, np.arange(fragment.count))]
