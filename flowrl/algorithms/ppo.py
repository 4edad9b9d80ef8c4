"""PPO: several epochs of minibatches over each batch, held near the policy that sampled it by a clipped ratio.

Schulman et al., Proximal Policy Optimization Algorithms, 2017.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from flowrl.batch import SampleBatch
from flowrl.config import AlgorithmConfig
from flowrl.iter.iterators import LocalIterator
from flowrl.ops.reporting import StandardMetricsReporting
from flowrl.ops.rollout import ConcatBatches, ParallelRollouts, StandardizeFields
from flowrl.ops.train import TrainOneStep
from flowrl.policy.actor_critic import ActorCriticPolicy
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["PPOConfig", "PPOPolicy", "execution_plan", "sub_plan"]


@dataclass(frozen=True, kw_only=True, eq=False)
class PPOConfig(AlgorithmConfig):
    """Settings of PPO."""

    lambda_: float = 0.95
    """Of generalized advantage estimation."""
    num_sgd_iter: int = 10
    """Epochs over each train batch."""
    sgd_minibatch_size: int = 128
    """Rows of a minibatch; 0: the whole batch."""
    clip_param: float = 0.2
    """How far the ratio of new to old action probability may pay, either way of 1."""
    vf_loss_coeff: float = 0.5
    entropy_coeff: float = 0.0
    grad_clip: float | None = 0.5
    min_steps_per_reporting: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_whole("num_sgd_iter", least=1)
        self.check_whole("sgd_minibatch_size", least=0)
        self.check_number("lambda_", 0.0, 1.0)
        for name in ("clip_param", "vf_loss_coeff", "entropy_coeff"):
            self.check_number(name, 0.0)

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> PPOPolicy:
        """An actor-critic with PPO's loss."""
        return PPOPolicy(self, observation_space, action_space, seed)


class PPOPolicy(ActorCriticPolicy):
    """An actor-critic with PPO's clipped loss."""

    def __init__(self, config: PPOConfig, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> None:
        super().__init__(
            observation_space,
            action_space,
            hiddens=config.hiddens,
            gamma=config.gamma,
            lambda_=config.lambda_,
            weights_seed=config.seed,
            seed=seed,
        )
        self.config = config

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The clipped surrogate, the squared error of the values, and the entropy (Schulman et al., 2017, eq. 7 and 9):

            ratio = pi(a|s) / pi_old(a|s)
            loss  = -E[min(ratio * A, clip(ratio, 1 - clip_param, 1 + clip_param) * A)]
                    + vf_loss_coeff * E[(V(s) - value_target)^2] - entropy_coeff * E[entropy]

        We differ in that actor and critic share no layers, so that `vf_loss_coeff` only scales the critic's gradient (and its share
        of a clipped norm). Advantages are taken as they are: the plan standardises them, over the whole batch. `kl` estimates
        KL(pi_old, pi) by E[ratio - 1 - log ratio] (Schulman, Approximating KL Divergence, 2020).
        """
        config = self.config
        logp, entropies, values = self.evaluate(batch)
        advantages, old_logp, targets = (torch.tensor(batch[name]) for name in ("advantages", "action_logp", "value_targets"))
        log_ratio = logp - old_logp
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - config.clip_param, 1 + config.clip_param)
        policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        vf_loss = (values - targets).square().mean()
        entropy = entropies.mean()
        loss = policy_loss + config.vf_loss_coeff * vf_loss - config.entropy_coeff * entropy
        with torch.no_grad():
            kl = (ratio - 1 - log_ratio).mean()
            outside = (clipped != ratio).float().mean()
        stats = {"policy_loss": policy_loss, "vf_loss": vf_loss, "entropy": entropy, "kl": kl, "clip_fraction": outside}
        return loss, {name: value.item() for name, value in stats.items()}


def sub_plan(rollouts: LocalIterator[SampleBatch], workers: WorkerSet, config: PPOConfig) -> LocalIterator[Any]:
    """What PPO does with rollouts: (batch, statistics) of each train batch."""
    return (
        rollouts.combine(ConcatBatches(config.train_batch_size))
        .for_each(StandardizeFields(["advantages"]))
        .for_each(TrainOneStep(workers, num_sgd_iter=config.num_sgd_iter, sgd_minibatch_size=config.sgd_minibatch_size))
    )


def execution_plan(workers: WorkerSet, config: PPOConfig) -> LocalIterator[dict[str, Any]]:
    """PPO: rollouts with the newest weights, a train batch, several epochs over it, new weights for all."""
    train = sub_plan(ParallelRollouts(workers, mode="bulk_sync"), workers, config)
    return StandardMetricsReporting(train, workers, config)
