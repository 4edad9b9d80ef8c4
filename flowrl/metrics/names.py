"""Names of the counters that flowrl's operators bump, each with its unit. Nothing else is here.

Counters of a user's own need no entry; these are the ones that reports and other operators read.
"""

from __future__ import annotations

__all__ = [
    "EPISODES",
    "LEARNER",
    "NUM_EPISODES",
    "NUM_ITEMS_DROPPED",
    "NUM_STEPS_SAMPLED",
    "NUM_STEPS_TRAINED",
    "NUM_TARGET_UPDATES",
    "NUM_WEIGHT_SYNCS",
    "UNITS",
]

NUM_STEPS_SAMPLED = "num_steps_sampled"
NUM_STEPS_TRAINED = "num_steps_trained"
NUM_EPISODES = "num_episodes"
NUM_WEIGHT_SYNCS = "num_weight_syncs"
NUM_TARGET_UPDATES = "num_target_updates"
NUM_ITEMS_DROPPED = "num_items_dropped"

EPISODES = "episodes"
"""Under this name the context's `values` hold the finished episodes that no result has told of yet."""
LEARNER = "learner"
"""Under this name the context's `info` holds the learner's last statistics."""

UNITS = {
    NUM_STEPS_SAMPLED: "env steps handed to the driver",
    NUM_STEPS_TRAINED: "rows of train batches, once whatever the number of epochs",
    NUM_EPISODES: "episodes finished",
    NUM_WEIGHT_SYNCS: "sets of weights sent to one worker",
    NUM_TARGET_UPDATES: "updates of a target network",
    NUM_ITEMS_DROPPED: "items made but not handed out when a run was left",
}
"""Counter name -> what one unit of it is."""
