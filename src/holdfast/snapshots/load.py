"""Load the state of a snapshot from the log."""

from __future__ import annotations

from holdfast.errors import IntegrityError
from holdfast.log.timeline import Timeline
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.records import SnapshotInfo
from holdfast.state.snapshot import Snapshot
from holdfast.stores.base import StateStore


async def load_state(
    state_store: StateStore, location: SnapshotLocation, info: SnapshotInfo
) -> Snapshot:
    """Return the state at the position that a snapshot's record gives.

    Raises:
        IntegrityError: The log or a keyframe is damaged, or the log has another event there.
        NotFoundError: The events that lead there were pruned.

    """
    timeline = Timeline(state_store, location.prefix, info.incarnation)
    loaded = await timeline.load(info.seq, near=info.keyframe)
    if loaded.end.hash != info.hash:
        raise IntegrityError(
            f"snapshot {info.snapshot_id} in {location.prefix} does not match event {info.seq} of "
            "the log; restore the session from a backup"
        )
    return loaded.store.snapshot()
