"""From a stream of anything to results: when one is due, and what is in it. Reporting calls no worker."""

from __future__ import annotations

import copy
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from flowrl.batch import EpisodeStats
from flowrl.config import AlgorithmConfig
from flowrl.errors import PlanError
from flowrl.iter.building import at_least
from flowrl.iter.iterators import LocalIterator
from flowrl.iter.naming import plan_line, short
from flowrl.metrics.context import get_metrics
from flowrl.metrics.names import (
    EPISODES,
    LEARNER,
    NUM_ITEMS_DROPPED,
    NUM_STEPS_SAMPLED,
    NUM_STEPS_TRAINED,
    NUM_TARGET_UPDATES,
    NUM_WEIGHT_SYNCS,
)
from flowrl.metrics.values import Log
from flowrl.rollout.worker_set import WorkerSet

__all__ = ["CollectMetrics", "OncePerTimeInterval", "OncePerTimestepsElapsed", "ResultIsDue", "StandardMetricsReporting"]

COUNTERS = (NUM_STEPS_SAMPLED, NUM_STEPS_TRAINED, NUM_WEIGHT_SYNCS, NUM_TARGET_UPDATES, NUM_ITEMS_DROPPED)


def StandardMetricsReporting(
    train_op: LocalIterator[Any], workers: WorkerSet, config: AlgorithmConfig, selected_workers: Sequence[Any] | None = None
) -> LocalIterator[dict[str, Any]]:
    """Results, one a report: the end of most plans.

    Looks at every item of `train_op`, whatever it is, and gives a result when `config.min_steps_per_reporting` sampled steps
    and `config.min_time_s_per_reporting` seconds have passed since the last. `selected_workers`: whose episodes count; None or
    an empty list for all that sample. A result is a plain dict, the caller's to change.
    """
    if not isinstance(workers, WorkerSet):
        raise PlanError(f"StandardMetricsReporting({short(workers)}) at {plan_line()}: pass a WorkerSet")
    due = ResultIsDue(config.min_steps_per_reporting, config.min_time_s_per_reporting)
    return train_op.filter(due).for_each(CollectMetrics(workers, config.metrics_num_episodes, selected_workers))


@dataclass
class OncePerTimeInterval:
    """True once each `delay_s` seconds. For `.filter()`. On the serial engine time is counted in items, 1 ms each."""

    delay_s: float
    last_s: float = field(default=0.0, init=False, repr=False)

    def __post_init__(self) -> None:
        at_least(self.delay_s, 0, "delay_s", "OncePerTimeInterval", plan_line(), whole=False)

    def __call__(self, item: Any) -> bool:
        now = get_metrics().now_s()
        if now - self.last_s < self.delay_s:
            return False
        self.last_s = now
        return True


@dataclass
class OncePerTimestepsElapsed:
    """True once each `delay_steps` sampled env steps. For `.filter()`."""

    delay_steps: int
    last_steps: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        at_least(self.delay_steps, 0, "delay_steps", "OncePerTimestepsElapsed", plan_line())

    def __call__(self, item: Any) -> bool:
        now = int(get_metrics().counters[NUM_STEPS_SAMPLED])
        if now - self.last_steps < self.delay_steps:
            return False
        self.last_steps = now
        return True


@dataclass
class ResultIsDue:
    """True when both have passed since it was last true: so many sampled env steps, and so many seconds. For `.filter()`."""

    min_steps: int
    min_time_s: float
    last_steps: int = field(default=0, init=False, repr=False)
    last_s: float = field(default=0.0, init=False, repr=False)

    def __call__(self, item: Any) -> bool:
        metrics = get_metrics()
        steps, now = int(metrics.counters[NUM_STEPS_SAMPLED]), metrics.now_s()
        if steps - self.last_steps < self.min_steps or now - self.last_s < self.min_time_s:
            return False
        self.last_steps, self.last_s = steps, now
        return True


@dataclass
class CollectMetrics:
    """A result from what the run has counted so far. For `.for_each()`; the item itself is not looked at.

    `episode_*` are of the last `num_episodes` finished episodes of the selected workers, `episodes_*` count theirs; NaN before
    the first one. `steps_per_s` is since the result
    before, `time_s` since the run began, both by the real clock.
    """

    workers: WorkerSet
    num_episodes: int = 100
    selected_workers: Sequence[Any] | None = None
    episodes: deque[EpisodeStats] = field(default_factory=deque, init=False, repr=False)
    iteration: int = field(default=0, init=False, repr=False)
    num_seen: int = field(default=0, init=False, repr=False)
    num_finished: int = field(default=0, init=False, repr=False)
    began_s: float | None = field(default=None, init=False, repr=False)
    last_s: float = field(default=0.0, init=False, repr=False)
    last_steps: int = field(default=0, init=False, repr=False)

    def __call__(self, item: Any) -> dict[str, Any]:
        metrics = get_metrics()
        self.iteration += 1
        finished = self._finished_episodes()
        counters = {name: int(metrics.counters.get(name, 0)) for name in COUNTERS}
        time_s = time.monotonic() - metrics.run.started_s
        elapsed, steps = time_s - self.last_s, counters[NUM_STEPS_SAMPLED] - self.last_steps
        self.last_s, self.last_steps = time_s, counters[NUM_STEPS_SAMPLED]
        return {
            "training_iteration": self.iteration,
            **self._episode_stats(),
            "episodes_this_iter": len(finished),
            "episodes_total": self.num_finished,
            **counters,
            "steps_per_s": steps / elapsed if elapsed > 0 else float("nan"),
            "time_s": time_s,
            "info": {
                "counters": dict(metrics.counters),
                "timers": {name: timer.stats() for name, timer in metrics.timers.items()},
                "learner": copy.deepcopy(metrics.info.get(LEARNER, {})),
                **{name: value.value for name, value in metrics.values.items() if not isinstance(value, Log)},
            },
        }

    def _finished_episodes(self) -> list[EpisodeStats]:
        log = get_metrics().values.get(EPISODES)
        new = log.since(self.num_seen) if isinstance(log, Log) else []
        self.num_seen = int(log.value) if isinstance(log, Log) else 0
        wanted = {worker.index for worker in self.selected_workers or ()}
        finished = [episode for episode in new if not wanted or episode.worker in wanted]
        self.num_finished += len(finished)
        self.episodes.extend(finished)
        while len(self.episodes) > self.num_episodes:
            self.episodes.popleft()
        return finished

    def _episode_stats(self) -> dict[str, float]:
        returns = np.array([episode.episode_return for episode in self.episodes], np.float64)
        lengths = np.array([episode.length for episode in self.episodes], np.float64)
        if not len(returns):
            return dict.fromkeys(("episode_return_mean", "episode_return_min", "episode_return_max", "episode_len_mean"), float("nan"))
        return {
            "episode_return_mean": float(returns.mean()),
            "episode_return_min": float(returns.min()),
            "episode_return_max": float(returns.max()),
            "episode_len_mean": float(lengths.mean()),
        }
