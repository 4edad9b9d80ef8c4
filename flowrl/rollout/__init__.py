"""Rollouts: samplers, workers and sets of workers."""

from flowrl.rollout.sampler import Sampler
from flowrl.rollout.worker import RolloutWorker
from flowrl.rollout.worker_set import LocalWorker, WorkerHandle, WorkerSet

__all__ = ["LocalWorker", "RolloutWorker", "Sampler", "WorkerHandle", "WorkerSet"]
