"""flowrl: reinforcement learning written as dataflow.

A plan is a graph of frozen nodes; a run turns each node into a stream of items; an engine only starts actors, calls them
and waits. Names are loaded when they are first used, so that `flowrl.iter` alone stays light.

>>> import flowrl as fl
>>> config = fl.PPOConfig(env="CartPole-v1", num_workers=2)
>>> workers = fl.WorkerSet(config)  # a handle: nothing has started
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from flowrl.algorithms.a2c import A2CConfig
    from flowrl.algorithms.a3c import A3CConfig
    from flowrl.algorithms.apex import ApexConfig
    from flowrl.algorithms.dqn import DQNConfig
    from flowrl.algorithms.ppo import PPOConfig
    from flowrl.batch import SampleBatch
    from flowrl.config import AlgorithmConfig
    from flowrl.errors import (
        ActorDiedError,
        ClusterError,
        ConfigError,
        DeadlockError,
        FlowError,
        MetricsContextError,
        NotOpenError,
        PlanError,
        QueueClosedError,
        RunError,
    )
    from flowrl.iter.choose import current_engine, engine
    from flowrl.iter.constructors import from_actors, from_items, from_iterable, from_iterators, from_range
    from flowrl.iter.engine import SerialEngine
    from flowrl.iter.handles import create_colocated
    from flowrl.iter.iterators import LocalIterator, ParallelIterator
    from flowrl.iter.queues import Queue
    from flowrl.iter.ray_engine import RayEngine
    from flowrl.iter.shard import ParallelIteratorWorker
    from flowrl.learner.learner_thread import LearnerThread
    from flowrl.policy.actor_critic import ActorCriticPolicy
    from flowrl.policy.policy import Policy
    from flowrl.replay.actor import ReplayActor
    from flowrl.replay.local_buffer import LocalReplayBuffer
    from flowrl.rollout.trained import TrainedPolicy, load_policy
    from flowrl.rollout.worker import RolloutWorker
    from flowrl.rollout.worker_set import WorkerSet
    from flowrl.trainer import Trainer

_MODULE_OF = {
    "A2CConfig": "algorithms.a2c",
    "A3CConfig": "algorithms.a3c",
    "ActorCriticPolicy": "policy.actor_critic",
    "ActorDiedError": "errors",
    "AlgorithmConfig": "config",
    "ApexConfig": "algorithms.apex",
    "ClusterError": "errors",
    "ConfigError": "errors",
    "DQNConfig": "algorithms.dqn",
    "DeadlockError": "errors",
    "FlowError": "errors",
    "LearnerThread": "learner.learner_thread",
    "LocalIterator": "iter.iterators",
    "LocalReplayBuffer": "replay.local_buffer",
    "MetricsContextError": "errors",
    "NotOpenError": "errors",
    "PPOConfig": "algorithms.ppo",
    "ParallelIterator": "iter.iterators",
    "ParallelIteratorWorker": "iter.shard",
    "PlanError": "errors",
    "Policy": "policy.policy",
    "Queue": "iter.queues",
    "QueueClosedError": "errors",
    "RayEngine": "iter.ray_engine",
    "ReplayActor": "replay.actor",
    "RolloutWorker": "rollout.worker",
    "RunError": "errors",
    "SampleBatch": "batch",
    "SerialEngine": "iter.engine",
    "TrainedPolicy": "rollout.trained",
    "Trainer": "trainer",
    "WorkerSet": "rollout.worker_set",
    "create_colocated": "iter.handles",
    "current_engine": "iter.choose",
    "engine": "iter.choose",
    "from_actors": "iter.constructors",
    "from_items": "iter.constructors",
    "from_iterable": "iter.constructors",
    "from_iterators": "iter.constructors",
    "from_range": "iter.constructors",
    "load_policy": "rollout.trained",
}

__all__ = [
    "A2CConfig",
    "A3CConfig",
    "ActorCriticPolicy",
    "ActorDiedError",
    "AlgorithmConfig",
    "ApexConfig",
    "ClusterError",
    "ConfigError",
    "DQNConfig",
    "DeadlockError",
    "FlowError",
    "LearnerThread",
    "LocalIterator",
    "LocalReplayBuffer",
    "MetricsContextError",
    "NotOpenError",
    "PPOConfig",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "PlanError",
    "Policy",
    "Queue",
    "QueueClosedError",
    "RayEngine",
    "ReplayActor",
    "RolloutWorker",
    "RunError",
    "SampleBatch",
    "SerialEngine",
    "TrainedPolicy",
    "Trainer",
    "WorkerSet",
    "__version__",
    "create_colocated",
    "current_engine",
    "engine",
    "from_actors",
    "from_items",
    "from_iterable",
    "from_iterators",
    "from_range",
    "load_policy",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
