"""A2C: one gradient step on each batch of advantages, synchronously.

Mnih et al., Asynchronous Methods for Deep Reinforcement Learning, 2016, in its synchronous form (Wu et al., OpenAI Baselines:
ACKTR & A2C, 2017).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from flowrl.batch import SampleBatch
from flowrl.config import AlgorithmConfig
from flowrl.iter.iterators import LocalIterator
from flowrl.ops.reporting import StandardMetricsReporting
from flowrl.ops.rollout import ConcatBatches, ParallelRollouts
from flowrl.ops.train import ApplyGradients, AverageGradients, ComputeGradients, TrainOneStep
from flowrl.policy.actor_critic import ActorCriticPolicy
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["A2CConfig", "A2CPolicy", "execution_plan", "sub_plan"]


class A2CConfig(AlgorithmConfig):
    """Settings of A2C."""

    num_envs: int = 8
    rollout_fragment_length: int = 16
    train_batch_size: int = 128
    lr: float = 1e-3
    lambda_: float = 1.0
    """Of generalized advantage estimation; 1: the discounted sum of rewards up to the fragment's end, as in the paper."""
    vf_loss_coeff: float = 0.5
    """Weight of the values' error in the loss."""
    entropy_coeff: float = 0.0
    """Weight of the entropy in the loss."""
    microbatch_size: int = 0
    """Compute the gradient of a train batch in parts of so many rows, which take less memory; 0: in one. The gradient is the same."""
    vf_share_layers: bool | None = None
    """Whether actor and critic have their hidden layers in common; None: they share what reads images and nothing else, false: not even
    that."""
    initial_log_std: float = 0.0
    """Of the normal distribution over Box actions at the start, where -1 and 1 are the bounds."""
    grad_clip: float | None = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_number("lambda_", 0.0, 1.0)
        self.check_whole("microbatch_size", least=0)
        self.check_is("vf_share_layers", self.vf_share_layers in (None, True, False), "true, false or None")
        self.check_number("initial_log_std", -20.0, 20.0)
        for name in ("vf_loss_coeff", "entropy_coeff"):
            self.check_number(name, 0.0)

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> A2CPolicy:
        """An actor-critic with A2C's loss."""
        return A2CPolicy(self, observation_space, action_space, seed)

    def make_plan(self, workers: WorkerSet) -> LocalIterator[dict[str, Any]]:
        """A2C's plan."""
        return execution_plan(workers, self)


class A2CPolicy(ActorCriticPolicy):
    """An actor-critic with the policy gradient's loss."""

    config: A2CConfig

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The policy gradient, the squared error of the values, and the entropy (Mnih et al., 2016, section 4 and algorithm S3):

            loss = -E[log pi(a|s) * A] + vf_loss_coeff * E[(V(s) - value_target)^2] - entropy_coeff * E[entropy]

        We differ in taking means where the paper sums over the rows, so that neither learning rate nor clipping depends on their
        number, and in Adam for RMSProp. `kl` estimates KL(pi_old, pi): 0 where the batch is on-policy, as here.
        """
        config = self.config
        logp, entropies, values = self.evaluate(batch)
        policy_loss = -(logp * torch.tensor(batch["advantages"])).mean()
        vf_loss = (values - torch.tensor(batch["value_targets"])).square().mean()
        entropy = entropies.mean()
        loss = policy_loss + config.vf_loss_coeff * vf_loss - config.entropy_coeff * entropy
        log_ratio = logp.detach() - torch.tensor(batch["action_logp"])
        kl = (log_ratio.exp() - 1 - log_ratio).mean()
        stats = {"loss": loss, "policy_loss": policy_loss, "vf_loss": vf_loss, "entropy": entropy, "kl": kl}
        return loss, {name: value.item() for name, value in stats.items()}


def sub_plan(rollouts: LocalIterator[SampleBatch], workers: WorkerSet, config: A2CConfig) -> LocalIterator[Any]:
    """What A2C does with rollouts: one step of the optimizer a train batch, its gradient in one or in parts."""
    batches = rollouts.combine(ConcatBatches(config.train_batch_size))
    if not config.microbatch_size:
        return batches.for_each(TrainOneStep(workers))
    gradients = batches.for_each(lambda batch: batch.split(config.microbatch_size)).for_each(ComputeGradients(workers))
    return gradients.for_each(AverageGradients()).for_each(ApplyGradients(workers))


def execution_plan(workers: WorkerSet, config: A2CConfig) -> LocalIterator[dict[str, Any]]:
    """A2C: rollouts with the newest weights, one gradient step on each train batch, new weights for all."""
    train = sub_plan(ParallelRollouts(workers, mode="bulk_sync"), workers, config)
    return StandardMetricsReporting(train, workers, config)
