"""Read a transcript of Claude Code: ``~/.claude/projects/<project>/<session id>.jsonl``.

Every line is stored as `HoldfastSessionStore` of the Claude Agent SDK stores it, so that the SDK
resumes the imported session. The transcripts of sub-agents, in the folder ``<session id>/`` beside
the file, are read too.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.adapters.claude_location import locate_transcript, name_project
from holdfast.adapters.claude_transcript import (
    METADATA,
    TranscriptEntry,
    TranscriptWriter,
    infer_transcript_status,
)
from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.ids import new_id
from holdfast.importers.history import SESSION_STARTED, link_document
from holdfast.importers.source import (
    COMPRESSED_SUFFIX,
    DEFAULT_AGENT_ID,
    Source,
    open_source,
)
from holdfast.importers.transcript import IncompleteLine, iterate_lines
from holdfast.log.event import EventDraft
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import PENDING, SESSION, STATUS
from holdfast.state.diff import Changes
from holdfast.state.store import Store

NAME = "claude-code"
PROJECTS = "projects"
LINES_LOOKED_AT = 1000
"""How many lines are searched for the id of a session; summaries at the start have none."""


def recognises(source: Source) -> bool:
    """Return whether one of the first lines is an entry with the id of its session."""
    if not source.is_text or not source.text.lstrip().startswith(b"{"):
        return False
    try:
        for (_, entry), _ in zip(read_lines(source), range(LINES_LOOKED_AT), strict=False):
            if is_entry(entry) and "payload" not in entry:
                if isinstance(entry.get("sessionId"), str):
                    return True
                if "parentUuid" in entry and "uuid" in entry:
                    return True
    except InvalidDocumentError:
        return False
    return False


def read(source: Source) -> list[Document]:
    """Return the session of a transcript, and those of its sub-agents.

    Raises:
        InvalidDocumentError: A line is not an entry, or an id is not valid.

    """
    entries = list(read_entries(source))
    project = find_project(source, entries) if source.agent_id is None else source.agent_id
    session_id = source.stem if source.session_id is None else source.session_id
    documents = [build_document(locate(project, session_id), entries)]
    for path, subpath in find_subagents(source):
        with open_source(str(path), limits=source.limits) as other:
            entries = list(read_entries(other))
        metadata = read_metadata(path)
        if metadata is not None:
            entries.append(metadata)
        if entries:
            documents.append(build_document(locate(project, session_id, subpath), entries))
    return documents


# ----------------------------------------------------------------------------------------- lines


def read_entries(source: Source) -> Iterator[TranscriptEntry]:
    """Yield the entries of a transcript.

    Raises:
        InvalidDocumentError: A line is not an entry.

    """
    for number, entry in read_lines(source):
        if not is_entry(entry):
            raise InvalidDocumentError(
                f"line {number} of {source.name} is not an entry with a type: {short_repr(entry)}"
            )
        yield entry


def read_lines(source: Source) -> Iterator[tuple[int, Any]]:
    """Yield the parsed lines with their numbers.

    A last line without an end, which a killed process leaves, is skipped, as Claude Code does.

    Raises:
        InvalidDocumentError: Another line is not JSON.

    """
    for number, line in iterate_lines(source):
        if not isinstance(line, IncompleteLine):
            yield number, line


def is_entry(entry: Any) -> bool:
    """Return whether a line is an entry of a transcript."""
    return isinstance(entry, dict) and isinstance(entry.get("type"), str)


# ------------------------------------------------------------------------------------------- ids


def find_project(source: Source, entries: list[TranscriptEntry]) -> str:
    """Return the project of a transcript: its folder, or that of the first working directory."""
    if source.path is not None:
        folder = source.path.absolute().parent
        if folder.parent.name == PROJECTS:
            return folder.name
    for entry in entries:
        cwd = entry.get("cwd")
        if isinstance(cwd, str) and cwd:
            return name_project(cwd)
    return DEFAULT_AGENT_ID


def locate(project: str, session_id: str, subpath: str | None = None) -> SnapshotLocation:
    """Return where the SDK looks for a transcript.

    Raises:
        InvalidDocumentError: An id is not valid.

    """
    key = {"project_key": project, "session_id": session_id, "subpath": subpath}
    try:
        return locate_transcript(key)
    except ValueError as error:
        raise InvalidDocumentError(f"{error}; choose others with --agent, --session") from error


def find_subagents(source: Source) -> Iterator[tuple[Path, str]]:
    """Yield the files of sub-agents, with their paths in the folder of the session."""
    if source.path is None:
        return
    name = Path(COMPRESSED_SUFFIX.sub("", source.path.name)).stem
    folder = source.path.with_name(name)
    for path in sorted(folder.glob("subagents/**/*.jsonl")):
        if path.is_file():
            yield path, path.relative_to(folder).with_suffix("").as_posix()


def read_metadata(path: Path) -> TranscriptEntry | None:
    """Return the entry with a sub-agent's metadata, from the file beside its transcript."""
    try:
        found = json.loads(path.with_suffix(".meta.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError):
        return None
    return {**found, "type": METADATA} if isinstance(found, dict) else None


# -------------------------------------------------------------------------------------- documents


def build_document(location: SnapshotLocation, entries: list[TranscriptEntry]) -> Document:
    """Return the document of a transcript, with one event per entry.

    Raises:
        InvalidDocumentError: There are no entries.

    """
    if not entries:
        raise InvalidDocumentError(f"transcript of {location.session_id} has no entries")
    store = Store(max_history=0)
    drafts: list[EventDraft] = []
    now = next((at for each in entries if (at := find_time(each)) is not None), utc_now())

    def record(type_: str, data: Any, changes: Changes) -> None:
        store.set_many(changes["set"])
        drafts.append(EventDraft(new_id(), type_, now, data, changes))

    names = {"agent_id": location.scope_id, "session_id": location.session_id}
    record(SESSION_STARTED, names, {"set": [(SESSION, STATUS, PENDING)], "delete": []})
    writer = TranscriptWriter(store, record)
    for entry in entries:
        now = max(now, find_time(entry) or now)
        writer.add(entry)
    # The SDK's summary is folded when the session is first listed or continued.
    writer.finish(int(now.timestamp() * 1000), None)
    status = infer_transcript_status(entries)
    if status is not None:
        record("status.changed", None, {"set": [(SESSION, STATUS, status)], "delete": []})
    return link_document(location.scope_id, location.session_id, store.snapshot(), drafts, NAME)


def find_time(entry: TranscriptEntry) -> dt.datetime | None:
    """Return the time of an entry in UTC, if it has one."""
    text = entry.get("timestamp")
    try:
        time = dt.datetime.fromisoformat(text)  # type: ignore[arg-type]
        return (time if time.tzinfo else time.replace(tzinfo=dt.UTC)).astimezone(dt.UTC)
    except (TypeError, ValueError, OverflowError):
        return None
