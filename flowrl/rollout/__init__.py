"""Rollouts: samplers, workers and sets of workers."""

from flowrl.rollout.sampler import Sampler
from flowrl.rollout.trained import TrainedPolicy, load_policy
from flowrl.rollout.worker import RolloutWorker
from flowrl.rollout.worker_set import LocalWorker, WorkerHandle, WorkerSet

__all__ = ["LocalWorker", "RolloutWorker", "Sampler", "TrainedPolicy", "WorkerHandle", "WorkerSet", "load_policy"]
