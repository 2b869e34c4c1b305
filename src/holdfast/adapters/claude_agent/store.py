"""The session store of the Claude Agent SDK over a ``StateStore``.

Each transcript is a session, stored as `claude_transcript` describes. An append is one commit: the
new entries, the summary that the SDK folds from them, and the record that lists read.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.claude_agent.listing import (
    TranscriptRecord,
    find_last_commit,
    put_record,
    read_records,
)
from holdfast.adapters.claude_location import locate_transcript, subagent_prefix
from holdfast.adapters.claude_transcript import (
    APPENDED_EVENT,
    TranscriptEntry,
    TranscriptWriter,
    has_entry,
    infer_transcript_status,
    is_empty,
    read_head,
    read_transcript,
)
from holdfast.adapters.requirement import import_requirement
from holdfast.adapters.shared_session import SessionPool, session_exists
from holdfast.errors import IntegrityError, InvalidDocumentError, short_repr
from holdfast.log.event import Event
from holdfast.sessions.session import Session
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.delete import delete_locations
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.manifest import read_manifests
from holdfast.stores.base import StateStore

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

logger = logging.getLogger(__name__)
sdk = import_requirement("claude_agent_sdk", "claude-agent")


class HoldfastSessionStore(StoreAdapter):
    """Transcripts in a ``StateStore``, for ``ClaudeAgentOptions(session_store=…)``.

    Any number of processes may use the same transcripts; no entries are lost. Calls of several
    event loops and threads may share one object.
    """

    def __init__(self, state_store: StateStore) -> None:
        super().__init__(state_store)
        self._pool = SessionPool(self.state_store)

    def location(self, key: SessionKey) -> SnapshotLocation:
        """Return where a transcript is stored, to open it with `Session.open`.

        Raises:
            TypeError: The key has no text as project or session.
            ValueError: A part of the key is empty or too long.

        """
        return locate_transcript(key)

    # ------------------------------------------------------------------------ the SDK's protocol

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries in one commit, except those whose uuid the transcript has.

        The status of the session follows: running, completed, failed or cancelled.

        Raises:
            UnsupportedValueError: An entry is not JSON; nothing was written.
            StateStoreError: The store failed.

        """
        location = locate_transcript(key)
        given = cast("list[TranscriptEntry]", list(entries))
        is_main = key.get("subpath") is None

        async def add(session: Session) -> None:
            if any(has_entry(session.committer.working.store, each) for each in given):
                # Another writer may have removed them.
                await session.refresh()
            before = session.snapshot()
            working = session.committer.working
            writer = TranscriptWriter(working.store, working.record_owned)
            for entry in given:
                writer.add(entry, working.next_message)
            if not writer.added:
                return
            summary = fold_summary(key, before, writer.added) if is_main else None
            head = read_head(before)
            mtime = max(now_in_ms(), 0 if head is None else head["mtime"] + 1)
            writer.finish(mtime, summary)
            status = infer_transcript_status(writer.added)
            if status is not None:
                session.status = status
            await commit_with_record(session, TranscriptRecord(mtime, summary))

        if given:
            # Without a read: if another writer committed in the meantime, the update runs again.
            await self._pool.update(location, add, must_refresh=False)

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Return all entries in order, or None if there are none.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """

        def read(session: Session) -> list[TranscriptEntry] | None:
            return read_transcript(session.snapshot()) or None

        found = await self._pool.read(locate_transcript(key), read)
        return cast("list[SessionStoreEntry] | None", found)

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Return the sessions of a project, without those of sub-agents.

        Raises:
            StateStoreError: The store failed.

        """
        return [
            {"session_id": location.session_id, "mtime": record.mtime}
            for location, record in await self._list_records(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Return the summaries of a project's sessions, without loading the sessions.

        Raises:
            StateStoreError: The store failed.

        """
        return [
            {"session_id": location.session_id, "mtime": record.mtime, "data": record.summary}
            for location, record in await self._list_records(project_key)
            if record.summary is not None
        ]

    async def delete(self, key: SessionKey) -> None:
        """Delete a transcript; that of a session with those of all its sub-agents.

        Raises:
            ConflictError: Other processes delete the session at the same time; retry.
            StateStoreError: The store failed.

        """
        location = locate_transcript(key)
        wanted = [location]
        if key.get("subpath") is None:
            wanted += await self._find_subagents(key["project_key"], key["session_id"])
        await delete_locations(self.state_store, location.session_id, wanted)

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Return the subpaths of a session's sub-agents.

        Raises:
            StateStoreError: The store failed.

        """
        prefix = subagent_prefix(key["project_key"])
        found = await self._find_subagents(key["project_key"], key["session_id"])
        existing = await read_manifests(self.state_store, found)
        return [each.scope_id[len(prefix) :] for each in found if each in existing]

    # ------------------------------------------------------------------------------------ internals

    async def _find_subagents(self, project_key: str, session_id: str) -> list[SnapshotLocation]:
        prefix = subagent_prefix(project_key)
        return [
            each
            for each in await Catalog(self.state_store).locations(session_id)
            if each.scope == AGENT and each.scope_id.startswith(prefix)
        ]

    async def _list_records(
        self, project_key: str
    ) -> list[tuple[SnapshotLocation, TranscriptRecord]]:
        agent_id = locate_transcript({"project_key": project_key, "session_id": "-"}).scope_id
        page = await Catalog(self.state_store).sessions(agent_id)
        entries = [each for each in page.sessions if each.scope == AGENT]
        records = await read_records(self.state_store, [each.location for each in entries])
        found = []
        for entry in entries:
            record = records.get(entry.location)
            if record is None:
                try:
                    record = await self._renew_record(project_key, entry.location)
                except (IntegrityError, InvalidDocumentError) as error:
                    # A session that is damaged, or of a newer version, does not hide the others;
                    # loading it raises the error.
                    logger.warning("session %s cannot be summarized: %s", entry.session_id, error)
                    record = TranscriptRecord(to_ms(entry.active_at), None)
            elif record.summary is None:
                continue
            if record is not None:
                found.append((entry.location, record))
        return found

    async def _renew_record(
        self, project_key: str, location: SnapshotLocation
    ) -> TranscriptRecord | None:
        """Read a session and write its record; return None if it has no entries or was deleted."""
        key: SessionKey = {"project_key": project_key, "session_id": location.session_id}

        async def renew(session: Session) -> TranscriptRecord | None:
            if not session_exists(session):
                return None
            record = build_record(session, key)
            if self.state_store.writable:
                await commit_with_record(session, record)
            return None if record.summary is None else record

        return await self._pool.update(location, renew)


async def commit_with_record(session: Session, record: TranscriptRecord) -> None:
    """Commit the pending events of a session together with its record for lists."""
    committer = session.committer
    pending = bool(committer.working.pending)
    first = committer.working.head.seq + 1 if pending else find_last_commit(session)
    await committer.commit("raise", lambda *_: put_record(session, first, record))


def build_record(session: Session, key: SessionKey) -> TranscriptRecord:
    """Return the record of a session for lists, from its state.

    A session that another program changed is as new as its last event.
    """
    state = session.snapshot()
    head = read_head(state)
    mtime = 0 if head is None else head["mtime"]
    segments = session.committer.tail.segments
    events: Sequence[Event] = segments[-1].events() if segments else ()
    if head is None or all(each.type != APPENDED_EVENT for each in events):
        active_at = session.committer.incarnation.manifest.active_at
        times = [each.at for each in events] + ([active_at] if active_at else [])
        mtime = max([mtime, *map(to_ms, times)])
    return TranscriptRecord(mtime, None if is_empty(state) else fold_summary(key, state, []))


def fold_summary(key: SessionKey, state: Any, added: Sequence[TranscriptEntry]) -> dict[str, Any]:
    """Return the SDK's summary of a transcript with new entries, as it is to be stored."""
    head = read_head(state)
    entries = list(added)
    previous: SessionSummaryEntry | None = None
    if head is not None and "summary" in head:
        previous = {
            "session_id": key["session_id"],
            "mtime": head["mtime"],
            "data": decode_summary(head["summary"]),
        }
    else:
        entries = read_transcript(state) + entries
    data: dict[str, Any] = sdk.fold_session_summary(previous, key, entries)["data"]
    return data


def decode_summary(text: str) -> dict[str, Any]:
    """Return a summary that is stored as JSON text.

    Raises:
        IntegrityError: It is damaged.

    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    raise IntegrityError(
        f"summary of a transcript is damaged: {short_repr(text)}; restore the session to an "
        "earlier snapshot, or from a backup"
    )


def to_ms(at: dt.datetime) -> int:
    """Return a time in milliseconds since the epoch."""
    return int(at.timestamp() * 1000)


def now_in_ms() -> int:
    """Return the time in milliseconds since the epoch."""
    return time.time_ns() // 1_000_000
