"""The error hierarchy, grouped by what the caller does about an error.

    HoldfastError
    ├── NotFoundError          (also KeyError)    ask for something else, or create it
    ├── ConflictError                             another writer was first: reload, rebase or merge
    ├── UnsupportedValueError  (also TypeError)   change the value, or register its type
    ├── InvalidDocumentError   (also ValueError)  the data was never valid: get another copy
    ├── IntegrityError                            stored data is damaged: restore it
    └── StateStoreError                           the backend failed: retry, or fix it

Each message says what is wrong, where, and what to do.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable


class HoldfastError(Exception):
    """Base class of all errors that Holdfast raises deliberately."""


class NotFoundError(HoldfastError, KeyError):
    """The requested item does not exist."""

    def __str__(self) -> str:
        # KeyError returns the repr of its argument.
        return Exception.__str__(self)


class ConflictError(HoldfastError):
    """Concurrent writers changed the same thing.

    ``conflicts`` lists the ``(namespace, key)`` pairs that both sides changed, sorted; it is empty
    if the conflict is not about entries. ``key`` is the key of the ``StateStore`` whose condition
    failed, if there is one.
    """

    def __init__(
        self, message: str, conflicts: Iterable[tuple[str, str]] = (), *, key: str | None = None
    ) -> None:
        super().__init__(message)
        self.conflicts: list[tuple[str, str]] = sorted(conflicts)
        self.key = key


class UnsupportedValueError(HoldfastError, TypeError):
    """A value cannot be stored exactly.

    ``path`` is the path to the unsupported part, such as ``$.messages[3].image``.
    """

    def __init__(self, message: str, path: str = "$") -> None:
        super().__init__(message)
        self.path = path


class UnregisteredTypeError(UnsupportedValueError):
    """The data has a value of a type that is not registered: call ``register_type`` first."""


class InvalidDocumentError(HoldfastError, ValueError):
    """External data is malformed, of an unknown kind, or written by a newer version."""


class IntegrityError(HoldfastError):
    """Stored data is damaged: it does not match its digest, or is missing."""


class StateStoreError(HoldfastError):
    """The state store failed: it is unreachable, full or misconfigured, or denied access.

    ``transient``: the same call may succeed later.
    ``unknown``: a write may or may not have happened; read before you retry.
    """

    def __init__(self, message: str, *, transient: bool = False, unknown: bool = False) -> None:
        super().__init__(message)
        self.transient = transient
        self.unknown = unknown


_short = reprlib.Repr()
_short.maxstring = _short.maxother = 60


def short_repr(value: object) -> str:
    """Return a short repr for error messages, even if the value's own repr fails."""
    try:
        text = _short.repr(value)
    except Exception:  # noqa: BLE001 - the message is about something else
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else text[:60] + "…"
