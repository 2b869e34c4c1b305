"""The interface that keeps session snapshots, whoever implements it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import SessionSnapshot


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """Some of the snapshots of a location, oldest first, and how to ask for those that follow."""

    snapshots: list[SnapshotInfo] = field(default_factory=list)
    next_token: str | None = None
    """What to give to the next call; None at the end."""

    @property
    def snapshot_ids(self) -> list[str]:
        """Return the ids of the snapshots on this page."""
        return [info.snapshot_id for info in self.snapshots]


@runtime_checkable
class SnapshotStorage(Protocol):
    """Keeps session snapshots. `SnapshotArchive` is ours, over any ``StateStore``."""

    async def save_snapshot(
        self,
        *,
        location: SnapshotLocation,
        snapshot_id: str,
        is_latest: bool,
        snapshot: SessionSnapshot,
    ) -> None:
        """Keep a snapshot: in place of the latest, which is not listed, or added to the history.

        The history is never rewritten: ``ConflictError`` where it has another one of this id.
        """

    async def load_snapshot(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SessionSnapshot | None:
        """A snapshot with its state, the latest without an id; None where there is none."""

    async def list_snapshot_ids(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> list[str]:
        """Return the ids in the history in the order of saving, whatever the ids.

        ``start_after`` is the id of a snapshot: those that were saved after it are returned.
        """

    async def list_snapshots(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        next_token: str | None = None,
        start_after: str | None = None,
    ) -> SnapshotPage:
        """Return what is known of the snapshots in the history, in the order of saving.

        States are not read. ``start_after`` is the id of a snapshot: those that were saved after it
        are listed. ``next_token`` of a page gives the next one, whatever ``start_after`` is.
        """

    async def load_manifest(self, *, location: SnapshotLocation) -> SnapshotManifest:
        """What is known of them all together; an empty one where nothing was saved."""

    async def save_manifest(
        self, *, location: SnapshotLocation, manifest: SnapshotManifest
    ) -> None:
        """Replace what is known of them all together."""

    async def delete_snapshot(self, *, location: SnapshotLocation, snapshot_id: str) -> bool:
        """Remove one; whether there was one."""

    async def delete_session(self, *, session_id: str) -> None:
        """Remove all of a session, with every agent's part of it."""
