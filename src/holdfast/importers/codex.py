"""Read rollouts of the Codex CLI, the transcripts in ``~/.codex/sessions``.

A rollout is a JSON Lines file. Its lines since September 2025 are ``{timestamp, type, payload}``:

    session_meta     the id, folder, version and instructions of the session; the first one counts
    turn_context     the model, folder and policies of a turn
    response_item    an item of OpenAI's Responses API that the model sees
    compacted        the conversation was replaced by a shorter one
    event_msg        what Codex showed and measured

Older files have bare items after a first line with the id. Each item becomes a message, unchanged.
The messages at the end are those that the model sees; the log has also what was compacted or
rolled back. Every other line is an event.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from typing import Any

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.codex_conversation import Conversation
from holdfast.importers.expect import expect_object, expect_objects
from holdfast.importers.history import History, choose_ids, name_unsupported, parse_time
from holdfast.importers.source import Source
from holdfast.importers.transcript import INCOMPLETE, name_event, read_first_line, read_transcript
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import SESSION, STATE, STATUS
from holdfast.values import encode

NAME = "codex"
AGENT_ID = "codex"
SESSION_META = "session_meta"
LINE_TYPES = frozenset((SESSION_META, "turn_context", "response_item", "compacted", "event_msg"))
HEADER_FIELDS = frozenset(("id", "timestamp", "instructions"))
"""What the first line of an old file has."""
IDENTITY = ("id", "timestamp")
"""Fields of the session that are not values: its id and its start."""
GHOST_SNAPSHOT = "ghost_snapshot"
"""An item of some old versions that the model does not see: a commit of the working folder."""
STATUSES = {
    "task_started": "running",
    "turn_started": "running",
    "task_complete": "completed",
    "turn_complete": "completed",
    "turn_aborted": "cancelled",
    "error": "failed",
}
ROLLED_BACK = "thread_rolled_back"
MAX_CARRIED = 1_000_000
"""How many messages compactions and rollbacks may carry over in one file."""
FILE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)


def recognises(source: Source) -> bool:
    """Return whether the first line is one of a rollout."""
    line = read_first_line(source)
    if not isinstance(line, dict):
        return False
    if "payload" in line:
        type_ = line.get("type")
        return isinstance(type_, str) and type_ in LINE_TYPES and "timestamp" in line
    return line.keys() >= HEADER_FIELDS and line.keys().isdisjoint(("type", "role", "messages"))


def read(source: Source) -> Document:
    """Return the session of a rollout. An incomplete last line becomes an event.

    Raises:
        InvalidDocumentError: A line is damaged, or is not one of a rollout.

    """
    transcript = read_transcript(source)
    if not any(is_rollout_line(line) for _, line in transcript.lines):
        raise InvalidDocumentError(
            f"{source.name} is not a Codex rollout: it has no line with a payload or a session id"
        )
    rollout = Rollout(source, transcript.lines)
    for number, line in transcript.lines:
        rollout.add_line(line, f"line {number} of {source.name}")
    if transcript.incomplete is not None:
        rollout.add_event(INCOMPLETE, transcript.incomplete, f"the last line of {source.name}")
    return rollout.history.document(NAME)


def is_rollout_line(line: dict[str, Any]) -> bool:
    """Return whether this has a payload, or the id of a session in the old form."""
    return "payload" in line or line.keys() >= HEADER_FIELDS


class Rollout:
    """Turns the lines of a rollout into the log of a session."""

    def __init__(self, source: Source, lines: list[tuple[int, dict[str, Any]]]) -> None:
        self._meta: dict[str, Any] | None = None
        self._turn: dict[str, Any] = {}
        self._values: dict[str, bytes] = {}
        """The values of the session, encoded."""
        self._status: str | None = None
        self._conversation = Conversation()
        self._at = find_start(lines, source)
        found = FILE_ID.search(source.stem)
        session_id = find_session_id(lines, source) or (found[0] if found else source.stem)
        self.history = History(*choose_ids(source, AGENT_ID, session_id), self._at)

    def add_line(self, line: dict[str, Any], where: str) -> None:
        """Add one line."""
        if line.get("timestamp") is not None:
            self._at = parse_time(line["timestamp"], where)
        if "payload" in line:
            self._add_payload(line.get("type"), line["payload"], where)
        elif line.keys() >= HEADER_FIELDS and "type" not in line:
            self._add_meta(line, where)
        elif "type" in line or "role" in line:
            self._add_item(line, where)
        else:
            self.add_event(name_event(NAME, line.get("record_type"), "line"), line, where)

    def _add_payload(self, type_: object, payload: Any, where: str) -> None:
        if not isinstance(type_, str):
            raise InvalidDocumentError(f"type of {where} must be a str, got {short_repr(type_)}")
        if type_ in LINE_TYPES:
            expect_object(payload, f"payload of {where}")
        match type_:
            case "session_meta":
                self._add_meta(payload, where)
            case "turn_context":
                self._add_turn(payload, where)
            case "response_item":
                self._add_item(payload, where)
            case "compacted":
                self._compact(payload, where)
            case "event_msg":
                self._add_message_event(payload, where)
            case _:
                self.add_event(name_event(NAME, type_, "line"), payload, where)

    def _add_meta(self, meta: dict[str, Any], where: str) -> None:
        if self._meta is not None:
            # A fork begins with the lines of its parent.
            self.add_event("codex.session_meta", meta, where)
            return
        self._meta = {
            name: value
            for name, value in meta.items()
            if name not in IDENTITY and value is not None
        }
        data = {name: meta[name] for name in IDENTITY if name in meta}
        self._set_values("codex.session_meta", self._meta.keys() - self._turn.keys(), data, where)

    def _add_turn(self, turn: dict[str, Any], where: str) -> None:
        turn = {name: value for name, value in turn.items() if value is not None}
        names = self._turn.keys() | turn.keys()
        self._turn = turn
        self._set_values("codex.turn_context", names, None, where)

    def _set_values(self, type_: str, names: Iterable[str], data: Any, where: str) -> None:
        """Set the values of these names to those of the turn or, if it has none, the session."""
        sets, deletes = [], []
        for name in names:
            value = self._turn.get(name, (self._meta or {}).get(name))
            if value is None:
                deletes.append((STATE, name))
                del self._values[name]
                continue
            with name_unsupported(where):
                encoded = encode(value)
            if self._values.get(name) != encoded:
                self._values[name] = encoded
                sets.append((STATE, name, value))
        self.history.record(type_, self._at, data, where, set_=sets, delete=deletes)

    def _add_item(self, item: dict[str, Any], where: str) -> None:
        if item.get("type") == GHOST_SNAPSHOT:
            self.add_event(f"{NAME}.{GHOST_SNAPSHOT}", item, where)
            return
        sets = self._conversation.append(item)
        self.history.record("message.appended", self._at, None, where, set_=sets)

    def _compact(self, payload: dict[str, Any], where: str) -> None:
        replacement, summary = payload.get("replacement_history"), payload.get("message")
        if replacement is not None:
            expect_objects(replacement, f"replacement_history of {where}")
        if replacement is None and not isinstance(summary, str):
            raise InvalidDocumentError(
                f"message of {where} must be a str, got {short_repr(summary)}"
            )
        sets, deletes = self._conversation.compact(replacement, summary or "")
        self._check_carried(where)
        data = {name: value for name, value in payload.items() if name != "replacement_history"}
        self.history.record("codex.compacted", self._at, data, where, set_=sets, delete=deletes)

    def _add_message_event(self, payload: dict[str, Any], where: str) -> None:
        type_ = payload.get("type")
        if type_ == ROLLED_BACK:
            self._roll_back(payload, where)
            return
        status = STATUSES.get(type_) if isinstance(type_, str) else None
        if status == "completed" and self._status == "failed":
            status = None  # a turn completes after its error
        sets = []
        if status is not None:
            self._status = status
            sets = [(SESSION, STATUS, status)]
        event_type = name_event(NAME, type_, "event_msg")
        self.history.record(event_type, self._at, payload, where, set_=sets)

    def _roll_back(self, payload: dict[str, Any], where: str) -> None:
        turns = payload.get("num_turns")
        if type(turns) is not int or turns < 0:
            raise InvalidDocumentError(
                f"num_turns of {where} must be a non-negative int, got {short_repr(turns)}"
            )
        sets, deletes = self._conversation.roll_back(turns)
        self._check_carried(where)
        type_ = f"{NAME}.{ROLLED_BACK}"
        self.history.record(type_, self._at, payload, where, set_=sets, delete=deletes)

    def _check_carried(self, where: str) -> None:
        if self._conversation.carried > MAX_CARRIED:
            raise InvalidDocumentError(
                f"compactions and rollbacks up to {where} carry over more than {MAX_CARRIED} "
                "messages; remove some of them"
            )

    def add_event(self, type_: str, data: Any, where: str) -> None:
        """Add an event without changes."""
        self.history.record(type_, self._at, data, where)


def find_meta(lines: list[tuple[int, dict[str, Any]]]) -> tuple[int, dict[str, Any]] | None:
    """Return the first description of the session, with the number of its line."""
    for number, line in lines:
        if line.get("type") == SESSION_META and isinstance(line.get("payload"), dict):
            return number, line["payload"]
        if line.keys() >= HEADER_FIELDS and line.keys().isdisjoint(("type", "payload")):
            return number, line
    return None


def find_session_id(lines: list[tuple[int, dict[str, Any]]], source: Source) -> str | None:
    """Return the id of the session, if the rollout has one."""
    found = find_meta(lines)
    id_ = found[1].get("id") if found else None
    if found and id_ is not None and not isinstance(id_, str):
        raise InvalidDocumentError(
            f"session id in line {found[0]} of {source.name} must be a str, got {short_repr(id_)}"
        )
    return id_


def find_start(lines: list[tuple[int, dict[str, Any]]], source: Source) -> dt.datetime:
    """Return when the session began."""
    found = find_meta(lines)
    if found and found[1].get("timestamp") is not None:
        return parse_time(found[1]["timestamp"], f"line {found[0]} of {source.name}")
    for number, line in lines:
        if line.get("timestamp") is not None:
            return parse_time(line["timestamp"], f"line {number} of {source.name}")
    return utc_now()
