"""The workers of an algorithm as handles: one local worker in the driver, `num_workers` remote ones. Nothing runs until they are opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from safetensors.numpy import save_file

from flowrl.batch import Array
from flowrl.config import AlgorithmConfig
from flowrl.errors import ActorDiedError, NotOpenError
from flowrl.iter.handles import ActorHandle, Handle
from flowrl.metrics.context import ACTIVE
from flowrl.rollout.worker import RolloutWorker

CLOSE_S = 2.0
"""How long remote workers have for closing their envs."""

__all__ = ["LocalWorker", "WorkerHandle", "WorkerSet"]


class WorkerHandle(ActorHandle):
    """A remote worker: `worker.method.remote(*args)`. `index` is 1, 2, ...; the local worker has 0."""

    def __init__(self, workers: WorkerSet, index: int) -> None:
        super().__init__(RolloutWorker, (workers.config, index), workers.config.resources_per_worker, owner=workers)
        self.index, self.where = index, f", worker {index}"

    def state_elsewhere(self) -> dict[str, Any]:
        return {**super().state_elsewhere(), "index": self.index}

    def __repr__(self) -> str:
        return f"WorkerHandle({self.index}, {'open' if self.is_open else 'closed'})"


class LocalWorker(Handle):
    """The worker in the driver, while its set is open: `worker.method(*args)` is a plain call.

    After a run that opened it, its last weights stay readable by `get_weights()`.
    """

    index = 0

    def __init__(self, workers: WorkerSet) -> None:
        super().__init__()
        self.owner = workers

    @property
    def live(self) -> RolloutWorker:
        """The worker itself; `NotOpenError` while the set is closed."""
        worker: RolloutWorker = self.owner.live
        return worker

    def get_weights(self) -> dict[str, Array]:
        """A copy of the weights, by name; those of the last run while the set is closed."""
        last = self.owner.last_weights
        context = ACTIVE.slot[0]
        if not self.owner.is_open and last is not None and (context is None or context.run is None):
            return {name: weight.copy() for name, weight in last.items()}
        return self.live.get_weights()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or "owner" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.live, name)


class WorkerSet(Handle):
    """All workers of a config. A handle: a run that names it opens it, or the user does.

    >>> from flowrl.algorithms.ppo import PPOConfig
    >>> workers = WorkerSet(PPOConfig(env="CartPole-v1", num_workers=2))
    >>> workers.remote_workers()
    [WorkerHandle(1, closed), WorkerHandle(2, closed)]
    >>> with workers.open(engine="serial"):
    ...     workers.foreach_worker(lambda worker: worker.index)
    [0, 1, 2]

    What a user opened keeps its weights from plan to plan; what a run opened is closed with it and starts fresh in the
    next one.
    """

    def __init__(self, config: AlgorithmConfig) -> None:
        super().__init__()
        self.config = config
        self.preferred_engine = config.engine_name
        self.last_weights: dict[str, Array] | None = None
        self._local_worker = LocalWorker(self)
        self._remote_workers = [WorkerHandle(self, index) for index in range(1, config.num_workers + 1)]

    # --- what a run asks of a handle ------------------------------------------------------------------------------

    def start_live(self, engine: Any) -> RolloutWorker:
        """The local worker and all remote ones."""
        opened: list[WorkerHandle] = []
        local = RolloutWorker(self.config, 0)
        try:
            for worker in self._remote_workers:
                worker.retain(engine)
                opened.append(worker)
        except BaseException:
            self._stop(engine, local, opened)
            raise
        return local

    def stop_live(self, engine: Any, live: RolloutWorker) -> None:
        """Keep the last weights; stop all workers."""
        try:
            self.last_weights = live.get_weights()
        finally:
            self._stop(engine, live, self._remote_workers)

    def _stop(self, engine: Any, local: RolloutWorker, remote: list[WorkerHandle]) -> None:
        """Close all envs, stop all actors; the first error of an env that did not close comes afterwards."""
        with ExitStack() as stack:
            stack.callback(local.close)
            for worker in remote:
                stack.callback(worker.release)
            calls = [worker.close.remote() for worker in remote]
            closed = engine.wait(calls, CLOSE_S, num=len(calls))[0] if calls else []  # one in a long step gets no more time
            for call in closed:
                with suppress(ActorDiedError):
                    engine.result(call)

    def demands(self) -> list[Mapping[str, Any]]:
        """The resources that the remote workers ask for."""
        return [worker.resources or {} for worker in self._remote_workers]

    def state_elsewhere(self) -> dict[str, Any]:
        return {
            **super().state_elsewhere(),
            "config": self.config,
            "last_weights": None,
            "_local_worker": self._local_worker,
            "_remote_workers": self._remote_workers,
        }

    # --- what a user asks of it -----------------------------------------------------------------------------------

    def local_worker(self) -> LocalWorker:
        """The worker in the driver: the one that learns."""
        return self._local_worker

    def remote_workers(self) -> list[WorkerHandle]:
        """The handles of the remote workers, index 1 to `num_workers`; the same objects each time."""
        return list(self._remote_workers)

    def foreach_worker(self, fn: Callable[[RolloutWorker], Any]) -> list[Any]:
        """`fn(worker)` in every worker: what the local one gave, then the remote ones."""
        local = self.live
        calls = [worker.apply.remote(fn) for worker in self._remote_workers]
        return [local.apply(fn), *(self.engine.result(call) for call in calls)]

    def foreach_policy(self, fn: Callable[[Any, str], Any]) -> list[Any]:
        """`fn(policy, policy_id)` in every worker; there is one policy, "default"."""
        return self.foreach_worker(lambda worker: fn(worker.policy, "default"))

    def foreach_trainable_policy(self, fn: Callable[[Any, str], Any]) -> list[Any]:
        """`foreach_policy`: every policy is trained."""
        return self.foreach_policy(fn)

    def sync_weights(self, to: Sequence[WorkerHandle] | None = None, num_steps_sampled: int | None = None) -> list[Any]:
        """Send the local worker's weights to these remote ones, None for all; the calls, which an actor answers before later ones.

        `num_steps_sampled`: env steps that the run has sampled so far, for schedules of exploration.
        """
        local, receivers = self.live, self._remote_workers if to is None else to
        if not receivers:
            return []
        weights, version = local.get_versioned_weights()
        shared = self.engine.share(weights) if len(receivers) > 1 else weights
        return [worker.set_weights.remote(shared, version, num_steps_sampled) for worker in receivers]

    def save(self, path: str | Path) -> None:
        """Write the local worker's weights, or those of the last run, as safetensors."""
        if not self.is_open and self.last_weights is None:
            raise NotOpenError(
                "there are no weights to save: nothing has run yet. Run the plan first, or save inside `with workers.open():`"
            )
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_file(self.local_worker().get_weights(), str(path))

    def __repr__(self) -> str:
        return f"WorkerSet({self.config.num_workers} remote, {'open' if self.is_open else 'closed'})"
