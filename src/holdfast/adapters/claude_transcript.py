"""Where a transcript of Claude Code or the Claude Agent SDK is stored in the state of its session.

messages               entries of the types user and assistant, unchanged
state                  the last cwd, git_branch, custom_title, ai_title, tag and permission_mode
claude_agent           transcript: the time of the last append, and the SDK's summary;
                       last_entry: the key of the last entry that is not a message
claude_agent/entries   all other entries: titles, summaries, system messages, mode markers
claude_agent/opaque    entries that hold a value Holdfast cannot store, as JSON text
claude_agent/uuids     the key of each entry that has a uuid, so that none is added twice

Keys of messages are numbers. The key of another entry is the number of the message that follows it,
and a count: so all entries together have one order. This module does not need the SDK.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias
from uuid import NAMESPACE_OID, uuid5

from holdfast.documents.document import Document
from holdfast.errors import IntegrityError, UnsupportedValueError, short_repr
from holdfast.sessions.run_status import CANCELLED, FAILED, RUNNING, infer_status
from holdfast.sessions.working_state import LAST_MESSAGE
from holdfast.snapshots.session_state import MESSAGES, STATE, message_key, message_number
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

TranscriptEntry: TypeAlias = dict[str, Any]
"""One line of a transcript."""
RecordFunction: TypeAlias = Callable[[str, Any, Changes], object]
"""Records an event with its type, data and changes, and applies it to the state."""

SPACE = "claude_agent"
ENTRIES = "claude_agent/entries"
OPAQUE = "claude_agent/opaque"
UUIDS = "claude_agent/uuids"
HEAD = "transcript"
LAST_ENTRY = "last_entry"

MESSAGE_EVENT = "message.appended"
ENTRY_EVENT = "claude_agent.entry"
APPENDED_EVENT = "claude_agent.appended"

METADATA = "agent_metadata"
"""The type of the SDK's entries with the metadata of a sub-agent."""
MESSAGE_TYPES = ("user", "assistant")
VALUE_FIELDS = {
    "cwd": "cwd",
    "gitBranch": "git_branch",
    "customTitle": "custom_title",
    "aiTitle": "ai_title",
    "tag": "tag",
    "permissionMode": "permission_mode",
}
"""Fields of entries whose last text is a value of the session, and its name."""
INTERRUPTED = "[Request interrupted by user"
"""How the message begins that Claude Code adds when a person stops a run."""
CONTINUING = ("tool_use", "pause_turn")
"""Reasons to stop after which the model is called again."""
PLAIN_TEXT = re.compile(r"[ -~]{1,128}")
ENTRY_KEY = re.compile(r"([0-9]{12})\.([0-9]{12})")


# ---------------------------------------------------------------------------------------- writing


class TranscriptWriter:
    """Records entries at the end of a transcript.

    ``state`` is the live state of the session, which ``record`` changes.
    """

    def __init__(self, state: Store, record: RecordFunction) -> None:
        self._state = state
        self._record = record
        self._next_message, self._next_entry = find_next_numbers(state)
        self._values: dict[str, str] = {}
        self.added: list[TranscriptEntry] = []
        """The entries that were recorded."""

    def add(self, entry: TranscriptEntry, next_message: int = 0) -> bool:
        """Record an entry unless the transcript has one of its uuid; return whether it was.

        ``next_message`` is the number of the next message, if the session had messages before.

        Raises:
            TypeError: The entry is not a dict.
            UnsupportedValueError: The entry is not JSON.

        """
        if has_entry(self._state, entry):
            return False
        # A removed message leaves a gap, so that what follows stays behind the other entries.
        number = max(self._next_message, next_message)
        if number > LAST_MESSAGE:
            raise ValueError(f"transcript has no key left after message {LAST_MESSAGE}")
        try:
            if is_message_entry(entry):
                self._record_at(MESSAGES, message_key(number), entry, entry)
                self._next_message = number + 1
            else:
                self._record_at(ENTRIES, self._entry_key(number), entry, entry)
        except UnsupportedValueError:
            self._record_at(OPAQUE, self._entry_key(number), encode_opaque(entry), entry)
        for field, name in VALUE_FIELDS.items():
            value = entry.get(field)
            if isinstance(value, str) and is_storable(value):
                self._values[name] = value
        self.added.append(entry)
        return True

    def finish(self, mtime: int, summary: dict[str, Any] | None) -> None:
        """Record the time of the append in milliseconds, and the SDK's summary."""
        head: dict[str, Any] = {"mtime": mtime}
        if summary is not None:
            head["summary"] = json.dumps(summary)
        sets: list[tuple[str, str, Any]] = [(SPACE, HEAD, head)]
        for name, value in self._values.items():
            if self._state.get(STATE, name) != value:
                sets.append((STATE, name, value))
        self._record(APPENDED_EVENT, {"entries": len(self.added)}, {"set": sets, "delete": []})

    def _record_at(self, space: str, key: str, value: Any, entry: TranscriptEntry) -> None:
        sets = [(space, key, value)]
        uuid = get_uuid_key(entry)
        if uuid is not None:
            sets.append((UUIDS, uuid, key))
        type_, data = MESSAGE_EVENT, None
        if space != MESSAGES:
            type_, data = ENTRY_EVENT, {"type": describe_type(entry)}
            sets.append((SPACE, LAST_ENTRY, key))
            self._next_entry += 1
        self._record(type_, data, {"set": sets, "delete": []})

    def _entry_key(self, number: int) -> str:
        """Return the key of the next entry that is not a message."""
        return f"{message_key(number)}.{self._next_entry:012}"


def find_next_numbers(state: Store) -> tuple[int, int]:
    """Return the lowest number for the next message, and the count of the next other entry.

    Raises:
        IntegrityError: The key of the last entry is damaged.

    """
    last: object = state.get(SPACE, LAST_ENTRY)
    if last is None:
        return 0, 0
    found = ENTRY_KEY.fullmatch(last) if isinstance(last, str) else None
    if found is None:
        raise damaged_entry_error(LAST_ENTRY, f"got {short_repr(last)} instead of a key")
    return int(found[1]), int(found[2]) + 1


def is_message_entry(entry: TranscriptEntry) -> bool:
    """Return whether an entry is a message of the conversation."""
    return entry.get("type") in MESSAGE_TYPES and isinstance(entry.get("message"), dict)


def has_entry(state: Store, entry: TranscriptEntry) -> bool:
    """Return whether a transcript has the entry of the same uuid.

    Raises:
        TypeError: The entry is not a dict.

    """
    if not isinstance(entry, dict):
        raise TypeError(f"transcript entry must be a dict, got {short_repr(entry)}")
    uuid = get_uuid_key(entry)
    key = None if uuid is None else state.get(UUIDS, uuid)
    if not isinstance(key, str):
        return False
    # It may have been removed from the session.
    return any(state.contains(space, key) for space in find_spaces(key))


def find_spaces(key: str) -> tuple[str, ...]:
    """Return the namespaces that can have the entry of a key."""
    return (MESSAGES,) if message_number(key) is not None else (ENTRIES, OPAQUE)


def get_uuid_key(entry: TranscriptEntry) -> str | None:
    """Return the key of an entry's uuid, or None if it has none."""
    uuid = entry.get("uuid")
    if not isinstance(uuid, str) or not uuid:
        return None
    if PLAIN_TEXT.fullmatch(uuid):
        return uuid
    return "sha256:" + hashlib.sha256(json.dumps(uuid).encode()).hexdigest()


def describe_type(entry: TranscriptEntry) -> str | None:
    """Return the type of an entry, if it is a plain text."""
    type_ = entry.get("type")
    return type_ if isinstance(type_, str) and PLAIN_TEXT.fullmatch(type_) else None


def encode_opaque(entry: TranscriptEntry) -> str:
    """Return an entry as JSON text.

    Raises:
        UnsupportedValueError: It is not JSON.

    """
    try:
        return json.dumps(entry)
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsupportedValueError(f"transcript entry is not JSON: {error!s:.200}") from error


def is_storable(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def infer_transcript_status(entries: Iterable[TranscriptEntry]) -> str | None:
    """Return the status of a run that just added these entries, or None if no message is new."""
    last = next((each for each in reversed(list(entries)) if is_message_entry(each)), None)
    if last is None:
        return None
    message = last["message"]
    if last.get("isApiErrorMessage") is True:
        return FAILED
    if last["type"] == "user":
        texts = [message.get("content")]
        if isinstance(texts[0], list):
            texts = [each.get("text") for each in texts[0] if isinstance(each, dict)]
        if any(isinstance(text, str) and text.startswith(INTERRUPTED) for text in texts):
            return CANCELLED
        return RUNNING
    if message.get("stop_reason") in CONTINUING:
        return RUNNING
    return infer_status({**message, "role": "assistant"})


# ---------------------------------------------------------------------------------------- reading


def read_head(state: Store | Snapshot) -> dict[str, Any] | None:
    """Return the time and the summary of a transcript, or None if it has none.

    The summary is JSON text, because texts in it may have lone surrogates.

    Raises:
        IntegrityError: They are damaged.

    """
    head: object = state.get(SPACE, HEAD)
    if head is None:
        return None
    if (
        isinstance(head, dict)
        and is_time(head.get("mtime"))
        and isinstance(head.get("summary", ""), str)
    ):
        return head
    raise IntegrityError(
        f"entry {HEAD!r} in namespace {SPACE!r} does not describe a transcript: "
        f"{short_repr(head)}; restore the session to an earlier snapshot, or from a backup"
    )


def is_time(value: object) -> bool:
    """Return whether a value is a time in milliseconds."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_empty(state: Snapshot) -> bool:
    """Return whether a state has no entries."""
    return not any(state.count(space) for space in (MESSAGES, ENTRIES, OPAQUE))


def read_transcript(state: Snapshot) -> list[TranscriptEntry]:
    """Return the entries of a transcript in order.

    Raises:
        IntegrityError: An entry is damaged.

    """
    rows: list[tuple[int, int, int, TranscriptEntry]] = []
    for _, key, value in state.items(MESSAGES):
        number = message_number(key)
        # Keys of other kinds are those of messages that were edited by hand.
        rows.append((LAST_MESSAGE if number is None else number, 1, 0, require_dict(key, value)))
    for space in (ENTRIES, OPAQUE):
        for _, key, value in state.items(space):
            found = ENTRY_KEY.fullmatch(key)
            if found is None:
                raise damaged_entry_error(key, "its key has no number")
            entry = decode_opaque(key, value) if space == OPAQUE else require_dict(key, value)
            rows.append((int(found[1]), 0, int(found[2]), entry))
    rows.sort(key=lambda row: row[:3])
    return [row[3] for row in rows]


def decode_opaque(key: str, value: object) -> TranscriptEntry:
    """Return an entry that is stored as JSON text.

    Raises:
        IntegrityError: It is damaged.

    """
    try:
        return require_dict(key, json.loads(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError) as error:
        raise damaged_entry_error(key, str(error)) from error


def require_dict(key: str, value: object) -> TranscriptEntry:
    """Return an entry.

    Raises:
        IntegrityError: It is not a dict.

    """
    if not isinstance(value, dict):
        raise damaged_entry_error(key, f"got {short_repr(value)} instead of a dict")
    return value


def damaged_entry_error(key: str, problem: str) -> IntegrityError:
    """Return the error for a damaged entry."""
    return IntegrityError(
        f"transcript entry {short_repr(key)} is damaged: {problem:.200}; restore the session to an "
        "earlier snapshot, or from a backup"
    )


# -------------------------------------------------------------------------------------- documents


def to_transcript(document: Document) -> list[TranscriptEntry]:
    """Return the entries of a session's document, as Claude Code stores them, one per line.

    Messages of other tools, with a role and no type, become entries of the type of their role, with
    the fields without which Claude Code does not find them.

    Raises:
        IntegrityError: An entry is damaged.

    """
    entries: list[TranscriptEntry] = []
    parent: str | None = None
    for stored in read_transcript(document.snapshot):
        entry = stored
        if is_plain_message(stored):
            entry = {
                "type": stored["role"],
                "message": stored,
                "uuid": str(uuid5(NAMESPACE_OID, f"{document.session_id}/{len(entries)}")),
                "parentUuid": parent,
                "sessionId": document.session_id,
                "isSidechain": False,
                "timestamp": f"{document.created_at:%Y-%m-%dT%H:%M:%S.000Z}",
            }
        entries.append(entry)
        if isinstance(entry.get("uuid"), str):
            parent = entry["uuid"]
    return entries


def is_plain_message(entry: TranscriptEntry) -> bool:
    """Return whether an entry is a message of another tool that Claude Code can read."""
    return (
        "type" not in entry
        and entry.get("role") in MESSAGE_TYPES
        and isinstance(entry.get("content"), str | list)
    )


def encode_transcript(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Return entries as JSON Lines.

    Raises:
        UnsupportedValueError: An entry holds a value that is not JSON.

    """
    lines = []
    for entry in entries:
        try:
            lines.append(json.dumps(entry, separators=(",", ":"), allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise UnsupportedValueError(
                f"transcript entry is not JSON: {error!s:.200}; remove the value, and export again"
            ) from error
    return "".join(f"{line}\n" for line in lines).encode()


def write_transcript(document: Document, path: str | Path) -> int:
    """Write a session's document as a transcript file, and return the number of entries.

    Claude Code resumes ``<session id>.jsonl`` in the folder of a project,
    ``~/.claude/projects/<project>/``. An existing file is replaced.

    Raises:
        IntegrityError: An entry is damaged.
        UnsupportedValueError: An entry holds a value that is not JSON.
        OSError: The file cannot be written.

    """
    entries = to_transcript(document)
    write_lines(entries, Path(path))
    return len(entries)


def write_lines(entries: Iterable[TranscriptEntry], path: Path) -> None:
    """Write entries to a file that only its owner can read; an existing file is replaced."""
    data = encode_transcript(entries)
    partial = path.with_name(f"{path.name}.partial")
    partial.touch(mode=0o600)
    partial.write_bytes(data)
    partial.replace(path)


def split_metadata(
    entries: Iterable[TranscriptEntry],
) -> tuple[TranscriptEntry | None, list[TranscriptEntry]]:
    """Return the last entry with a sub-agent's metadata, and the lines of its transcript.

    Claude Code stores the metadata in a file of its own.
    """
    metadata, lines = None, []
    for entry in entries:
        if entry.get("type") == METADATA:
            metadata = entry
        else:
            lines.append(entry)
    return metadata, lines
