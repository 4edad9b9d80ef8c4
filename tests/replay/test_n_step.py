import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowrl.batch import EpisodeStats, Origin, SampleBatch
from flowrl.env import EnvVector
from flowrl.replay import ReplayBuffer, n_step
from flowrl.rollout.sampler import Sampler
from tests.envs import CountEnv


class Plain:
    """Takes action 0 for ever and adds nothing."""

    def act(self, obs, explore):
        return np.zeros(len(obs), np.int64), {}

    def postprocess(self, fragment):
        return fragment


def sampler(*envs: CountEnv, length: int) -> Sampler:
    return Sampler(EnvVector(list(envs), np.random.SeedSequence(0)), Plain(), length)


def episode_of_five(end: str = "term") -> SampleBatch:
    return sampler(CountEnv(5, end), length=5).sample()


def test_every_row_has_its_sum_and_the_end_of_its_window():  # D1
    rows = n_step(episode_of_five(), n=3, gamma=0.9)
    assert rows["rewards"].tolist() == pytest.approx([5.23, 7.94, 10.65, 8.5, 5.0])
    assert rows["terminateds"].tolist() == [False, False, True, True, True]
    assert rows["new_obs"][:, 2].tolist() == [3, 4, 5, 5, 5]
    assert rows["discounts"].tolist() == pytest.approx([0.729, 0.729, 0.729, 0.81, 0.9])
    assert (rows["rewards"].dtype, rows["discounts"].dtype) == (np.float32, np.float32)


def test_observations_and_actions_stay_as_they_were():  # D3
    fragment = episode_of_five()
    before = {name: column.copy() for name, column in fragment.items()}
    rows = n_step(fragment, n=3, gamma=0.9)
    assert all(np.array_equal(fragment[name], column) for name, column in before.items())
    untouched = set(before) - {"rewards", "new_obs", "terminateds", "truncateds"}
    assert all(np.array_equal(rows[name], before[name]) for name in untouched)
    assert rows["obs"][:, 2].tolist() == [0, 1, 2, 3, 4]
    assert not np.shares_memory(rows["obs"], rows["new_obs"])


def test_a_truncated_window_keeps_its_bootstrap():  # C6
    rows = n_step(episode_of_five("trunc"), n=3, gamma=0.9)
    assert rows["terminateds"].tolist() == [False] * 5
    assert rows["truncateds"].tolist() == [False, False, True, True, True]
    assert rows["new_obs"][:, 2].tolist() == [3, 4, 5, 5, 5]


def test_the_last_rows_of_a_fragment_look_less_far():
    fragment = sampler(CountEnv(100), length=4).sample()
    rows = n_step(fragment, n=3, gamma=0.5)
    assert rows["rewards"].tolist() == [1 + 2 / 2 + 3 / 4, 2 + 3 / 2 + 4 / 4, 3 + 4 / 2, 4]
    assert rows["discounts"].tolist() == [0.125, 0.125, 0.25, 0.5]
    assert rows["new_obs"][:, 2].tolist() == [3, 4, 4, 4]


def test_targets_are_exact_at_ends_and_cuts():
    """With Q of the true discounted rest of the episode, every target is that of its own row: 1 a step here, 7 steps an episode."""
    gamma = 0.9
    fragment = sampler(CountEnv(7), CountEnv(7, ident=1), length=10).sample().with_columns(rewards=np.ones(20, np.float32))

    def rest(obs):
        return (1 - gamma ** (7 - obs[:, 2].astype(np.float64))) / (1 - gamma)

    for n in (1, 2, 3, 9):
        rows = n_step(fragment, n, gamma)
        targets = rows["rewards"] + rows["discounts"] * ~rows["terminateds"] * rest(rows["new_obs"])
        assert targets.tolist() == pytest.approx(rest(rows["obs"]).tolist(), rel=1e-6)


def test_no_window_crosses_an_episode_an_env_or_the_write_pointer():  # D4
    sampling = sampler(CountEnv(4, ident=0), CountEnv(4, ident=1), length=5)
    buffer = ReplayBuffer(10)
    for num_rows in (10, 10, 5):
        buffer.add(n_step(sampling.sample(), n=3, gamma=0.9)[:num_rows])
        batch = buffer.sample(300)
        assert len(set(batch["batch_indexes"].tolist())) == 10
        assert np.array_equal(batch["obs"][:, :2], batch["new_obs"][:, :2])
        first, last = batch["obs"][:, 2], batch["new_obs"][:, 2]
        assert set((last - first).tolist()) <= {1.0, 2.0, 3.0}
        returns = [sum(0.9**k * (t + k + 1) for k in range(int(end - t))) for t, end in zip(first, last)]
        assert batch["rewards"].tolist() == pytest.approx(returns)
        assert batch["discounts"].tolist() == pytest.approx((0.9 ** (last - first)).tolist())


def test_a_jump_in_time_ends_a_window():
    fragment = episode_of_five()
    kept = np.array([0, 1, 3, 4])
    rows = n_step(fragment[kept], n=3, gamma=1.0)
    assert rows["rewards"].tolist() == [1 + 2, 2, 4 + 5, 5]
    assert rows["new_obs"][:, 2].tolist() == [2, 2, 5, 5]


@pytest.mark.parametrize("end", ["terminateds", "truncateds"])
def test_an_end_alone_ends_a_window(end):  # D4, where nothing else tells the episodes apart
    ends = {name: np.array([False, name == end, False, False]) for name in ("terminateds", "truncateds")}
    rows = n_step(SampleBatch({"rewards": [1.0, 2.0, 4.0, 8.0], "new_obs": [1, 2, 3, 4], **ends}), n=3, gamma=1.0)
    assert rows["rewards"].tolist() == [3.0, 2.0, 12.0, 8.0]
    assert rows["new_obs"].tolist() == [2, 2, 4, 4]


def test_what_lies_behind_a_window_is_not_looked_at():
    ends = np.array([True, False])
    fragment = SampleBatch({"rewards": [1.0, np.nan], "new_obs": [1, 2], "terminateds": ends, "truncateds": [False, False]})
    assert n_step(fragment, n=2, gamma=0.9)["rewards"][0] == 1.0


def test_one_step_adds_only_discounts():
    fragment = episode_of_five()
    rows = n_step(fragment, n=1, gamma=0.9)
    assert set(rows) - set(fragment) == {"discounts"}
    assert all(rows[name] is fragment[name] for name in fragment)
    assert rows["discounts"].tolist() == [np.float32(0.9)] * 5


def test_a_fragment_stays_that_fragment():
    stats = [EpisodeStats(15.0, 5, 1)]
    fragment = SampleBatch(dict(episode_of_five().items()), Origin(1, 0, 3), stats)
    rows = n_step(fragment, n=3, gamma=0.9)
    assert (rows.origin, rows.episodes) == (Origin(1, 0, 3), tuple(stats))


def test_rewards_keep_their_dtype_and_whole_ones_become_float64():
    fragment = episode_of_five()
    for dtype, kept in ((np.float64, np.float64), (np.float32, np.float32), (np.int64, np.float64)):
        rows = n_step(fragment.with_columns(rewards=fragment["rewards"].astype(dtype)), n=3, gamma=0.9)
        assert rows["rewards"].dtype == kept
        assert rows["rewards"].tolist() == pytest.approx([5.23, 7.94, 10.65, 8.5, 5.0])


@pytest.mark.parametrize("n", [0, 1.5])
def test_a_window_of_no_whole_steps_is_refused(n):
    with pytest.raises(ValueError, match=f"n={n}"):
        n_step(episode_of_five(), n=n, gamma=0.9)


def test_a_window_may_be_longer_than_any_episode():
    longest = n_step(episode_of_five(), n=2**63 - 1, gamma=0.5)
    assert longest["new_obs"][:, 2].tolist() == [5] * 5


def test_whole_rewards_become_float64_with_one_step_too():
    fragment = episode_of_five()
    assert n_step(fragment.with_columns(rewards=np.arange(5)), n=1, gamma=0.9)["rewards"].dtype == np.float64


steps = st.tuples(st.integers(-9, 9), st.sampled_from(["goes on", "terminated", "truncated", "cut"]))


@given(st.lists(steps, min_size=1, max_size=25), st.integers(1, 7), st.floats(0, 1))
def test_the_sums_are_those_of_a_walk_row_by_row(rows, n, gamma):
    kinds = [kind for _, kind in rows]
    episodes = np.cumsum([0] + [kind != "goes on" for kind in kinds])[:-1]
    fragment = SampleBatch(
        {
            "rewards": np.array([float(reward) for reward, _ in rows]),
            "new_obs": np.arange(len(rows)),
            "terminateds": [kind == "terminated" for kind in kinds],
            "truncateds": [kind == "truncated" for kind in kinds],
            "eps_id": episodes,
        }
    )
    walked = []
    for t in range(len(rows)):
        total, at = 0.0, t
        while True:
            total += gamma ** (at - t) * rows[at][0]
            if at - t == n - 1 or at == len(rows) - 1 or kinds[at] != "goes on":
                break
            at += 1
        walked.append((total, at, kinds[at] == "terminated", gamma ** (at - t + 1)))
    summed = n_step(fragment, n, gamma)
    totals, lasts, terminateds, discounts = zip(*walked)
    assert summed["rewards"].tolist() == pytest.approx(totals, abs=1e-9)
    assert (summed["new_obs"].tolist(), summed["terminateds"].tolist()) == (list(lasts), list(terminateds))
    assert summed["discounts"].tolist() == pytest.approx(discounts, rel=1e-6, abs=1e-30)
