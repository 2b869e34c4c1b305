"""Create a session from the state of another one."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ConflictError
from holdfast.log.encoded_event import encode_changes
from holdfast.sessions.commit import Committer
from holdfast.snapshots.blob_references import find_referenced
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import read_manifest
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


async def create_fork(
    origin: Committer, location: SnapshotLocation, state: Snapshot, data: dict[str, Any]
) -> Committer:
    """Create a session with a state, and return its committer.

    ``data`` names the origin in the ``session.forked`` event.

    Raises:
        ConflictError: The session exists.
        NotFoundError: A prune of the origin deleted a blob that the state refers to.

    """
    changes = encode_changes(state, Store(max_history=0).snapshot())
    try:
        fork = await Committer.create(origin.state_store, location)
        fork.origin_active_at = origin.origin_time()
        fork.blobs.origin = origin.blobs.reader
        fork.blobs.offered.update(origin.blobs.offered)
        event = fork.working.record_owned("session.forked", data, changes)
        event.mark_digests()
        if event.refers:
            fork.blobs.omitted = await find_omitted(origin, event.referred_digests())
        await fork.commit("raise")
        fork.blobs.origin = None  # all that the state refers to is stored in the fork
    except ConflictError as error:
        raise ConflictError(
            f"session {location.session_id} of {location.scope_id} already exists; fork to "
            "another session id or delete that session first",
            key=error.key,
        ) from error
    return fork


async def find_omitted(origin: Committer, digests: set[str]) -> set[str]:
    """Return the blobs that the origin refers to and lacks: they were omitted from an import.

    One that it does not refer to any more was deleted by a prune since the state was read.
    """
    missing = await origin.blobs.reader.find_missing(digests - origin.blobs.offered.keys())
    if not missing:
        return set()
    stored = await read_manifest(origin.state_store, origin.location)
    return await find_referenced(origin.state_store, origin.location, stored.manifest, missing)
