"""Validate that a document is what was written: hash chain, event count, digest, and state.

`Document.from_dict` decodes a document, which checks the form of every field, and then validates it
here. The hash chain detects a change in any event, the event count a truncated log, and the
digest a change anywhere. Folding the events detects a document whose digest was recomputed, too,
unless its events and its state were forged consistently: for that it must be signed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.documents.encode import DIGEST, compute_digest
from holdfast.documents.errors import ModifiedDocumentError
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.log.changes import fold_changes
from holdfast.log.event import Event
from holdfast.log.linked_events import LinkedEvents
from holdfast.state.batch import WriteBatch
from holdfast.state.diff import Pair
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store, has_entries
from holdfast.values.references import keep_references

REMEDY = "get another copy, or pass allow_modified if it was edited on purpose"


def validate_document(
    original: Mapping[str, Any],
    migrated: Mapping[str, Any],
    events: Sequence[Event],
    base: Snapshot | None,
    state: Snapshot,
) -> None:
    """Check that a decoded document was not changed after it was written.

    ``original`` is its JSON data as read, which the digest covers, and ``migrated`` the same in
    the current schema, which the events were decoded from.

    Raises:
        ModifiedDocumentError: It was changed.
        InvalidDocumentError: No digest can be computed of it.

    """
    validate_chain(events, migrated.get("events") or ())
    validate_event_count(events, migrated)
    validate_digest(original)
    validate_fold(events, base, state)


def validate_chain(events: Sequence[Event], data: Sequence[Mapping[str, Any]]) -> None:
    """Compare the hashes that the document has with those computed from its events.

    Raises:
        ModifiedDocumentError: An event breaks the hash chain.

    """
    for event, fields in zip(events, data, strict=True):
        if is_linked(event, fields):
            continue
        for name, value in (("prev", event.prev), ("hash", event.hash)):
            if fields.get(name, value) != value:
                raise ModifiedDocumentError(
                    f"event {event.seq} of the document breaks the hash chain: its {name} is "
                    f"{short_repr(fields[name])} and should be {short_repr(value)}; {REMEDY}"
                )


def is_linked(event: Event, fields: Mapping[str, Any]) -> bool:
    """Return whether the hashes that the document has for an event are those computed from it."""
    prev, hash_ = fields.get("prev", event.prev), fields.get("hash", event.hash)
    return bool(prev == event.prev and hash_ == event.hash)


def validate_event_count(events: Sequence[Event], data: Mapping[str, Any]) -> None:
    """Compare the number of events with ``event_log_count``: a chain does not show a missing end.

    Raises:
        ModifiedDocumentError: The numbers differ.

    """
    count = data.get("event_log_count", len(events))
    if events and count != len(events):
        raise ModifiedDocumentError(
            f"the document has {len(events)} events, but its event_log_count is "
            f"{short_repr(count)}; {REMEDY}"
        )


def validate_digest(data: Mapping[str, Any]) -> None:
    """Compare the digest of a document with its content.

    A document without events may lack a digest, as one that was written by hand does.

    Raises:
        ModifiedDocumentError: The digest does not match, or there are events and no digest.
        InvalidDocumentError: The document is not JSON data.

    """
    digest = data.get(DIGEST)
    if digest is None:
        if data.get("events"):
            raise ModifiedDocumentError(f"the document has events but no digest; {REMEDY}")
        return
    try:
        expected = compute_digest(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidDocumentError(f"the document is not JSON data: {error!s:.400}") from error
    if digest != expected:
        raise ModifiedDocumentError(
            f"the document does not match its digest {short_repr(digest)}: it was changed after it "
            f"was written; {REMEDY}"
        )


def is_fold(events: Sequence[Event], base: Snapshot | None, state: Snapshot) -> bool:
    """Return whether events lead to a state, without building the state that they lead to.

    False if that has to be built to find out.
    """
    if isinstance(events, LinkedEvents) and events.is_known_to_lead(base, state):
        return True
    final: dict[Pair, Any] = {}
    with keep_references():
        for event in events:
            for namespace, key, value in event.changes["set"]:
                final[namespace, key] = value
            for pair in event.changes["delete"]:
                final.pop(pair, None)
    if (base is not None and len(base)) or len(final) != len(state):
        return False
    store = Store(max_history=0)
    store.restore(state)
    return has_entries(store, WriteBatch((*pair, value) for pair, value in final.items()))


def fold_events(events: Sequence[Event], base: Snapshot | None) -> Snapshot:
    """Return the state that events lead to; blobs are not read."""
    store = Store(max_history=0)
    if base is not None:
        store.restore(base)
    contents = events.contents if isinstance(events, LinkedEvents) else None
    with keep_references():
        fold_changes(store, (event.changes for event in events), contents)
    return store.snapshot()


def validate_fold(events: Sequence[Event], base: Snapshot | None, state: Snapshot) -> None:
    """Compare the state of a document with the state that its events lead to.

    Raises:
        ModifiedDocumentError: They differ, or the state before the first event is missing.

    """
    if not events:
        return
    if events[0].seq != 1 and base is None:
        raise ModifiedDocumentError(
            f"the document's events start at {events[0].seq}, but it has no base, the state before "
            f"them; {REMEDY}"
        )
    if is_fold(events, base, state):
        return
    diff = state.diff(fold_events(events, base))
    problems = (
        *((pair, "is in the state, but no event set it") for pair in diff["added"]),
        *((pair, "was set by an event, but is not in the state") for pair in diff["removed"]),
        *((pair, "has another value in the state") for pair in diff["changed"]),
    )
    if problems:
        (namespace, key), problem = problems[0]
        raise ModifiedDocumentError(
            f"the document's events do not lead to its state: ({short_repr(namespace)}, "
            f"{short_repr(key)}) {problem}, and {len(problems) - 1:,} more entries differ; {REMEDY}"
        )
