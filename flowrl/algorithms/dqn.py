"""DQN: Q-learning from replayed experience towards a target network, with double Q-learning, dueling, n steps and priorities.

Mnih et al., Human-level control through deep reinforcement learning, 2015; the parts together as in Hessel et al., Rainbow: Combining
Improvements in Deep Reinforcement Learning, 2018, without its noisy layers and its distributions of returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch.nn import functional

from flowrl.batch import Array, SampleBatch
from flowrl.config import AlgorithmConfig
from flowrl.iter.iterators import LocalIterator
from flowrl.ops.concurrency import Concurrently
from flowrl.ops.replay import Replay, StoreToReplayBuffer, UpdatePriorities
from flowrl.ops.reporting import StandardMetricsReporting
from flowrl.ops.rollout import ParallelRollouts
from flowrl.ops.train import TrainOneStep, UpdateTargetNetwork
from flowrl.policy.networks import QNetwork
from flowrl.policy.q_policy import QPolicy
from flowrl.replay.local_buffer import LocalReplayBuffer
from flowrl.rollout.worker_set import WorkerSet
from flowrl.schedules import Schedule

__all__ = ["DQNConfig", "DQNPolicy", "execution_plan", "prepared", "sub_plan", "targets"]

Values = TypeVar("Values", Array, torch.Tensor)


class DQNConfig(AlgorithmConfig):
    """Settings of DQN."""

    rollout_fragment_length: int = 4
    train_batch_size: int = 32
    """Rows of a replayed batch."""
    lr: float = 5e-4
    hiddens: tuple[int, ...] = (256, 256)
    """Units of each hidden layer; with `dueling` one half of the last one's are for the state's value, the other for the advantages."""
    model: Callable[[Any, int], Any] | None = None
    """A network of your own in place of the MLP: a class or function `model(observation_space, num_actions)` that makes an
    `nn.Module`, which gives Q-values `[N, num_actions]` for float observations `[N, *shape]`, or a tuple that begins with them (the
    rest is left). It is always in evaluation mode."""
    grad_clip: float | None = 10.0
    """Highest global norm of a gradient, as in Wang et al., 2016; None: as it comes."""
    double_q: bool = True
    """The network chooses the next action and the target network values it; else the target network does both."""
    dueling: bool = True
    """The network values the state and each action's advantage apart (Wang et al., 2016); an own `model` does as it likes."""
    n_step: int = 1
    """Rewards that a row sums up before it bootstraps."""
    epsilon_schedule: Schedule | None = ((0, 1.0), (10_000, 0.02))
    """The share of random actions by env steps: points `(env steps, value)`, straight lines between them, the last value after them.
    None: no random actions."""
    learning_starts: int = 1000
    """Rows in the replay buffer before the first batch is replayed."""
    buffer_size: int = 50_000
    """Rows that the replay buffer holds; the oldest make room."""
    prioritized_replay: bool = False
    """Replay rows in proportion to their TD errors (Schaul et al., Prioritized Experience Replay, 2016), else all alike."""
    prioritized_replay_alpha: float = 0.6
    """How much priorities count: a row is drawn in proportion to priority ** alpha."""
    prioritized_replay_beta: float = 0.4
    """How far the rows' weights make up for it: 0 not at all, 1 wholly."""
    prioritized_replay_eps: float = 1e-6
    """Added to the TD error, so that no row is lost."""
    target_network_update_freq: int = 500
    """Sampled env steps between two updates of the target network."""
    training_intensity: float | None = None
    """Trained rows for each sampled one; None: one train batch a round, which is a fragment of each worker."""
    before_learn_on_batch: Callable[[SampleBatch, Any, Any], SampleBatch] | None = None
    """Called as `fn(batch, workers, config)` for each replayed batch: gives the batch to train on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("n_step", "buffer_size", "target_network_update_freq"):
            self.check_whole(name, least=1)
        self.check_whole("learning_starts", least=0)
        self.check_is(
            "learning_starts", self.learning_starts <= self.buffer_size, f"at most buffer_size={self.buffer_size}, which is never exceeded"
        )
        for name in ("double_q", "dueling", "prioritized_replay"):
            self.check_is(name, isinstance(self[name], bool), "true or false")
        self.check_is("hiddens", not (self.dueling and self.hiddens[-1:] == (1,)), "2 units or more in the last layer, where dueling=True")
        for name in ("prioritized_replay_alpha", "prioritized_replay_beta"):
            self.check_number(name, 0.0, 1.0)
        for name in ("prioritized_replay_eps", "training_intensity"):
            if self[name] is not None:
                self.check_number(name, 0.0)
                self.check_is(name, self[name] > 0, "more than 0")
        batches = self.batches_for(self.fragment_rows)
        self.check_is(
            "training_intensity",
            1e-6 <= batches <= 1e6,
            f"so much that 1e-6 to 1e6 train batches of {self.train_batch_size} rows come after a fragment of {self.fragment_rows}",
        )
        self.check_schedule("epsilon_schedule", 0.0, 1.0)
        fn = self.before_learn_on_batch
        self.check_is("before_learn_on_batch", fn is None or callable(fn), "a function `fn(batch, workers, config)`, or None")
        self.check_is(
            "normalize_rewards",
            not self.normalize_rewards,
            "False: replayed rewards would have been divided by deviations of different times; scale them in the env",
        )

    @property
    def replay_settings(self) -> tuple[int, int, int, float | None, float, float, int]:
        """What replay memories are made with: when they start, rows in all, rows of a batch, alpha (None: all alike), beta, eps, seed."""
        alpha = self.prioritized_replay_alpha if self.prioritized_replay else None
        sizes = self.learning_starts, self.buffer_size, self.train_batch_size
        return (*sizes, alpha, self.prioritized_replay_beta, self.prioritized_replay_eps, self.seed)

    def batches_for(self, num_sampled: int) -> float:
        """Batches to train on for so many sampled rows, by `training_intensity`; without it 1."""
        return 1.0 if self.training_intensity is None else self.training_intensity * num_sampled / self.train_batch_size

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> DQNPolicy:
        """Q-values with DQN's loss."""
        return DQNPolicy(self, observation_space, action_space, seed)

    def make_plan(self, workers: WorkerSet) -> LocalIterator[dict[str, Any]]:
        """DQN's plan."""
        return execution_plan(workers, self)


class DQNPolicy(QPolicy):
    """Q-values with DQN's loss."""

    config: DQNConfig

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, Any]]:
        """The Huber loss of the TD errors (Mnih et al., 2015, algorithm 1), as a mean over the rows:

            y    = R + discount * (0 if terminated else Q_target(s', a*))
            a*   = argmax over a of Q(s', a) with double_q, else of Q_target(s', a)
            loss = E[weight * huber(Q(s, a) - y)]

        R, discount and s' are those of the row's n-step window; weights are there where rows were replayed by priority, else 1. The
        choice of a* by the network is that of van Hasselt et al., Deep Reinforcement Learning with Double Q-learning, 2016. We differ
        from Mnih et al., who clip errors to [-1, 1], in name only: the gradient of Huber's loss is the clipped error. `td_errors`
        are Q(s, a) - y, one a row; `mean_td_error` is their mean, with sign.
        """
        taken = torch.tensor(self.action_indices(batch))[:, None]
        chosen = self.evaluate(self.network, batch["obs"]).gather(1, taken).squeeze(1)
        with torch.no_grad():
            next_q = self.evaluate(self.target, batch["new_obs"])
            if self.config.double_q:
                best = self.evaluate(self.network, batch["new_obs"]).argmax(dim=1, keepdim=True)
                expected = targets(batch, next_q.gather(1, best).squeeze(1))
            else:
                expected = targets(batch, next_q.amax(dim=1))
        if "weights" in batch:
            loss = (torch.tensor(batch["weights"]) * functional.huber_loss(chosen, expected, reduction="none")).mean()
        else:
            loss = functional.huber_loss(chosen, expected)
        values = chosen.detach()
        td_errors = values - expected
        return loss, {"loss": loss.detach(), "mean_q": values.mean(), "mean_td_error": td_errors.mean(), "td_errors": td_errors}

    def backward(self, batch: SampleBatch) -> Mapping[str, Any]:
        """The gradient of `loss`; for the MLP on the CPU by hand, without autograd's graph: less time where rows are few.

        By autograd elsewhere, for a `model` of the user's own, and in a subclass with a loss of its own.
        """
        network, target = self.network, self.target
        is_by_hand = self.is_on_cpu and type(self).loss is DQNPolicy.loss
        if not (type(network) is type(target) is QNetwork and network.encoder is None and is_by_hand):
            return super().backward(batch)
        count, taken = batch.count, (np.arange(batch.count), self.action_indices(batch))
        with torch.no_grad():
            activations = network.activations(self.network_input(batch["obs"]))
            values = network.values(activations[-1]).numpy()
            next_obs = self.network_input(batch["new_obs"])
            next_q = target(next_obs).numpy()
            if self.config.double_q:
                next_values = next_q[taken[0], network(next_obs).numpy().argmax(axis=1)]
            else:
                next_values = next_q.max(axis=1)
            chosen = values[taken]
            td_errors = chosen - targets(batch, next_values)
            clipped = td_errors.clip(-1.0, 1.0)  # Huber's derivative
            losses, slopes = clipped * (td_errors - clipped / 2), clipped / count
            if "weights" in batch:
                losses, slopes = losses * batch["weights"], slopes * batch["weights"]
            by_values = np.zeros_like(values)
            by_values[taken] = slopes
            gradients = network.gradients(activations, torch.from_numpy(by_values))
        for parameter, gradient in zip(self.named_parameters().values(), gradients, strict=True):
            parameter.grad = gradient if parameter.requires_grad else None
        means = {"loss": losses, "mean_q": chosen, "mean_td_error": td_errors}
        return {name: float(by_row.sum()) / count for name, by_row in means.items()} | {"td_errors": td_errors}


def targets(batch: SampleBatch, next_values: Values) -> Values:
    """What the value of each row's action should be, `[B]`: its rewards and, unless it terminated, what its new_obs is worth.

    >>> columns = {"rewards": np.array([1.0, 1.0]), "discounts": np.array([0.9, 0.9]), "terminateds": np.array([False, True])}
    >>> targets(SampleBatch(columns), next_values=torch.tensor([10.0, 10.0])).tolist()
    [10.0, 1.0]
    """
    discounts = batch["discounts"] * ~batch["terminateds"]
    if isinstance(next_values, torch.Tensor):
        return torch.tensor(batch["rewards"]) + torch.tensor(discounts) * next_values
    expected: Array = batch["rewards"] + discounts * next_values
    return expected


def sub_plan(rollouts: LocalIterator[SampleBatch], workers: WorkerSet, config: DQNConfig) -> LocalIterator[Any]:
    """What DQN does with rollouts: (batch, statistics) of each replayed batch."""
    buffer = LocalReplayBuffer(*config.replay_settings)
    # (1) Store what is sampled.
    store = rollouts.for_each(StoreToReplayBuffer(local_buffer=buffer))
    # (2) Replay and train, give the TD errors back as priorities, and move the target network now and then.
    replay = prepared(Replay(local_buffer=buffer), workers, config)
    train = replay.for_each(TrainOneStep(workers)).for_each(UpdatePriorities(local_buffer=buffer))
    train = train.for_each(UpdateTargetNetwork(workers, config.target_network_update_freq))
    weights = [1, config.batches_for(config.round_rows)]
    return Concurrently([store, train], mode="round_robin", output_indexes=[1], round_robin_weights=weights)


def execution_plan(workers: WorkerSet, config: DQNConfig) -> LocalIterator[dict[str, Any]]:
    """DQN: fragments go into a replay buffer, and batches come out of it to be trained on, by turns."""
    train = sub_plan(ParallelRollouts(workers, mode="bulk_sync"), workers, config)
    return StandardMetricsReporting(train, workers, config)


def prepared(batches: LocalIterator[SampleBatch], workers: WorkerSet, config: DQNConfig) -> LocalIterator[SampleBatch]:
    """Replayed batches as `before_learn_on_batch` leaves them."""
    before = config.before_learn_on_batch
    return batches if before is None else batches.for_each(lambda batch: before(batch, workers, config))
