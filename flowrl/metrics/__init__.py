"""Counting and timing: one context a run, and values that merge across workers."""

from flowrl.metrics.context import MetricsContext, get_metrics
from flowrl.metrics.names import (
    NUM_EPISODES,
    NUM_ITEMS_DROPPED,
    NUM_STEPS_SAMPLED,
    NUM_STEPS_TRAINED,
    NUM_TARGET_UPDATES,
    NUM_WEIGHT_SYNCS,
    UNITS,
)
from flowrl.metrics.values import Log, Max, Mean, Mergeable, Timer, Window

__all__ = [
    "NUM_EPISODES",
    "NUM_ITEMS_DROPPED",
    "NUM_STEPS_SAMPLED",
    "NUM_STEPS_TRAINED",
    "NUM_TARGET_UPDATES",
    "NUM_WEIGHT_SYNCS",
    "UNITS",
    "Log",
    "Max",
    "Mean",
    "Mergeable",
    "MetricsContext",
    "Timer",
    "Window",
    "get_metrics",
]
