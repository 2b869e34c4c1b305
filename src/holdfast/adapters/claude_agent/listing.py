"""List the transcripts of a project with a small record of each.

    <location>/claude_agent/summary.json

An append writes the record together with its commit. It names the commit: if the log has a later
one, such as a restore, the session itself is read, and the record is written again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.errors import IntegrityError, InvalidDocumentError
from holdfast.log.event_log import EventLog
from holdfast.sessions.session import Session
from holdfast.snapshots.discovery import find_first_key
from holdfast.snapshots.envelope import decode_envelope, encode_envelope
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.manifest import decode_manifest
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import read_entries, split_batches
from holdfast.stores.entries import Entry, Put
from holdfast.stores.local import gather

RECORD = "claude_agent/summary.json"
CONCURRENCY = 16


@dataclass(frozen=True, slots=True)
class TranscriptRecord:
    """What lists show of a transcript."""

    mtime: int
    """When it last changed, in milliseconds since the epoch."""
    summary: dict[str, Any] | None
    """The SDK's summary; None if the session has no entries."""


class StoredRecord(msgspec.Struct):
    """A record as it is stored."""

    incarnation: str
    first: int
    """The first event of the last commit."""
    mtime: int
    summary: str
    """JSON text: lone surrogates cannot be stored otherwise."""


def record_key(location: SnapshotLocation) -> str:
    """Return the key of a transcript's record."""
    return f"{location.prefix}{RECORD}"


def put_record(session: Session, first: int, record: TranscriptRecord) -> Put:
    """Return the write of a record; ``first`` is the first event of the last commit."""
    incarnation = session.committer.incarnation.id
    stored = StoredRecord(incarnation, first, record.mtime, json.dumps(record.summary))
    return Put(record_key(session.location), encode_envelope(stored))


def find_last_commit(session: Session) -> int:
    """Return the first event of the last commit, or a later one."""
    segments = session.committer.tail.segments
    return segments[-1].first if segments else session.committer.working.head.seq


async def read_records(
    state_store: StateStore, locations: Sequence[SnapshotLocation]
) -> dict[SnapshotLocation, TranscriptRecord]:
    """Return the records of transcripts that have not changed since, without loading sessions."""
    found: dict[SnapshotLocation, TranscriptRecord] = {}
    for batch in split_batches(locations, CONCURRENCY):
        keys = [key for each in batch for key in (record_key(each), each.manifest_key)]
        entries = await read_entries(state_store, keys)
        records = await gather(read_record(state_store, each, entries) for each in batch)
        pairs = zip(batch, records, strict=True)
        found.update({location: record for location, record in pairs if record is not None})
    return found


async def read_record(
    state_store: StateStore,
    location: SnapshotLocation,
    entries: dict[str, Entry | IntegrityError],
) -> TranscriptRecord | None:
    """Return the record of a transcript; None if it is missing, damaged or out of date."""
    key = record_key(location)
    entry, named = entries.get(key), entries.get(location.manifest_key)
    if not isinstance(entry, Entry) or not isinstance(named, Entry):
        return None
    try:
        content = decode_envelope(key, entry.value, "summary")
        incarnation = decode_manifest(location.manifest_key, named.value).incarnation
    except (IntegrityError, InvalidDocumentError):
        return None
    try:
        record = msgspec.convert(content, StoredRecord)
        summary = msgspec.convert(json.loads(record.summary), dict[str, Any] | None)
    except (msgspec.ValidationError, ValueError, RecursionError):
        return None
    log = EventLog(state_store, location.prefix, incarnation)
    if (
        record.incarnation != incarnation
        or await find_first_key(state_store, log.prefix, log.key(record.first)) is not None
    ):
        return None
    return TranscriptRecord(record.mtime, summary)
