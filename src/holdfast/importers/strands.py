"""Read snapshots of Strands, as its ``SnapshotSessionManager`` writes them.

The folders around a snapshot name its session and agent:

    session/<session id>/scopes/agent/<agent id>/snapshots/
      snapshot_latest.json
      immutable_history/snapshot_<id>.json

The latest snapshot is imported together with the history beside it, one event per snapshot. A file
outside such folders is imported alone.
"""

from __future__ import annotations

import base64
import binascii
import re
from pathlib import Path
from typing import Any

from holdfast.documents.document import Document
from holdfast.documents.json_file import read_json_file
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.history import SNAPSHOT_IMPORTED, History, choose_ids, parse_time
from holdfast.importers.source import Source
from holdfast.sessions.run_status import infer_strands_status
from holdfast.snapshots.keys import AGENT, MULTI_AGENT
from holdfast.snapshots.session_state import (
    MESSAGES,
    SESSION,
    STATE,
    STATUS,
)

NAME = "strands"
SCHEMA_VERSION = "1.0"
SCOPES = {"agent": AGENT, "multiAgent": MULTI_AGENT}
NAMESPACE = "strands"
"""The namespace of Strands' own data: system prompt, states of its managers, interrupts."""
LATEST = "snapshot_latest.json"
SNAPSHOT_PATH = re.compile(
    r"/([^/]+)/scopes/(?:agent|multiAgent)/([^/]+)/snapshots/(?:immutable_history/)?[^/]+\Z"
)
BYTES_TAG = "__bytes_encoded__"


def recognises(source: Source) -> bool:
    """Return whether this is an object with the fields that every snapshot has."""
    if not source.is_json or not isinstance(source.json, dict):
        return False
    tree = source.json
    return isinstance(tree.get("schema_version"), str) and {"data", "created_at"} <= tree.keys()


def read(source: Source) -> Document:
    """Return the session, with the history beside the latest snapshot.

    Raises:
        InvalidDocumentError: A snapshot is damaged, or has an unknown schema version.

    """
    snapshots = [*read_history(source), (source.name, source.json)]
    for name, tree in snapshots:
        validate_snapshot(name, tree)
    # The latest snapshot may also be in the history.
    if len(snapshots) > 1 and snapshots[-1][1] == snapshots[-2][1]:
        del snapshots[-1]
    snapshots.sort(key=lambda each: parse_time(each[1]["created_at"], each[0]))
    scope = source.json.get("scope", AGENT)
    path = source.path.absolute().as_posix() if source.path is not None else ""
    match = SNAPSHOT_PATH.search(path)
    session_id, agent_id = match.groups() if match else (source.stem, None)
    if scope != AGENT and agent_id is None:
        orchestrator = source.json["data"].get("orchestrator_id")
        agent_id = orchestrator if isinstance(orchestrator, str) else None
    ids = choose_ids(source, agent_id, session_id)
    began = parse_time(snapshots[0][1]["created_at"], snapshots[0][0])
    history = History(*ids, began, scope=SCOPES[scope])
    for name, tree in snapshots:
        add_snapshot(history, name, tree)
    return history.document(NAME)


def read_history(source: Source) -> list[tuple[str, Any]]:
    """Return the snapshots in the history beside the latest one, by file name."""
    path = source.path
    if path is None or path.name != LATEST or not SNAPSHOT_PATH.search(path.absolute().as_posix()):
        return []
    folder = path.parent / "immutable_history"
    files: list[Path] = sorted(folder.glob("snapshot_*.json"))
    return [(str(each), read_json_file(each, limits=source.limits)) for each in files]


def validate_snapshot(name: str, tree: Any) -> None:
    """Raise InvalidDocumentError if this is not a snapshot that can be read."""
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), dict):
        raise InvalidDocumentError(f"{name} is not a Strands snapshot: data must be an object")
    if tree.get("schema_version") != SCHEMA_VERSION:
        raise InvalidDocumentError(
            f"{name} has the Strands schema version {short_repr(tree.get('schema_version'))}, "
            f"expected {SCHEMA_VERSION}; upgrade Holdfast, or write it with a Strands that uses "
            f"{SCHEMA_VERSION}"
        )
    if tree.get("scope", AGENT) not in list(SCOPES):
        raise InvalidDocumentError(
            f"{name} has an invalid Strands scope {short_repr(tree['scope'])}: must be one of "
            f"{', '.join(SCOPES)}"
        )
    messages = tree["data"].get("messages", [])
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise InvalidDocumentError(
            f"{name} is not a Strands snapshot: messages must be a list of objects"
        )


def add_snapshot(history: History, name: str, tree: dict[str, Any]) -> None:
    """Append one snapshot as an event."""
    data = {field: decode_bytes(value, name) for field, value in tree["data"].items()}
    messages = data.pop("messages", [])
    state = data.pop("state", {})
    if not isinstance(state, dict):
        raise InvalidDocumentError(f"{name} is not a Strands snapshot: state must be an object")
    own = {**data, "app_data": decode_bytes(tree.get("app_data", {}), name)}
    history.add(
        SNAPSHOT_IMPORTED,
        parse_time(tree.get("created_at"), name),
        {"format": NAME, "file": Path(name).name},
        {
            MESSAGES: history.key_messages(messages),
            STATE: state,
            NAMESPACE: {field: value for field, value in own.items() if value not in ({}, None)},
            SESSION: {STATUS: infer_strands_status(tree["data"])},
        },
        name,
    )


def decode_bytes(value: Any, name: str) -> Any:
    """Return a value with the bytes that Strands stores as base64."""
    if isinstance(value, list):
        return [decode_bytes(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get(BYTES_TAG) is True and "data" in value:
        try:
            return base64.b64decode(value["data"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidDocumentError(f"{name} has invalid base64: {error}") from error
    return {key: decode_bytes(item, name) for key, item in value.items()}
