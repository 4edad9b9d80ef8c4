"""Parallel and local iterators over actors: plans that are data until they run.

>>> from flowrl.iter import from_range
>>> plan = from_range(4, num_shards=2).for_each(lambda x: x * x).gather_sync()
>>> list(plan)
[0, 4, 1, 9]

Importing it loads neither torch nor gymnasium, nor ray until a plan runs there.
"""

from flowrl.iter.choose import current_engine, engine
from flowrl.iter.constructors import from_actors, from_items, from_iterable, from_iterators, from_range
from flowrl.iter.engine import Engine, SerialEngine
from flowrl.iter.handles import ActorHandle, Handle, create_colocated
from flowrl.iter.iterators import LocalIterator, ParallelIterator
from flowrl.iter.queues import Queue
from flowrl.iter.shard import ParallelIteratorWorker
from flowrl.iter.stream import Stream

__all__ = [
    "ActorHandle",
    "Engine",
    "Handle",
    "LocalIterator",
    "ParallelIterator",
    "ParallelIteratorWorker",
    "Queue",
    "SerialEngine",
    "Stream",
    "create_colocated",
    "current_engine",
    "engine",
    "from_actors",
    "from_items",
    "from_iterable",
    "from_iterators",
    "from_range",
]
