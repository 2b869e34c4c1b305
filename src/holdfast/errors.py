"""The tree of errors, grouped by what the one who catches them would do.

    HoldfastError
    ├── NotFoundError          (also KeyError)    ask for something else, or create it
    ├── ConflictError                             somebody else was first: reload, merge, or decide
    ├── UnsupportedValueError  (also TypeError)   change the value, or register its type
    ├── InvalidDocumentError   (also ValueError)  the data was never a valid one: get another copy
    ├── IntegrityError                            the data was valid once and is damaged: restore it
    └── StateStoreError                           the home of the bytes failed: retry, or mend it

Every message says what happened, where, and what to do about it.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable


class HoldfastError(Exception):
    """Base of every error that Holdfast raises on purpose."""


class NotFoundError(HoldfastError, KeyError):
    """What was asked for does not exist."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which is made for keys and not for sentences.
        return Exception.__str__(self)


class ConflictError(HoldfastError):
    """Two writers changed the same thing.

    ``conflicts`` lists the ``(namespace, key)`` pairs that both sides changed, sorted; it is empty
    where a conflict has no keys to name. ``key`` is the key of a ``StateStore`` whose condition did
    not hold, where it was one.
    """

    def __init__(
        self, message: str, conflicts: Iterable[tuple[str, str]] = (), *, key: str | None = None
    ) -> None:
        super().__init__(message)
        self.conflicts: list[tuple[str, str]] = sorted(conflicts)
        self.key = key


class UnsupportedValueError(HoldfastError, TypeError):
    """A value holds something that cannot be kept exactly.

    ``path`` says where in the value, as in ``$.messages[3].image``.
    """

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class UnregisteredTypeError(UnsupportedValueError):
    """The data has a value of a type that is not registered: call ``register_type`` first."""


class InvalidDocumentError(HoldfastError, ValueError):
    """Data from outside is not what it should be: malformed, of an unknown kind, or too new."""


class IntegrityError(HoldfastError):
    """Stored data does not match its own digest: it was damaged or changed after writing."""


class StateStoreError(HoldfastError):
    """The durable store could not do what was asked: unreachable, refused, full, misconfigured.

    ``transient``: the same call may succeed later, with nothing changed by hand.
    ``unknown``: it was a write, and whether it was done cannot be told; read before trying again.
    """

    def __init__(self, message: str, *, transient: bool = False, unknown: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        self.unknown = unknown


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def short_repr(value: object) -> str:
    """A value as a message may show it: short, and whatever its own repr does."""
    try:
        text = _short.repr(value)
    except Exception:  # noqa: BLE001 - the message is about something else
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:60] + "…"
