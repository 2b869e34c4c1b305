"""Create a session from the state of another one."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ConflictError
from holdfast.log.encoded_event import encode_changes
from holdfast.sessions.commit import Committer
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values.references import find_digests


async def create_fork(
    origin: Committer, location: SnapshotLocation, state: Snapshot, data: dict[str, Any]
) -> Committer:
    """Create a session with a state, and return its committer.

    ``data`` names the origin in the ``session.forked`` event.

    Raises:
        ConflictError: The session exists.

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
            # The origin may lack blobs that were omitted when it was imported.
            digests = {each for value in event.encoded_values() for each in find_digests(value)}
            fork.blobs.omitted = await origin.blobs.reader.find_missing(
                digests - origin.blobs.offered.keys()
            )
        await fork.commit("raise")
    except ConflictError as error:
        raise ConflictError(
            f"session {location.session_id} of {location.scope_id} already exists; fork to "
            "another session id or delete that session first",
            key=error.key,
        ) from error
    return fork
