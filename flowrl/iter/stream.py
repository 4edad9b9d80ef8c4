"""A running plan as its user holds it: a context manager that is the stream."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from flowrl import graph
from flowrl.iter.depict import record_of
from flowrl.iter.engine import Engine
from flowrl.iter.flows import flows_of
from flowrl.iter.nodes import Node
from flowrl.iter.run import Run
from flowrl.iter.signals import END, Signal, locate
from flowrl.metrics.context import ACTIVE, MetricsContext

__all__ = ["Loops", "Stream"]

T = TypeVar("T")


class Loops:
    """Generators of one stream, one after another: the next one where an error has ended the one before.

    Chained they are an iterator that lives on after an error, at the speed of a single generator. With `owns` the stream is
    closed when nobody iterates any more.
    """

    def __init__(self, stream: Stream[Any], owns: bool = False) -> None:
        self.stream, self.owns = stream, owns

    def __iter__(self) -> Loops:
        return self

    def __next__(self) -> Iterator[Any]:
        if self.stream.is_over:
            raise StopIteration
        return self.stream.loop()

    def __del__(self) -> None:
        if self.owns:
            self.stream.close()


class Stream(Generic[T]):
    """The items of one run of a plan. `with plan.run() as stream:` opens and closes it.

    A loop over it that was left by `break` or an error goes on where it was in the next loop, or by `next(stream)`.
    After an item that raised, the next call goes on with the next item.
    """

    def __init__(self, root: Node, engine: Engine) -> None:
        self._run = Run(root, engine)
        self._opened = self._at_end = False
        self.is_over = False
        """Whether it has come to its end or was closed."""
        self.halt = self._run.told
        """What stops a loop between two items: errors that no item stands for, or, once it is over, anything."""

    @property
    def metrics(self) -> MetricsContext:
        """The run's metrics context."""
        return self._run.metrics

    @property
    def engine(self) -> Engine:
        """The engine that it runs on."""
        return self._run.engine

    def _open(self) -> None:
        if self.is_over and not self._at_end:
            raise ValueError("this stream is closed: run the plan again with plan.run()")
        if not self._opened:
            self._opened = True
            try:
                self._run.open()
            except BaseException:
                self.is_over = True  # the run has closed what it had opened
                raise

    def __enter__(self) -> Self:
        self._open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def __iter__(self) -> Iterator[T]:
        self._open()
        return chain.from_iterable(Loops(self))

    def loop(self) -> Iterator[T]:
        """A generator of the items from here on; one that raised is finished, and the next one goes on."""
        written = getattr(self._run.root, "loop", None)
        return written(self) if written is not None else self._items()

    def _items(self) -> Iterator[T]:
        run, context, pull, halt = self._run, self._run.metrics, self._run.root.pull, self.halt
        while True:
            if halt:
                if self.is_over:
                    return
                raise halt.pop(0)
            slot = ACTIVE.slot
            before = slot[0]
            slot[0] = context
            try:
                x = pull()
                if x.__class__ is Signal:
                    x = run.next_after(x)
            except Exception as error:
                raise self.failed(error)  # noqa: B904  # the same error, with a note
            finally:
                slot[0] = before
            if x is END:
                self.ended()
                return
            yield x

    def __next__(self) -> T:
        if self._at_end:
            raise StopIteration
        self._open()
        run = self._run
        if self.halt:
            raise self.halt.pop(0)
        slot = ACTIVE.slot
        before = slot[0]
        slot[0] = run.metrics
        try:
            x = run.next()
        except Exception as error:
            raise self.failed(error)  # noqa: B904  # the same error, with a note
        finally:
            slot[0] = before
        if x is END:
            self.ended()
            raise StopIteration
        return x  # type: ignore[no-any-return]

    def ended(self) -> None:
        """The plan has no more items: called by its last stage. Errors that no item stood for come first."""
        self._run.hear_the_told()
        self._at_end = True
        self.close()

    def failed(self, error: BaseException) -> BaseException:
        """A user's error on its way to the consumer, with its note: called by the stage that met it."""
        return locate(error)

    def close(self) -> None:
        """Stop all that the run opened. What was counted stays readable."""
        if not self.is_over:
            self.is_over = True
            self.halt.append(ValueError("this stream is closed"))
            if self._opened:
                self._flows = flows_of(self._run, ask_shards=False)
                self._run.close()

    def _record(self) -> Any:
        flows = flows_of(self._run) if self._opened and not self.is_over else getattr(self, "_flows", None)
        return record_of(self._run.root_node, flows, repr(self._run.engine))

    def _repr_svg_(self) -> str:
        return graph.to_svg(self._record())

    def graph(self) -> Any:
        """The plan as a `networkx.MultiDiGraph`, with what has passed each edge so far."""
        return graph.to_networkx(self._record())

    def draw(self, path: str | Path) -> Path:
        """Draw the plan with what has passed each edge so far: .svg, .png, .html, .mmd or .dot."""
        return graph.draw(self._record(), path)

    def explain(self) -> str:
        """The plan as a text tree, with items in, out and held per edge so far."""
        return graph.explain(self._record())

    def __repr__(self) -> str:
        state = "closed" if self.is_over else "open" if self._opened else "not yet open"
        return f"Stream({self._run.engine!r}, {state})"

    def __del__(self) -> None:
        if getattr(self, "_opened", False) and not self.is_over:
            message = f"{self!r} was never closed: use `with plan.run() as stream:`"
            self.close()
            warnings.warn(message, ResourceWarning, stacklevel=2)
