"""Find the state that a snapshot reference names, and the changes that lead back to it."""

from __future__ import annotations

from typing import TypeAlias

from holdfast.documents.document import Document
from holdfast.errors import NotFoundError, short_repr
from holdfast.log.encoded_event import encode_changes
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import load_state_at_event
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import ONCE
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

SnapshotRef: TypeAlias = str | int | SessionSnapshot | Document | Snapshot
"""The id of a durable snapshot, the number of an event, a durable snapshot that was saved or
loaded, a document, or an in-memory snapshot.
"""


async def load_ref(
    archive: SnapshotArchive, location: SnapshotLocation, ref: SnapshotRef
) -> tuple[Snapshot, str | None]:
    """Return the state that a reference names, and the id of its durable snapshot, if it has one.

    Raises:
        NotFoundError: The session has no such snapshot or event, or it was pruned.

    """
    if isinstance(ref, Snapshot):
        return ref, None
    if isinstance(ref, SessionSnapshot | Document):
        return ref.snapshot, ref.snapshot_id
    if isinstance(ref, int):
        return (await load_state_at_event(archive, location, ref)).snapshot, None
    found = await archive.load_snapshot(location=location, snapshot_id=ref)
    if found is None:
        raise NotFoundError(
            f"session {location.session_id} of {location.scope_id} has no snapshot "
            f"{short_repr(ref)}; list its snapshots with "
            f"`holdfast state list --session {location.session_id}`"
        )
    return found.snapshot, found.snapshot_id


def compute_restore_changes(state: Snapshot, store: Store) -> Changes:
    """Return the changes that lead a store to a state, keeping the results of `Session.once`.

    A side effect that was done stays done, whatever state is restored.
    """
    changes = encode_changes(state, store.snapshot())
    return {
        "set": [
            each for each in changes["set"] if each[0] != ONCE or not store.contains(ONCE, each[1])
        ],
        "delete": [pair for pair in changes["delete"] if pair[0] != ONCE],
    }
