"""Convert the library's objects to JSON data."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from holdfast.documents.encode import encode_state
from holdfast.documents.json_diff import Difference, diff_states, make_state_patch
from holdfast.log.event import Event, format_time
from holdfast.server.context import AppContext
from holdfast.server.heads import SessionHead
from holdfast.server.positions import SessionAt, Target
from holdfast.snapshots.keys import location_fields
from holdfast.snapshots.records import SnapshotInfo
from holdfast.snapshots.session_state import MESSAGES, SessionState
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.stores.local import run_in_thread
from holdfast.values import to_json

MAX_COUNTED = 1000


def snapshot_to_json(info: SnapshotInfo) -> dict[str, Any]:
    """Return the metadata of a snapshot."""
    return {
        **info.to_json(),
        "parent_id": info.parent_id,
        "message_count": info.message_count,
        "seq": info.seq,
        "hash": info.hash,
        "source_environment": info.source_environment,
    }


def events_to_brief_json(events: Iterable[Event], before: Snapshot) -> list[dict[str, Any]]:
    """Return consecutive events without their values, given the state before the first of them.

    ``added`` lists the entries of ``set`` that did not exist before their event.
    """
    exists: dict[tuple[str, str], bool] = {}
    rows = []
    for event in events:
        written = [(space, key) for space, key, _ in event.changes["set"]]
        deleted = [(space, key) for space, key in event.changes["delete"]]
        added = [pair for pair in written if not exists.get(pair, before.contains(*pair))]
        exists.update(dict.fromkeys(written, True))
        exists.update(dict.fromkeys(deleted, False))
        rows.append(
            {
                "seq": event.seq,
                "id": event.id,
                "type": event.type,
                "at": format_time(event.at),
                "set": written,
                "added": added,
                "delete": deleted,
            }
        )
    return rows


async def session_to_json(
    context: AppContext, head: SessionHead, latest: SnapshotInfo | None, kept: int
) -> dict[str, Any]:
    """Return a summary of a session at its head."""
    manifest = head.manifest
    there = await context.states.load(head, Target(head.position.seq))
    state = there.state
    unfinished = await run_in_thread(ToolCallIndex().unfinished, state)
    return {
        **location_fields(head.location),
        "started_at": manifest.started_at and format_time(manifest.started_at),
        "updated_at": await context.states.read_time(head, there),
        "status": SessionState(state).status,
        "message_count": state.count(MESSAGES),
        "size_bytes": state.size_bytes,
        "first_event": manifest.log_start.seq + 1,
        "last_event": there.position.seq,
        "head": there.position.hash,
        "namespaces": state.namespaces(),
        "unfinished": [
            {"id": call.call_id, "name": call.tool, "message": call.message} for call in unfinished
        ],
        "latest_snapshot": None if latest is None else snapshot_to_json(latest),
        "snapshot_count": kept if kept <= MAX_COUNTED else None,
    }


def messages_window(
    state: Snapshot, offset: int, limit: int | None, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return a state with a window of its messages; a negative offset counts from the end.

    ``without`` has namespaces to leave out.
    """
    store = Store(max_history=0)
    store.restore(state)
    keys = store.keys(MESSAGES)
    first = max(0, len(keys) + offset) if offset < 0 else min(offset, len(keys))
    last = len(keys) if limit is None else first + limit
    tree = encode_state(state, keys[first:last], without=without)
    if first and "message_keys" not in tree:
        # Without keys, the first message would be taken for number one.
        tree["message_keys"] = keys[first:last]
    return {
        "status": tree["status"],
        "message_count": len(keys),
        "message_offset": first,
        "size_bytes": state.size_bytes,
        "state": tree,
    }


# ----------------------------------------------------------------------------------- differences


def diff_to_json(
    before: SessionAt, after: SessionAt, limit: int, *, with_patch: bool = False
) -> dict[str, Any]:
    """Return the differences between two positions, and optionally a JSON Patch."""
    found = diff_states(after.state, before.state)
    counts = dict.fromkeys(("added", "removed", "changed"), 0)
    for each in found:
        counts[each.kind] += 1
    truncated = len(found) > limit
    patch = make_state_patch(after.state, before.state) if with_patch and not truncated else None
    return {
        "from": before.to_json(),
        "to": after.to_json(),
        **counts,
        "entries": [difference_to_json(each) for each in found[:limit]],
        "truncated": truncated,
        "patch": patch,
    }


def difference_to_json(each: Difference) -> dict[str, Any]:
    """Return one differing entry."""
    tree: dict[str, Any] = {"namespace": each.namespace, "key": each.key, "kind": each.kind}
    if each.kind != "added":
        tree["before"] = to_json(each.before)
    if each.kind != "removed":
        tree["after"] = to_json(each.after)
    tree["fields"] = each.fields
    return tree
