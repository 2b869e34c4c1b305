"""Side effects that are done once by key: what they gave is part of the state from then on.

    once    <key>  {"result": …}, or {"error": "…"} where the result could not be kept

Going back to a snapshot keeps these entries: what was done in the world stays done.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.log.event import EventDraft, draft_event
from holdfast.sessions.working_state import WorkingState, copy_changes, copy_value
from holdfast.snapshots.session_state import ONCE
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

ONCE_DONE = "once.done"


def validate_once_key(key: object) -> str:
    """The key of a side effect, or a refusal, before anything is done."""
    if not isinstance(key, str):
        raise TypeError(f"the key of a side effect is a str, not {short_repr(key)}")
    Store(max_history=0).set(ONCE, key, None)
    return str.__str__(key)


def validate_once_function(function: object) -> None:
    """Refuse what cannot be called, before anything is done."""
    if not callable(function):
        raise TypeError(
            f"once takes a function that does the side effect, not {short_repr(function)}"
        )


@dataclass(slots=True)
class RunningEffect:
    """A side effect that is being done."""

    session: object
    key: str
    is_over: bool = False


_under_way: ContextVar[tuple[RunningEffect, ...]] = ContextVar("holdfast_once", default=())


@contextmanager
def reject_nested_once(session: object, key: str) -> Iterator[None]:
    """Refuse to do a side effect inside itself, which would wait for its own end."""
    # Tasks that a function began, and left, have what it had; and may go on long after it.
    here = tuple(each for each in _under_way.get() if not each.is_over)
    if any(each.session is session and each.key == key for each in here):
        raise RuntimeError(f"once({key!r}) was called by the function of once({key!r}) itself")
    this = RunningEffect(session, key)
    token = _under_way.set((*here, this))
    try:
        yield
    finally:
        this.is_over = True
        _under_way.reset(token)


def is_effect_done(working: WorkingState, key: str) -> bool:
    """Whether it was done, and that is committed."""
    return working.base.contains(ONCE, key)


@dataclass(slots=True)
class EffectResult:
    """What an effect of this session gave, until the state that is committed has it."""

    event: EventDraft
    is_committed: bool = False
    """Whether the log has it, and only this session's state is behind."""


def build_done_event(key: str, result: object) -> EventDraft:
    """Return the event that says that an effect was done, and what it gave."""
    try:
        changes = copy_changes({"set": [(ONCE, key, {"result": result})], "delete": []})
    except UnsupportedValueError as error:
        changes = copy_changes({"set": [(ONCE, key, {"error": str(error)})], "delete": []})
    return draft_event(ONCE_DONE, {"key": key}, changes=changes)


def read_effect_result(working: WorkingState, key: str, result: EffectResult | None) -> Any:
    """Return what an effect gave: as it is committed, or as it is kept.

    Raises:
        UnsupportedValueError: It gave what cannot be stored.

    """
    if result is None or is_effect_done(working, key):
        kept = working.base.get(ONCE, key)
    else:
        kept = copy_value(result.event.changes["set"][0][2], "$")
    if "error" in kept:
        raise UnsupportedValueError(
            f"what {short_repr(key)} gave could not be kept ({kept['error']}); it was done, and is not "
            "done again: let its function return plain data, or nothing"
        )
    return kept["result"]


def compute_restore_changes(state: Snapshot, store: Store) -> Changes:
    """What leads a store to a state, with what was done once left as it is."""
    changes = state.changes(store.snapshot())
    return {
        "set": [
            each for each in changes["set"] if each[0] != ONCE or not store.contains(ONCE, each[1])
        ],
        "delete": [pair for pair in changes["delete"] if pair[0] != ONCE],
    }
