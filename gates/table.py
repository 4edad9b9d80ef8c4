"""The rows: what is trained with which settings, what it has to reach, and what others published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ASYNCHRONOUS_SEEDS", "ROWS", "SEEDS", "Published", "Row"]

SEEDS = (0, 1, 2, 3, 4)
ASYNCHRONOUS_SEEDS = (0, 1, 2)
"""Of plans whose outcome depends on who is faster, so that a seed gives no run again."""


class Published(NamedTuple):
    """What others reached, and where they say so."""

    figure: str
    source: str
    url: str


@dataclass(frozen=True)
class Row:
    """One line of the table. A seed's score is that of its 100 evaluation episodes.

    `settings` is a file that `flowrl train --config` takes: its `stop_steps` is the budget in env steps, its `stop_return` the
    mean training return at which training stops.
    """

    name: str
    title: str
    settings: str
    each: float
    """What each seed has to reach."""
    mean: float | None = None
    """What the mean over the seeds has to reach; None: only each counts."""
    published: tuple[Published, ...] = ()
    score: str = "gates.scores:mean_return"
    """The function `(config, evaluation) -> float` that gives a seed's score."""
    lower_is_better: bool = False
    digits: int = 1
    is_asynchronous: bool = False
    """Its plan runs on Ray, and who is faster counts: it is measured with fewer seeds, and alone."""

    def reaches(self, score: float, bar: float) -> bool:
        """Whether a score is as good as the bar."""
        return score <= bar if self.lower_is_better else score >= bar

    def worst(self, scores: list[float]) -> float:
        """The worst of some scores."""
        return max(scores) if self.lower_is_better else min(scores)

    def shown(self, score: float) -> str:
        """A score as the page shows it."""
        return f"{score:.{self.digits}f}"

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that it is measured with."""
        return ASYNCHRONOUS_SEEDS if self.is_asynchronous else SEEDS

    @property
    def bar(self) -> str:
        """What has to be reached, in words."""
        most = "at most " if self.lower_is_better else ""
        each = f"each {most}{self.each:g}"
        return each if self.mean is None else f"mean {most}{self.mean:g}, {each}"


_CLEANRL_DQN = ("CleanRL", "https://docs.cleanrl.dev/rl-algorithms/dqn/")
_ZOO = ("rl-zoo3", "https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md")
_RLLIB = "https://github.com/ray-project/ray/blob/ray-2.40.0/rllib/tuned_examples/ppo"
_RLLIB_DQN = "https://github.com/ray-project/ray/blob/0b8ec9cacefca2594064d5d1f06f39999a7c53d1/rllib/tuned_examples/dqn"
_RLLIB_APEX = "https://github.com/ray-project/ray/blob/0254a46cb8c7cc6033a7f262ca7d9eecbb6dd482/rllib/tuned_examples/apex_dqn"
_RLLIB_A3C = "https://github.com/ray-project/ray/blob/3ad7e65c519334a109853d1785e0fbc6c269756d/rllib/tuned_examples/a3c"

ROWS = (
    Row(
        "ppo_cartpole",
        "PPO, CartPole-v1",
        "settings/ppo_cartpole.json",
        each=475,
        published=(Published("500 at 100k", *_ZOO), Published("450 at 300k", "RLlib", f"{_RLLIB}/cartpole_ppo.py")),
    ),
    Row(
        "ppo_acrobot",
        "PPO, Acrobot-v1, normalised observations",
        "settings/ppo_acrobot.json",
        each=-92,
        mean=-85,
        published=(
            Published("-73.5 at 1M", *_ZOO),
            Published("-86.4 at 500k", "CleanRL", "https://docs.cleanrl.dev/rl-algorithms/ppo/"),
        ),
    ),
    Row(
        "ppo_pendulum",
        "PPO, Pendulum-v1",
        "settings/ppo_pendulum.json",
        each=-250,
        mean=-200,
        published=(
            Published("-300 at 400k", "RLlib", f"{_RLLIB}/pendulum_ppo.py"),
            Published("-250 at 750k", "tianshou", "https://github.com/thu-ml/tianshou/blob/v1.0.0/test/continuous/test_ppo.py"),
        ),
    ),
    Row(
        "ppo_point_mass",
        "PPO, 2-D LQR point mass, bounded Box: its cost over the least possible",
        "settings/ppo_point_mass.json",
        each=1.1,
        published=(Published("1 is the optimum", "finite-horizon Riccati", "../tests/envs.py"),),
        score="gates.scores:cost_over_optimum",
        lower_is_better=True,
        digits=3,
    ),
    Row(
        "a2c_cartpole",
        "A2C, CartPole-v1",
        "settings/a2c_cartpole.json",
        each=450,
        mean=475,
        published=(Published("500 at 500k", *_ZOO),),
    ),
    Row(
        "dqn_cartpole",
        "DQN, CartPole-v1",
        "settings/dqn_cartpole.json",
        each=450,
        mean=475,
        published=(
            Published("489 at 500k", *_CLEANRL_DQN),
            Published("500 at 50k", *_ZOO),
            Published("450 at 200k", "RLlib", f"{_RLLIB_DQN}/cartpole_dqn.py"),
        ),
    ),
    Row(
        "dqn_acrobot",
        "DQN, Acrobot-v1",
        "settings/dqn_acrobot.json",
        each=-100,
        mean=-90,
        published=(Published("-91.5 at 500k", *_CLEANRL_DQN), Published("-76.6 at 100k", *_ZOO)),
    ),
    Row(
        "dqn_frozenlake",
        "DQN, FrozenLake-v1, slippery: the exact value of its start over the most possible",
        "settings/dqn_frozenlake.json",
        each=0.95,
        mean=0.98,
        published=(Published("1 is the optimum", "value iteration", "../gates/scores.py"),),
        score="gates.scores:start_value_over_optimum",
        digits=3,
    ),
    Row(
        "apex_cartpole",
        "Ape-X, CartPole-v1, 2 workers, 2 replay shards",
        "settings/apex_cartpole.json",
        each=450,
        mean=475,
        published=(Published("150 on CartPole-v0 at 250k", "RLlib", f"{_RLLIB_APEX}/cartpole-apex-dqn.yaml"),),
        is_asynchronous=True,
    ),
    Row(
        "a3c_cartpole",
        "A3C, CartPole-v1, 2 workers",
        "settings/a3c_cartpole.json",
        each=400,
        mean=450,
        published=(Published("150 on CartPole-v0 at 200k", "RLlib", f"{_RLLIB_A3C}/cartpole-a3c.yaml"),),
        is_asynchronous=True,
    ),
)
"""The acceptance runs of learning, in the order in which the page shows them."""
