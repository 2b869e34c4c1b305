"""Documents for tests, and edits of their JSON data."""

from __future__ import annotations

import copy
import datetime as dt
import json
from dataclasses import replace

from holdfast import Document, Store
from holdfast.documents.encode import compute_digest
from holdfast.log.changes import fold_changes
from holdfast.log.event import draft_event
from holdfast.log.hash_chain import GENESIS, link_events
from support.observed_store import HERE, make_snapshot


def make_document(snapshot=None, location=HERE, **fields):
    """Return a document of a state, without events."""
    return replace(Document.from_snapshot(make_snapshot(snapshot, location)), **fields)


def make_document_with_events(*drafts, after=0, prev=GENESIS):
    """Return a document with these events, and the state that they lead to."""
    store = Store()
    base = None
    if after:
        store.set("state", "before", 1)
        base = store.snapshot()
    events = link_events(drafts, after, prev)
    fold_changes(store, [event.changes for event in events])
    return make_document(
        store.snapshot(), events=tuple(events), event_log_count=len(events), base=base
    )


def make_full_document():
    """Return a document in which every field has a value."""
    document = make_document_with_events(
        draft_event("session.started", {"by": "us"}, set_=[("session", "status", "running")]),
        draft_event("message.appended", set_=[("messages", "000000000000", {"role": "user"})]),
        draft_event("state.set", set_=[("state", "plan", (1, b"x")), ("once", "mail", True)]),
        draft_event("state.deleted", delete=[("state", "old")]),
        after=4,
        prev="ab" * 32,
    )
    return replace(
        document,
        parent_id="before",
        tags={"env": "production"},
        exported_at=dt.datetime(2026, 11, 15, 9, 30, tzinfo=dt.UTC),
        source_environment="production",
        extra={"viewer": {"colour": "red"}},
    )


FULL = make_full_document()


def update_digest(data):
    """Return the JSON data of a document with the digest recomputed."""
    return {**data, "digest": compute_digest(data)}


def edit_json(data, *path, to=...):
    """Return a copy of JSON data with another value at a path, or without it."""
    data = copy.deepcopy(data)
    parent = data
    for step in path[:-1]:
        parent = parent[step]
    if to is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = to
    return data


def edit_full_document(*path, to=...):
    """Return the JSON data of the full document with another value at a path, or without it."""
    return edit_json(FULL.to_dict(), *path, to=to)


def iterate_paths(data, path=()):
    """Yield every path in JSON data, the empty one first."""
    yield path
    if isinstance(data, dict | list):
        for step, item in data.items() if isinstance(data, dict) else enumerate(data):
            yield from iterate_paths(item, (*path, step))


def round_trip_document(document):
    """Return a document as decoded from its JSON text."""
    return Document.from_dict(json.loads(json.dumps(document.to_dict(), allow_nan=False)))


def freeze(*items):
    """Return a frozen state with these entries."""
    store = Store()
    store.set_many(items)
    return store.snapshot()
