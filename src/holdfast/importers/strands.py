"""Snapshots of Strands, as its ``SnapshotSessionManager`` writes them.

The folders that it keeps them in say whose they are:

    session/<session id>/scopes/agent/<agent id>/snapshots/
      snapshot_latest.json
      immutable_history/snapshot_<id>.json

With the latest come those of the history beside it, an event each. A file elsewhere stands alone.
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
"""The namespace of what Strands keeps for itself: its prompt, its managers, its interrupts."""
LATEST = "snapshot_latest.json"
SNAPSHOT_PATH = re.compile(
    r"/([^/]+)/scopes/(?:agent|multiAgent)/([^/]+)/snapshots/(?:immutable_history/)?[^/]+\Z"
)
BYTES_TAG = "__bytes_encoded__"


def recognises(source: Source) -> bool:
    """Whether it is an object with the fields that every snapshot has."""
    if not source.is_json or not isinstance(source.json, dict):
        return False
    tree = source.json
    return isinstance(tree.get("schema_version"), str) and {"data", "created_at"} <= tree.keys()


def read(source: Source) -> Document:
    """The session, with the history that lies beside the latest snapshot."""
    trees = [*read_history(source), (source.name, source.json)]
    for name, tree in trees:
        validate_snapshot(name, tree)
    # Where a snapshot went into the history, the latest is a copy of it.
    if len(trees) > 1 and trees[-1][1] == trees[-2][1]:
        del trees[-1]
    trees.sort(key=lambda each: parse_time(each[1]["created_at"], each[0]))
    scope = source.json.get("scope", AGENT)
    path = source.path.absolute().as_posix() if source.path is not None else ""
    found = SNAPSHOT_PATH.search(path)
    session_id, agent_id = found.groups() if found else (source.stem, None)
    if scope != AGENT and agent_id is None:
        orchestrator = source.json["data"].get("orchestrator_id")
        agent_id = orchestrator if isinstance(orchestrator, str) else None
    ids = choose_ids(source, agent_id, session_id)
    began = parse_time(trees[0][1]["created_at"], trees[0][0])
    history = History(*ids, began, scope=SCOPES[scope])
    for name, tree in trees:
        add_snapshot(history, name, tree)
    return history.document(NAME)


def read_history(source: Source) -> list[tuple[str, Any]]:
    """The snapshots of the history beside the latest one, in order."""
    path = source.path
    if path is None or path.name != LATEST or not SNAPSHOT_PATH.search(path.absolute().as_posix()):
        return []
    folder = path.parent / "immutable_history"
    files: list[Path] = sorted(folder.glob("snapshot_*.json"))
    return [(str(each), read_json_file(each, limits=source.limits)) for each in files]


def validate_snapshot(name: str, tree: Any) -> None:
    """Refuse what is no snapshot that this version can read."""
    if not isinstance(tree, dict) or not isinstance(tree.get("data"), dict):
        raise InvalidDocumentError(f"{name} is no snapshot of Strands: it has no object data")
    if tree.get("schema_version") != SCHEMA_VERSION:
        raise InvalidDocumentError(
            f"{name} is a snapshot of Strands of the schema version "
            f"{short_repr(tree.get('schema_version'))}, and {SCHEMA_VERSION} is the one that is known: upgrade "
            "Holdfast, or write it with a Strands that has that version"
        )
    if tree.get("scope", AGENT) not in list(SCOPES):
        raise InvalidDocumentError(
            f"{name} is a snapshot of Strands of the scope {short_repr(tree['scope'])}: known are "
            f"{', '.join(SCOPES)}"
        )
    messages = tree["data"].get("messages", [])
    if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
        raise InvalidDocumentError(
            f"{name} is a snapshot of Strands whose messages are no list of objects"
        )


def add_snapshot(history: History, name: str, tree: dict[str, Any]) -> None:
    """One snapshot, as an event."""
    data = {field: decode_bytes(value, name) for field, value in tree["data"].items()}
    messages = data.pop("messages", [])
    state = data.pop("state", {})
    if not isinstance(state, dict):
        raise InvalidDocumentError(f"{name} is a snapshot of Strands whose state is no object")
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
    """A value with the bytes that JSON cannot say, which Strands writes as base64."""
    if isinstance(value, list):
        return [decode_bytes(item, name) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get(BYTES_TAG) is True and "data" in value:
        try:
            return base64.b64decode(value["data"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise InvalidDocumentError(f"{name} has bytes that are no base64: {error}") from error
    return {key: decode_bytes(item, name) for key, item in value.items()}
