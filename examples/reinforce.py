# reinforce.py
"""REINFORCE with a baseline: log-probabilities, times what came after them, less what a learned baseline expected.

Williams, Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning, 1992.
"""

import numpy as np
import torch

import flowrl as fl
from flowrl.ops import ConcatBatches, ParallelRollouts, StandardMetricsReporting, TrainOneStep


class ReinforceConfig(fl.AlgorithmConfig):
    """Settings of REINFORCE with a baseline."""

    num_envs: int = 4
    rollout_fragment_length: int = 250
    train_batch_size: int = 1000
    gamma: float = 0.98
    lr: float = 0.01
    baseline_coeff: float = 0.5

    def make_policy(self, observation_space, action_space, seed):
        return ReinforcePolicy(self, observation_space, action_space, seed)


class ReinforcePolicy(fl.ActorCriticPolicy):
    """The actor is the policy pi, the critic the baseline b."""

    def postprocess(self, fragment):
        """G_t = (1 - gamma) r_t + gamma G_{t+1}; the baseline stands for what comes after a cut."""
        is_last = np.append(fragment["eps_id"][1:] != fragment["eps_id"][:-1], True)
        after = np.where(is_last & ~fragment["terminateds"], self.values(fragment["new_obs"]), 0.0)
        returns = (1 - self.gamma) * fragment["rewards"] + self.gamma * after
        for t in reversed(np.flatnonzero(~is_last)):
            returns[t] += self.gamma * returns[t + 1]
        return fragment.with_columns(value_targets=returns, advantages=returns - fragment["vf_preds"])

    def loss(self, batch):
        """-E[log pi(a|s) (G - b(s))] + baseline_coeff E[(G - b(s))^2]"""
        logp, entropies, baselines = self.evaluate(batch)
        policy_loss = -(logp * torch.tensor(batch["advantages"])).mean()
        baseline_loss = (baselines - torch.tensor(batch["value_targets"])).square().mean()
        stats = {"policy_loss": policy_loss.item(), "baseline_loss": baseline_loss.item(), "entropy": entropies.mean().item()}
        return policy_loss + self.config.baseline_coeff * baseline_loss, stats


def execution_plan(workers, config):
    """Rollouts with the newest weights, a train batch, one step of the optimizer on it, new weights for all."""
    batches = ParallelRollouts(workers, mode="bulk_sync").combine(ConcatBatches(config.train_batch_size))
    return StandardMetricsReporting(batches.for_each(TrainOneStep(workers)), workers, config)
