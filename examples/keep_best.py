"""PPO beside a branch that watches: after every few batches it plays the policy, and keeps the best one so far.

The shape: one stream `duplicate`d for two branches of different pace, which run `Concurrently`; the results are those of one.
`flowrl train examples/keep_best.py:execution_plan --env CartPole-v1 --stop-steps 50_000`, then `fl.load_policy("best")`.
"""

from dataclasses import dataclass, field

import flowrl as fl
from flowrl.algorithms import ppo
from flowrl.metrics import Max, get_metrics
from flowrl.ops import ConcatBatches, Concurrently, ParallelRollouts, StandardMetricsReporting


class KeepBestConfig(fl.PPOConfig):
    """PPO's settings, and those of the branch that watches."""

    num_envs: int = 8
    rollout_fragment_length: int = 128
    train_batch_size: int = 1024
    lr: float = 1e-3
    gamma: float = 0.98
    batches_between_games: int = 4
    num_games: int = 10
    best_folder: str = "best"


@dataclass
class KeepBest:
    """Plays the policy as it now is, and saves it if it is the best so far. For `.for_each()`."""

    workers: fl.WorkerSet
    num_games: int
    folder: str
    best: float = field(default=float("-inf"), init=False)

    def __call__(self, batches):
        local = self.workers.local_worker()
        policy = fl.TrainedPolicy(local.config, local.envs.observation_space, local.envs.action_space)
        policy.set_weights(local.get_weights())
        mean = policy.evaluate(self.num_games)["episode_return_mean"]  # the same games each time
        get_metrics().observe("best_return", Max(mean))  # shown in a result's "info"
        if mean > self.best:
            self.best = mean
            policy.save(self.folder)


def execution_plan(workers, config):
    batches = ParallelRollouts(workers, mode="bulk_sync").combine(ConcatBatches(config.train_batch_size))
    trained, watched = batches.duplicate(2)
    # 1. Train, by the prebuilt plan.
    train = ppo.sub_plan(trained, workers, config)
    # 2. Watch.
    pace = config.batches_between_games
    watch = watched.batch(pace).for_each(KeepBest(workers, config.num_games, config.best_folder))
    # Both take `pace` batches a turn, training first: so it makes each batch it trains on with the newest weights.
    both = Concurrently([train, watch], mode="round_robin", output_indexes=[0], round_robin_weights=[pace, 1])
    return StandardMetricsReporting(both, workers, config)
