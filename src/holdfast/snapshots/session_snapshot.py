"""A durable snapshot as it is loaded: metadata, state and position in the log.

Its portable JSON form, with the events that led to it, is a `holdfast.documents.document.Document`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

from holdfast.errors import short_repr
from holdfast.ids import new_id
from holdfast.log.event_log import Position
from holdfast.snapshots.keys import AGENT, SnapshotLocation, validate_snapshot_id
from holdfast.snapshots.records import SnapshotInfo, validate_tags
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


def utc_now() -> dt.datetime:
    """Return the current time in UTC."""
    return dt.datetime.now(dt.UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotBase:
    """The state of a session at one position and its metadata, as a snapshot or a document."""

    snapshot: Snapshot
    """The frozen state; ``state`` is a view of it by messages, values and status."""
    agent_id: str
    session_id: str
    scope: str = AGENT
    snapshot_id: str = field(default_factory=new_id)
    parent_id: str | None = None
    created_at: dt.datetime = field(default_factory=utc_now)
    source_environment: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    event_log_count: int = 0
    """The number of events that led to it."""
    position: Position | None = None
    """Its position in the log of its session; None if it was not loaded from a store."""

    def __post_init__(self) -> None:
        SnapshotLocation(self.session_id, self.scope, self.agent_id)
        validate_snapshot_id(self.snapshot_id)
        object.__setattr__(self, "tags", validate_tags(self.tags))

    def common_fields(self) -> dict[str, Any]:
        """Return the fields that snapshots and documents have in common."""
        return {each.name: getattr(self, each.name) for each in fields(SnapshotBase)}

    @property
    def state(self) -> SessionState:
        """The state by messages, values, status and namespaces."""
        return SessionState(self.snapshot)

    @property
    def digest(self) -> str:
        """The digest of the state, computed on each access: equal exactly if the state is equal."""
        return self.snapshot.digest

    @property
    def location(self) -> SnapshotLocation:
        """The session that it belongs to."""
        return SnapshotLocation(self.session_id, self.scope, self.agent_id)

    def to_store(self) -> Store:
        """Return a live store with a copy of the state."""
        store = Store()
        store.restore(self.snapshot)
        return store


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSnapshot(SnapshotBase):
    """The metadata, state and position of a session at one commit."""

    keyframe: int = 0
    """The sequence number of the last keyframe before it, or 0."""
    unfinished: bool = False
    """Whether a tool call had no result yet."""

    @classmethod
    def from_snapshot(
        cls,
        snapshot: Snapshot,
        *,
        agent_id: str,
        session_id: str,
        scope: str = AGENT,
        parent_id: str | None = None,
        tags: Mapping[str, str] | None = None,
        source_environment: str | None = None,
    ) -> Self:
        """Make a durable snapshot of any ``Store`` snapshot, with a new id."""
        if not isinstance(snapshot, Snapshot):
            raise TypeError(
                f"expected a Snapshot as Store.snapshot() returns it, got {short_repr(snapshot)}"
            )
        return cls(
            snapshot=snapshot,
            agent_id=agent_id,
            session_id=session_id,
            scope=scope,
            parent_id=parent_id,
            tags=validate_tags(tags),
            source_environment=source_environment,
        )

    def info(self) -> SnapshotInfo:
        """Return its metadata, without the state."""
        position = self.position or Position()
        return SnapshotInfo(
            snapshot_id=self.snapshot_id,
            parent_id=self.parent_id,
            agent_id=self.agent_id,
            session_id=self.session_id,
            scope=self.scope,
            created_at=self.created_at,
            tags=self.tags,
            status=self.state.status,
            message_count=self.snapshot.count(MESSAGES),
            size_bytes=self.snapshot.size_bytes,
            seq=position.seq,
            hash=position.hash,
            keyframe=self.keyframe,
            unfinished=self.unfinished,
            source_environment=self.source_environment,
        )


_setters = [getattr(SessionSnapshot, each.name).__set__ for each in fields(SessionSnapshot)]


def build_snapshot(
    state: Snapshot,
    location: SnapshotLocation,
    snapshot_id: str,
    parent_id: str | None,
    created_at: dt.datetime,
    tags: dict[str, str],
    position: Position,
    keyframe: int,
    *,
    unfinished: bool,
) -> SessionSnapshot:
    """Make a snapshot of a location's state. Its ids and tags are known to be valid."""
    values = (
        state,
        location.scope_id,
        location.session_id,
        location.scope,
        snapshot_id,
        parent_id,
        created_at,
        None,
        tags,
        position.seq,
        position,
        keyframe,
        unfinished,
    )
    made = object.__new__(SessionSnapshot)
    for set_field, value in zip(_setters, values, strict=True):
        set_field(made, value)
    return made


def snapshot_from_info(info: SnapshotInfo, state: Snapshot) -> SessionSnapshot:
    """Make a snapshot of its metadata and the state at its position."""
    return SessionSnapshot(
        snapshot=state,
        agent_id=info.agent_id,
        session_id=info.session_id,
        scope=info.scope,
        snapshot_id=info.snapshot_id,
        parent_id=info.parent_id,
        created_at=info.created_at,
        tags=info.tags,
        event_log_count=info.event_log_count,
        position=info.position,
        keyframe=info.keyframe,
        unfinished=info.unfinished,
        source_environment=info.source_environment,
    )
