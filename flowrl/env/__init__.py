"""Environments: many gymnasium envs of one worker behind one small interface."""

from flowrl.env.making import EnvContext, vectorize
from flowrl.env.vector import Ended, EnvVector

__all__ = ["Ended", "EnvContext", "EnvVector", "vectorize"]
