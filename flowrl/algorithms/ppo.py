"""PPO: several epochs of minibatches over each batch, held near the policy that sampled it by a clipped ratio.

Schulman et al., Proximal Policy Optimization Algorithms, 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from flowrl.schedules import Schedule, value_at

__all__ = ["PPOConfig", "PPOPolicy", "execution_plan", "sub_plan"]

LOWEST_KL_COEFF, HIGHEST_KL_COEFF = 1e-4, 1e2


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
    clip_param_schedule: Schedule | None = None
    """`clip_param` by env steps, as `lr_schedule`."""
    vf_clip_param: float | None = None
    """How far from its old value a new value may pay; None: as far as it likes."""
    vf_loss_coeff: float = 0.5
    """Weight of the values' error in the loss."""
    entropy_coeff: float = 0.0
    """Weight of the entropy in the loss."""
    kl_coeff: float = 0.0
    """Weight of KL(old, new) in the loss at the start; it then adapts, so that the KL stays near `kl_target`. 0: no such term."""
    kl_target: float = 0.01
    """The KL that `kl_coeff` adapts to."""
    max_kl: float | None = None
    """A batch is left before the first update at which the minibatch's KL is above this; None: never."""
    vf_share_layers: bool | None = None
    """Whether actor and critic have their hidden layers in common; None: they share what reads images and nothing else, false: not even
    that."""
    initial_log_std: float = 0.0
    """Of the normal distribution over Box actions at the start, where -1 and 1 are the bounds."""
    grad_clip: float | None = 0.5
    min_steps_per_reporting: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_whole("num_sgd_iter", least=1)
        self.check_whole("sgd_minibatch_size", least=0)
        self.check_number("lambda_", 0.0, 1.0)
        self.check_is("vf_share_layers", self.vf_share_layers in (None, True, False), "true, false or None")
        self.check_number("initial_log_std", -20.0, 20.0)
        for name in ("clip_param", "vf_loss_coeff", "entropy_coeff", "kl_coeff", "kl_target"):
            self.check_number(name, 0.0)
        for name in ("vf_clip_param", "max_kl"):
            if self[name] is not None:
                self.check_number(name, 0.0)
        self.check_schedule("clip_param_schedule", 0.0)

    def make_policy(self, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> PPOPolicy:
        """An actor-critic with PPO's loss."""
        return PPOPolicy(self, observation_space, action_space, seed)

    def make_plan(self, workers: WorkerSet) -> LocalIterator[dict[str, Any]]:
        """PPO's plan."""
        return execution_plan(workers, self)


class PPOPolicy(ActorCriticPolicy):
    """An actor-critic with PPO's clipped loss."""

    config: PPOConfig

    def __init__(self, config: PPOConfig, observation_space: Any, action_space: Any, seed: np.random.SeedSequence) -> None:
        super().__init__(config, observation_space, action_space, seed)
        self.kl_coeff = config.kl_coeff

    def loss(self, batch: SampleBatch) -> tuple[torch.Tensor, dict[str, float]]:
        """The clipped surrogate, the squared error of the values, the entropy, and the KL (Schulman et al., 2017, eq. 7, 8 and 9):

            ratio = pi(a|s) / pi_old(a|s)
            loss  = -E[min(ratio * A, clip(ratio, 1 - clip_param, 1 + clip_param) * A)]
                    + vf_loss_coeff * E[(V(s) - value_target)^2] - entropy_coeff * E[entropy] + kl_coeff * KL(pi_old, pi)

        We differ in that actor and critic share no layers (unless an own model does), so that `vf_loss_coeff` only scales the critic's
        gradient (and its share of a clipped norm). Advantages are taken as they are: the plan standardises them, over the whole
        batch. KL is estimated by E[ratio - 1 - log ratio] (Schulman, Approximating KL Divergence, 2020), whose gradient is that of
        KL(pi_old, pi) in expectation. With `vf_clip_param` the error is the larger of the plain one and that of V(s) kept within
        `vf_clip_param` of its old value (as in OpenAI's baselines; RLlib's setting of that name caps the squared error instead).
        """
        config = self.config
        clip_param = value_at(config.clip_param_schedule, self.num_steps_sampled, config.clip_param)
        logp, entropies, values = self.evaluate(batch)
        advantages, old_logp = (torch.tensor(batch[name]) for name in ("advantages", "action_logp"))
        log_ratio = logp - old_logp
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - clip_param, 1 + clip_param)
        policy_loss = -torch.minimum(ratio * advantages, clipped * advantages).mean()
        vf_loss = self._squared_errors(values, batch).mean()
        entropy = entropies.mean()
        kl = (ratio - 1 - log_ratio).mean()
        loss = policy_loss + config.vf_loss_coeff * vf_loss - config.entropy_coeff * entropy
        if self.kl_coeff:
            loss = loss + self.kl_coeff * kl
        outside = (clipped != ratio).float().mean()
        stats = {"loss": loss, "policy_loss": policy_loss, "vf_loss": vf_loss, "entropy": entropy, "kl": kl, "clip_fraction": outside}
        settings = {"clip_param": clip_param, "kl_coeff": self.kl_coeff}
        return loss, {name: value.item() for name, value in stats.items()} | settings

    def learned(self, info: Mapping[str, Any]) -> None:
        """Move `kl_coeff`: doubled where the KL is above 1.5 times its target, halved below 1/1.5 of it (Schulman et al., 2017, section 4).

        The KL is the mean over the last epoch. We differ in keeping the coefficient within [1e-4, 100].
        """
        super().learned(info)
        if not self.kl_coeff:
            return
        kl, target = info["kl"].value, self.config.kl_target
        if not target / 1.5 <= kl <= target * 1.5:
            self.kl_coeff = float(np.clip(self.kl_coeff * (2.0 if kl > target else 0.5), LOWEST_KL_COEFF, HIGHEST_KL_COEFF))

    def is_enough(self, stats: Mapping[str, float]) -> bool:
        """Whether the policy has moved further than `max_kl` from the one that sampled."""
        return self.config.max_kl is not None and stats["kl"] > self.config.max_kl

    def _squared_errors(self, values: torch.Tensor, batch: SampleBatch) -> torch.Tensor:
        targets, limit = torch.tensor(batch["value_targets"]), self.config.vf_clip_param
        errors = (values - targets).square()
        if limit is None:
            return errors
        old_values = torch.tensor(batch["vf_preds"])
        return torch.maximum(errors, (old_values + (values - old_values).clamp(-limit, limit) - targets).square())


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
