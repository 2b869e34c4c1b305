"""Read snapshots of Grampus, as its ``SnapshotManager`` and ``grampus state export`` write them.

A snapshot is a JSON object with the schema version "1.0": the ids, a description and tags, and the
state of the agent with its messages, status and metadata. Its event log is not in the file, only
the number of events.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.expect import expect_messages, expect_object, expect_text
from holdfast.importers.history import SNAPSHOT_IMPORTED, History, choose_ids, parse_time
from holdfast.importers.source import Source
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import SESSION, STATE, STATUS

NAME = "grampus"
NAMESPACE = "grampus"
"""The namespace of what is neither message nor value: counters, token usage, description, tags."""
SCHEMA_VERSION = "1.0"
STATUSES = {
    "idle": "pending",
    "running": "running",
    "waiting_for_human": "waiting",
    "completed": "completed",
    "failed": "failed",
}


def recognises(source: Source) -> bool:
    """Return whether this is an object with ids, a state and a schema version that is text."""
    if not source.is_json or not isinstance(source.json, dict):
        return False
    tree = source.json
    return (
        isinstance(tree.get("schema_version"), str)
        and isinstance(tree.get("state"), dict)
        and {"agent_id", "session_id"} <= tree.keys()
    )


def read(source: Source) -> Document:
    """Return the session of a snapshot.

    Raises:
        InvalidDocumentError: The snapshot is damaged, or has an unknown schema version.

    """
    name = source.name
    tree = expect_object(source.json, name)
    if tree.get("schema_version") != SCHEMA_VERSION:
        raise InvalidDocumentError(
            f"{name} has the Grampus schema version {short_repr(tree.get('schema_version'))}, "
            f"expected {SCHEMA_VERSION!r}; upgrade Holdfast, or export it with a Grampus that uses "
            f"{SCHEMA_VERSION!r}"
        )
    ids = [expect_text(tree.get(each), f"{each} of {name}") for each in ("agent_id", "session_id")]
    state = dict(expect_object(tree.get("state"), f"state of {name}"))
    messages = expect_messages(state.pop("messages", []), f"messages of {name}")
    values = expect_object(state.pop("metadata", {}), f"metadata of {name}")
    status = state.pop("status", "idle")
    if not isinstance(status, str) or status not in STATUSES:
        raise InvalidDocumentError(
            f"{name} has an invalid Grampus status {short_repr(status)}: must be one of "
            f"{', '.join(STATUSES)}"
        )
    began = state.get("created_at") or tree.get("created_at")
    at = utc_now() if began is None else parse_time(began, name)
    history = History(*choose_ids(source, ids[0], ids[1]), at)
    for number, message in enumerate(messages):
        where = f"message {number} of {name}"
        if message.get("timestamp") is not None:
            at = parse_time(message["timestamp"], where)
        history.append(message, at, where)
    if tree.get("created_at") is not None:
        at = parse_time(tree["created_at"], name)
    history.add(
        SNAPSHOT_IMPORTED,
        at,
        {"format": NAME, "file": Path(name).name},
        {
            STATE: values,
            NAMESPACE: collect_rest(tree, state),
            SESSION: {STATUS: STATUSES[status]},
        },
        name,
    )
    return history.document(NAME)


def collect_rest(tree: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """Return what has no place of its own: fields of the snapshot, and of the state."""
    rest = {name: value for name, value in tree.items() if name != "state"}
    # Grampus repeats the ids of the snapshot in its state.
    rest["state"] = {name: value for name, value in state.items() if tree.get(name) != value}
    return {name: value for name, value in rest.items() if value not in (None, "", [], {})}
