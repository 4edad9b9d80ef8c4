"""Replay: rows kept to be drawn again, uniformly or by priority, and the n-step returns that are put in them."""

from flowrl.replay.buffers import PrioritizedReplayBuffer, ReplayBuffer
from flowrl.replay.n_step import n_step

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer", "n_step"]
