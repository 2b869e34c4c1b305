"""State that sessions share, changed together with the session that changes it.

An event can change the state of its session and of its user. These are two Holdfast sessions, and
two commits. The commit of the event decides:

    1. the changes are written to ``adk/pending`` of the shared state    not visible yet
    2. the event is committed to its session                             both are visible
    3. the pending changes are applied to the shared state

A reader that finds pending changes looks whether their event is committed: then it sees them,
otherwise it does not. So after a crash both changes are visible or neither. Changes that a crash
left behind are applied, or dropped if their event can no longer be committed, by the next writer.
Every step is a conditional commit, so concurrent writers of one user lose nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.adapters.adk.events import event_id
from holdfast.adapters.adk.layout import origin_location, read_creation
from holdfast.adapters.shared_session import SessionPool, session_exists
from holdfast.errors import IntegrityError, short_repr
from holdfast.ids import new_id
from holdfast.sessions.session import Session
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_state import MESSAGES, STATE, message_key
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot

PENDING = "adk/pending"
PREPARED_EVENT = "adk.state.prepared"
APPLIED_EVENT = "adk.state.applied"
BEFORE_EVENTS = -1
"""The number of a change by the creation of a session, which comes before its events."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The commit of a session that changes shared state."""

    session_id: str
    """The id of the Holdfast session."""
    number: int
    """The number of the event, or ``BEFORE_EVENTS``."""
    mark: str
    """The id of the event, or that of the creation."""


@dataclass(frozen=True, slots=True)
class PendingChange:
    """Changes to shared state whose event may not be committed yet."""

    key: str
    origin: Origin
    values: dict[str, Any]

    def to_value(self) -> dict[str, Any]:
        """Return the entry in ``adk/pending``."""
        origin = self.origin
        return {
            "session_id": origin.session_id,
            "number": origin.number,
            "mark": origin.mark,
            "values": self.values,
        }


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The keys of pending changes whose event is committed, and of those to drop."""

    committed: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()


class SharedState:
    """The state of apps and users."""

    def __init__(self, pool: SessionPool) -> None:
        self.pool = pool

    async def read(self, location: SnapshotLocation) -> dict[str, Any]:
        """Return the values at a location.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        state = await self.pool.read(location, Session.snapshot)
        values = {key: value for _, key, value in state.items(STATE)}
        pending = list_pending(state)
        if pending:
            verdicts = await self._judge(location, pending)
            for change in pending:
                if change.key in verdicts.committed:
                    values |= change.values
        return values

    async def prepare(
        self, location: SnapshotLocation, origin: Origin, values: Mapping[str, Any]
    ) -> str:
        """Write changes that become visible with the commit of their event; return their key.

        Raises:
            UnsupportedValueError: A value cannot be stored; nothing was written.
            StateStoreError: The store failed.

        """
        change = PendingChange(new_id(), origin, dict(values))
        verdicts = await self._judge_all(location)

        def record(session: Session) -> None:
            apply_changes(session, verdicts)
            changes: Changes = {"set": [(PENDING, change.key, change.to_value())], "delete": []}
            session.record(PREPARED_EVENT, {"session_id": origin.session_id}, changes=changes)

        await self.pool.update(location, record)
        return change.key

    async def apply(self, location: SnapshotLocation, key: str) -> None:
        """Apply pending changes whose event is committed, unless another writer did.

        Earlier ones that are committed are applied first, or they would replace these later.

        Raises:
            StateStoreError: The store failed.

        """
        earlier = await self._judge_all(location, before=key)
        verdicts = Verdicts(earlier.committed | {key}, earlier.dropped)
        await self.pool.update(
            location, lambda session: apply_changes(session, verdicts), must_refresh=False
        )

    async def drop(self, location: SnapshotLocation, key: str) -> None:
        """Drop pending changes whose event was not committed.

        Raises:
            StateStoreError: The store failed.

        """
        verdicts = Verdicts(dropped=frozenset([key]))
        await self.pool.update(location, lambda session: apply_changes(session, verdicts))

    async def recover(self, location: SnapshotLocation) -> None:
        """Apply or drop the changes that a crash left behind.

        Raises:
            StateStoreError: The store failed.

        """
        verdicts = await self._judge_all(location)
        if verdicts.committed or verdicts.dropped:
            await self.pool.update(location, lambda session: apply_changes(session, verdicts))

    async def _judge_all(self, location: SnapshotLocation, before: str | None = None) -> Verdicts:
        """Look up which pending changes are committed; all, or those before a key."""
        pending = await self.pool.read(location, lambda session: list_pending(session.snapshot()))
        if before is not None:
            pending = [each for each in pending if each.key < before]
        return await self._judge(location, pending) if pending else Verdicts()

    async def _judge(
        self, location: SnapshotLocation, pending: Collection[PendingChange]
    ) -> Verdicts:
        """Look up which changes belong to committed events."""
        committed: set[str] = set()
        dropped: set[str] = set()
        for change in pending:
            origin = change.origin
            where = origin_location(location, origin.session_id)
            is_committed = await self.pool.read(where, lambda session: judge(session, origin))  # noqa: B023
            if is_committed is not None:
                (committed if is_committed else dropped).add(change.key)
        return Verdicts(frozenset(committed), frozenset(dropped))


def judge(session: Session, origin: Origin) -> bool | None:
    """Tell whether a commit was made; None if it can still be made."""
    if not session_exists(session):
        return None if origin.number == BEFORE_EVENTS else False
    state = session.snapshot()
    if origin.number == BEFORE_EVENTS:
        return read_creation(state).mark == origin.mark
    message: object = state.get(MESSAGES, message_key(origin.number))
    if event_id(message) == origin.mark:
        return True
    return None if session.committer.working.next_message <= origin.number else False


def list_pending(state: Snapshot) -> list[PendingChange]:
    """Return the pending changes of shared state, the oldest first.

    Raises:
        IntegrityError: An entry is damaged.

    """
    return [decode_pending(key, value) for _, key, value in state.items(PENDING)]


def decode_pending(key: str, value: object) -> PendingChange:
    """Return the pending changes of an entry.

    Raises:
        IntegrityError: The entry is damaged.

    """
    if isinstance(value, dict):
        session_id, number, mark = (value.get(name) for name in ("session_id", "number", "mark"))
        values = value.get("values")
        if (
            isinstance(session_id, str)
            and isinstance(number, int)
            and isinstance(mark, str)
            and isinstance(values, dict)
            and all(isinstance(each, str) for each in values)
        ):
            return PendingChange(key, Origin(session_id, number, mark), values)
    raise IntegrityError(
        f"entry {key!r} in namespace {PENDING!r} is not a change of shared state: "
        f"{short_repr(value)}; delete it, or restore the session to an earlier snapshot"
    )


def apply_changes(session: Session, verdicts: Verdicts) -> None:
    """Record the values of committed changes, and remove them and the dropped ones."""
    changes: Changes = {"set": [], "delete": []}
    values: dict[str, Any] = {}
    for change in list_pending(session.snapshot()):
        if change.key in verdicts.committed:
            values |= change.values
        if change.key in verdicts.committed | verdicts.dropped:
            changes["delete"].append((PENDING, change.key))
    changes["set"] = [(STATE, key, value) for key, value in values.items()]
    if changes["delete"]:
        session.record(APPLIED_EVENT, None, changes=changes)
