"""The interface of snapshot storages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_snapshot import SessionSnapshot


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """A page of the snapshots of a location, in the order of saving."""

    snapshots: list[SnapshotInfo] = field(default_factory=list)
    next_token: str | None = None
    """The token to pass for the next page; None on the last."""

    @property
    def snapshot_ids(self) -> list[str]:
        """The ids of the snapshots on this page."""
        return [info.snapshot_id for info in self.snapshots]


@runtime_checkable
class SnapshotStorage(Protocol):
    """Stores durable snapshots. `SnapshotArchive` implements it over any ``StateStore``."""

    async def save_snapshot(
        self,
        *,
        location: SnapshotLocation,
        snapshot_id: str,
        is_latest: bool,
        snapshot: SessionSnapshot,
    ) -> None:
        """Save a snapshot: as the latest, which is not listed, or as an entry of the history.

        Raises:
            ConflictError: The history has another snapshot of this id.

        """

    async def load_snapshot(
        self, *, location: SnapshotLocation, snapshot_id: str | None = None
    ) -> SessionSnapshot | None:
        """Load a snapshot with its state, the latest without an id; None if there is none.

        Raises:
            IntegrityError: The snapshot is damaged.

        """

    async def list_snapshot_ids(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        start_after: str | None = None,
    ) -> list[str]:
        """Return the ids of the snapshots in the history, in the order of saving.

        With ``start_after``, the id of a snapshot, return those saved after it.

        Raises:
            NotFoundError: No snapshot has the id ``start_after``, and it is not a UUIDv7.

        """

    async def list_snapshots(
        self,
        *,
        location: SnapshotLocation,
        limit: int | None = None,
        next_token: str | None = None,
        start_after: str | None = None,
    ) -> SnapshotPage:
        """Return a page of the metadata of snapshots in the history, in the order of saving.

        ``start_after`` is the id of a snapshot: the page starts after it. ``next_token`` is that of
        the previous page, and takes precedence.

        Raises:
            NotFoundError: No snapshot has the id ``start_after``, and it is not a UUIDv7.

        """

    async def load_manifest(self, *, location: SnapshotLocation) -> SnapshotManifest:
        """Return the manifest; an empty one if nothing was saved."""

    async def save_manifest(
        self, *, location: SnapshotLocation, manifest: SnapshotManifest
    ) -> None:
        """Replace the manifest."""

    async def delete_snapshot(self, *, location: SnapshotLocation, snapshot_id: str) -> bool:
        """Delete a snapshot; return whether there was one."""

    async def delete_session(self, *, session_id: str) -> None:
        """Delete a session with all its agents."""
