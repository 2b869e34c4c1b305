"""Migrate the user's values in a document to the version that this program uses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from holdfast.documents.blobs import bind_contents, externalize_state
from holdfast.documents.decode import bind_events
from holdfast.documents.document import Document
from holdfast.documents.migrations import ValueMigrations
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.log.event import Event, EventDraft
from holdfast.log.hash_chain import link_events
from holdfast.snapshots.session_state import STATE
from holdfast.state.diff import Changes
from holdfast.values.references import find_references, keep_references, restore_value

MIGRATED = "state.migrated"
VALUES_VERSION = "values_version"


def migrate_values(document: Document, migrations: ValueMigrations) -> Document:
    """Return the document with its values migrated.

    If it has events, one more event records the changes, so that they still lead to the state.

    Raises:
        InvalidDocumentError: Its values are newer, or a migration is missing.

    """
    version = document.extra.get(VALUES_VERSION, migrations.first)
    if type(version) is not int:
        raise InvalidDocumentError(
            f"invalid {VALUES_VERSION} in document: must be an int, got {short_repr(version)}"
        )
    if version == migrations.version:
        return document
    store = document.to_store()
    values = migrations.apply(restore_available(document), version)
    for key in store.keys(STATE):
        store.delete(STATE, key)
    store.set_many([(STATE, key, value) for key, value in values.items()])
    state, found = externalize_state(store.snapshot())
    blobs = document.blobs | found
    state = bind_contents(state, blobs)
    events = document.events
    if events:
        with keep_references():
            events = tuple(events)
            changes = state.changes(document.snapshot)
            event = make_migration_event(events[-1], version, migrations.version, changes)
        events = bind_events((*events, event), blobs)
    document = document.without_signatures()
    return replace(
        document,
        snapshot=state,
        extra={**document.extra, VALUES_VERSION: migrations.version},
        events=events,
        event_log_count=len(events) or document.event_log_count,
        blobs=blobs,
    )


def restore_available(document: Document) -> dict[str, Any]:
    """Return the values with the blobs that the document has; others stay references."""
    with keep_references():
        values = document.state.values
    return {
        key: restore_value(value, document.blobs)
        if all(each.digest in document.blobs for each in find_references(value))
        else value
        for key, value in values.items()
    }


def make_migration_event(last: Event, version: int, newer: int, changes: Changes) -> Event:
    """Return the event of a migration. It is the same each time the document is read."""
    id_ = uuid5(NAMESPACE_OID, f"{MIGRATED} {last.hash} {newer}")
    draft = EventDraft(str(id_), MIGRATED, last.at, {"from": version, "to": newer}, changes)
    return link_events([draft], last.seq, last.hash)[0]
