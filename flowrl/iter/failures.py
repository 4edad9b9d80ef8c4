"""How a user's exception travels from a shard to the driver: with its type, its arguments, its notes and its traceback as text.

An exception whose constructor cannot be called again (other arguments than it stores), or that holds what cannot be
pickled, is rebuilt from its parts and still keeps its type.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flowrl.errors import ActorDiedError
from flowrl.iter.naming import short
from flowrl.iter.signals import with_note

__all__ = ["Failure", "RemoteTraceback"]

Dumps = Callable[[Any], bytes]
Loads = Callable[[bytes], Any]


class RemoteTraceback(Exception):
    """The traceback of an error, as text, where it was raised; the `__cause__` of the error in the driver."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


@dataclass(slots=True)
class Failure:
    """An exception on its way: whole, or in parts."""

    whole: bytes | None
    parts: tuple[bytes, tuple[bytes, ...], dict[str, bytes]] | None
    notes: tuple[str, ...]
    text: str
    dead_actor: str = ""
    """The actor whose death this tells of: raised once, however many partitions tell of it."""

    @classmethod
    def of(cls, error: BaseException, dumps: Dumps, loads: Loads) -> Failure:
        """`error`, packed."""
        text = "".join(traceback.format_exception(error))
        notes = tuple(getattr(error, "__notes__", ()))
        dead = error.dead_actor if isinstance(error, ActorDiedError) else ""
        try:
            whole = dumps(error)
            again = loads(whole)
            same = type(again) is type(error) and str(again) == str(error) and len(again.args) == len(error.args)
            if same and not _slot_values(error):
                return cls(whole, None, notes, text, dead)
        except Exception:
            pass  # it does not come back as it was: send its parts
        state = {**_slot_values(error), **error.__dict__}
        parts = (
            _dumps_class(type(error), dumps),
            tuple(_dumps_or_text(arg, dumps, loads) for arg in error.args),
            {name: _dumps_or_text(value, dumps, loads) for name, value in state.items()},
        )
        return cls(None, parts, notes, text, dead)

    def error(self, loads: Loads) -> BaseException:
        """The exception, to be raised here."""
        error = loads(self.whole) if self.whole is not None else self._rebuilt(loads)
        for note in self.notes:
            with_note(error, note)
        BaseException.__setattr__(error, "__cause__", RemoteTraceback(self.text))
        return error

    def _rebuilt(self, loads: Loads) -> BaseException:
        assert self.parts is not None
        packed_class, packed_args, packed_state = self.parts
        kind = loads(packed_class)
        args = tuple(loads(arg) for arg in packed_args)
        try:
            error = kind.__new__(kind, *args)
        except Exception:  # a constructor that wants something else
            error = BaseException.__new__(kind, *args)
        for name, value in {"args": args, **{name: loads(value) for name, value in packed_state.items()}}.items():
            BaseException.__setattr__(error, name, value)
        return error  # type: ignore[no-any-return]


def _slot_values(error: BaseException) -> dict[str, Any]:
    names = [name for kind in type(error).__mro__ for name in getattr(kind, "__slots__", ()) if not name.startswith("__")]
    return {name: getattr(error, name) for name in names if hasattr(error, name)}


def _dumps_class(kind: type[BaseException], dumps: Dumps) -> bytes:
    for base in kind.__mro__:
        try:
            return dumps(base)
        except Exception:
            continue
    return dumps(Exception)


def _dumps_or_text(value: Any, dumps: Dumps, loads: Loads) -> bytes:
    try:
        packed = dumps(value)
        loads(packed)
        return packed
    except Exception:
        return dumps(short(value))
