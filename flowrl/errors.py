"""Every exception that flowrl raises of its own accord.

    FlowError
    ├── PlanError (ValueError)           the plan is wrong: known before anything starts
    ├── ConfigError (ValueError)         a setting is wrong, or what it names: known before the first step
    ├── RunError (RuntimeError)          the run cannot go on as asked
    │   ├── DeadlockError                every branch waits for another one
    │   ├── QueueClosedError             the other end of a queue is gone
    │   ├── NotOpenError                 a handle was used while nothing runs behind it
    │   ├── ActorDiedError               an actor's process is gone
    │   └── MetricsContextError          the metrics context was asked for where no run is at work
    └── ClusterError (RuntimeError)      the cluster cannot hold the plan

A user's own exception is never wrapped in one of these: it keeps its type and gains a note.
"""

from __future__ import annotations

__all__ = [
    "ActorDiedError",
    "ClusterError",
    "ConfigError",
    "DeadlockError",
    "FlowError",
    "MetricsContextError",
    "NotOpenError",
    "PlanError",
    "QueueClosedError",
    "RunError",
]


class FlowError(Exception):
    """Base class of all errors of flowrl."""


class PlanError(FlowError, ValueError):
    """The plan is wrong in a way that can be known before it runs."""


class ConfigError(FlowError, ValueError):
    """A setting is wrong, or what it names (an env whose spaces do not fit, a run that is not there): known before the first step."""


class RunError(FlowError, RuntimeError):
    """The run cannot go on as asked."""


class DeadlockError(RunError):
    """Every branch of the running plan waits for another one; the message names the stages."""


class QueueClosedError(RunError):
    """The other end of a queue is gone: nobody will write to it, or read from it, again."""


class NotOpenError(RunError):
    """A handle was used while nothing runs behind it; the message says how to open it."""


class ActorDiedError(RunError):
    """An actor's process is gone. It is raised once; the other shards go on."""

    dead_actor: str = ""
    """Which one, for those who hear of it from several sides."""


class MetricsContextError(RunError):
    """The metrics context was asked for where no run is at work."""


class ClusterError(FlowError, RuntimeError):
    """The cluster cannot hold what the plan asks for."""
