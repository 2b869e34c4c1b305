"""Read the last commit of many sessions, without loading them."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.log.event import Event
from holdfast.log.timeline import Timeline
from holdfast.snapshots.catalog.catalog import decode_events
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries
from holdfast.stores.local import gather


async def read_last_events(
    state_store: StateStore, manifests: Mapping[SnapshotLocation, SnapshotManifest]
) -> dict[SnapshotLocation, list[Event]]:
    """Return the events of the last commit of each session; none if it was pruned or is damaged.

    Raises:
        StateStoreError: The store failed.

    """

    async def find_last_segment(location: SnapshotLocation) -> str:
        timeline = Timeline(state_store, location.prefix, manifests[location].incarnation)
        return (await timeline.change_token())[0]

    keys = await gather(map(find_last_segment, manifests))
    segments = await read_entries(state_store, [key for key in keys if key])
    return {
        location: decode_events(key, segments.get(key))
        for location, key in zip(manifests, keys, strict=True)
    }
