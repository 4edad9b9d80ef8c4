"""Ape-X: DQN with many workers that explore each in its own measure and say themselves how much their rows are worth replaying.

Horgan et al., Distributed Prioritized Experience Replay, 2018.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from flowrl.algorithms.dqn import DQNConfig, DQNPolicy, prepared, targets
from flowrl.batch import SampleBatch
from flowrl.iter.handles import create_colocated
from flowrl.iter.iterators import LocalIterator
from flowrl.learner.learner_thread import LearnerThread
from flowrl.ops.concurrency import Concurrently, Dequeue, Enqueue
from flowrl.ops.replay import Replay, StoreToReplayBuffer, UpdatePriorities
from flowrl.ops.reporting import StandardMetricsReporting
from flowrl.ops.rollout import ParallelRollouts
from flowrl.ops.train import UpdateTargetNetwork, UpdateWorkerWeights
from flowrl.replay.actor import ReplayActor
from flowrl.rollout.worker_set import WorkerSet
from flowrl.schedules import Schedule

__all__ = ["ApexConfig", "ApexPolicy", "execution_plan"]

OPTIMIZER_SETTINGS = ("num_replay_buffer_shards", "max_weight_sync_delay", "debug")


class ApexConfig(DQNConfig):
    """Settings of Ape-X, for one machine: the paper has 360 workers and two million rows.

    >>> config = ApexConfig(num_replay_buffer_shards=4)
    >>> config["optimizer"]["num_replay_buffer_shards"], config["optimizer"].get("debug"), "optimizer" in config
    (4, False, False)
    """

    num_workers: int = 2
    rollout_fragment_length: int = 50
    train_batch_size: int = 512
    n_step: int = 3
    epsilon_schedule: Schedule | None = None
    """None: each worker has a constant epsilon of its own (`epsilon_base`); with points `(env steps, value)` all have that one."""
    epsilon_base: float = 0.4
    """Worker i of N, counted from 0, explores with epsilon = epsilon_base ** (1 + epsilon_exponent * i / (N - 1))."""
    epsilon_exponent: float = 7.0
    """See `epsilon_base`."""
    prioritized_replay: bool = True
    """Cannot be False: replay by priority is what Ape-X is."""
    learning_starts: int = 5000
    """Rows in the replay buffers, all together, before the first batch is replayed."""
    buffer_size: int = 100_000
    """Rows that the replay buffers hold, all together; the oldest make room."""
    num_replay_buffer_shards: int = 2
    """Actors that the replay buffer is spread over."""
    max_weight_sync_delay: int = 400
    """Env steps that a worker samples before it is sent new weights; what it was asked for before (two fragments) has the old ones."""
    target_network_update_freq: int = 50_000
    """Trained rows between two updates of the target network."""
    debug: bool = False
    """For plans that read it: RLlib's replay actors gave more statistics with it. Nothing here does."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_is("prioritized_replay", self.prioritized_replay, "True, Ape-X replays by priority; DQNConfig does without")
        self.check_number("epsilon_base", 0.0, 1.0)
        self.check_number("epsilon_exponent", 0.0)
        for name in ("num_replay_buffer_shards", "max_weight_sync_delay"):
            self.check_whole(name, least=1)
        num_shards = self.num_replay_buffer_shards
        self.check_is("buffer_size", self.buffer_size >= num_shards, f"a row for each of num_replay_buffer_shards={num_shards}, or more")
        self.check_is("debug", isinstance(self.debug, bool), "true or false")

    @property
    def optimizer(self) -> Mapping[str, Any]:
        """A view of `num_replay_buffer_shards`, `max_weight_sync_delay` and `debug`, for plans that read `config["optimizer"][...]`."""
        return MappingProxyType({name: getattr(self, name) for name in OPTIMIZER_SETTINGS})

    def __getitem__(self, name: str) -> Any:
        return self.optimizer if name == "optimizer" else super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        return name in self.__dataclass_fields__

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> ApexPolicy:
        """DQN's policy, with an epsilon and priorities of the worker's own."""
        return ApexPolicy(self, observation_space, action_space, seed)

    def make_plan(self, workers: WorkerSet) -> LocalIterator[dict[str, Any]]:
        """Ape-X's plan."""
        return execution_plan(workers, self)


class ApexPolicy(DQNPolicy):
    """DQN's policy, with an epsilon and priorities of the worker's own."""

    config: ApexConfig

    @property
    def epsilon(self) -> float:
        """Worker i of N, from 0: epsilon_base ** (1 + epsilon_exponent * i / (N - 1)) (Horgan et al., 2018, section 4).

        The first worker's where there is but one, or none beside the local one; or by `epsilon_schedule`.
        """
        config = self.config
        if config.epsilon_schedule is not None:
            return super().epsilon
        place = max(self.worker_index - 1, 0) / max(config.num_workers - 1, 1)
        return float(config.epsilon_base ** (1 + config.epsilon_exponent * place))

    def postprocess(self, fragment: SampleBatch) -> SampleBatch:
        """The fragment with the rows of `n_step` windows, their `discounts`, and `priorities` `[T]` (float32): |TD error| + eps.

        The TD error is that of the loss, by the worker's own network alone, which stands in for the target network too (Horgan et al.,
        2018, algorithm 1: actors hold no other).
        """
        fragment = super().postprocess(fragment)
        chosen = np.take_along_axis(self.q_values(fragment["obs"]), self.action_indices(fragment)[:, None], axis=1)[:, 0]
        next_values = self.q_values(fragment["new_obs"]).max(axis=1)
        priorities = np.abs(chosen - targets(fragment, next_values)) + self.config.prioritized_replay_eps
        return fragment.with_columns(priorities=priorities.astype(np.float32))


def execution_plan(workers: WorkerSet, config: ApexConfig) -> LocalIterator[dict[str, Any]]:
    """Ape-X: sampling, replaying and learning side by side; results come with what was learned."""
    num_shards = config.num_replay_buffer_shards
    shards = create_colocated(ReplayActor, [num_shards, *config.replay_settings], num_shards)
    learner = LearnerThread(workers.local_worker())
    # (1) Sample, store in the replay shards, and keep the worker that sampled near the learner's weights.
    rollouts = ParallelRollouts(workers, mode="async", num_async=2)
    store: LocalIterator[Any] = rollouts.for_each(StoreToReplayBuffer(actors=shards))
    if workers.remote_workers():
        update_weights = UpdateWorkerWeights(learner, workers, config.max_weight_sync_delay)
        store = store.zip_with_source_actor().for_each(update_weights)
    # (2) Replay into the learner's queue.
    replay = prepared(Replay(actors=shards, num_async=4), workers, config).zip_with_source_actor().for_each(Enqueue(learner.inqueue))
    # (3) Give the priorities back to the shard that replayed, and move the target network now and then.
    update = Dequeue(learner.outqueue, check=learner.is_alive).for_each(UpdatePriorities())
    update = update.for_each(UpdateTargetNetwork(workers, config.target_network_update_freq, by_steps_trained=True))
    if config.training_intensity is None:
        train = Concurrently([store, replay, update], mode="async", output_indexes=[2])
    else:
        weights = [1, config.batches_for(config.fragment_rows), "*"]
        train = Concurrently([store, replay, update], mode="round_robin", output_indexes=[2], round_robin_weights=weights)
    greediest = workers.remote_workers()[-len(workers.remote_workers()) // 3 :]
    return StandardMetricsReporting(train, workers, config, selected_workers=greediest)
