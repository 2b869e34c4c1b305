"""Documents without a state store: read from a file or from JSON data, and written to a file."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from uuid import NAMESPACE_OID, uuid5

from holdfast.documents.encode import SIGNATURES
from holdfast.documents.json_file import read_json_file, write_json_file
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.documents.migrations import ValueMigrations
from holdfast.documents.signing import PublicKey, record_signers, verify_signature
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.log.event import Event, EventDraft
from holdfast.log.hash_chain import link_events
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import STATE
from holdfast.state.diff import Changes

MIGRATED = "state.migrated"
VALUES_VERSION = "values_version"


def read_document(
    path: str | os.PathLike[str],
    *,
    allow_modified: bool = False,
    limits: DocumentLimits = DEFAULT_LIMITS,
    trusted: Iterable[PublicKey] | None = None,
    migrations: ValueMigrations | None = None,
) -> SessionSnapshot:
    """Read a document from a file, and check all of it.

    ``allow_modified`` accepts one that was edited on purpose, ``limits`` bounds what is read,
    ``trusted`` requires a signature by one of these keys, and ``migrations`` brings the user's own
    values up to date.

    Raises:
        InvalidDocumentError: It is not a document, is malformed, or was changed.
        SignatureError: No trusted key signed it.

    """
    tree = read_json_file(path, limits=limits)
    return decode_document(
        tree, allow_modified=allow_modified, trusted=trusted, migrations=migrations
    )


def write_document(snapshot: SessionSnapshot, path: str | os.PathLike[str]) -> None:
    """Write a document: ``.json``, ``.json.gz`` or ``.json.zst``, all of it or nothing.

    Raises:
        StateStoreError: The file cannot be written.

    """
    if not isinstance(snapshot, SessionSnapshot):
        raise TypeError(f"expected a SessionSnapshot, got {short_repr(snapshot)}")
    write_json_file(path, snapshot.chunks())


def decode_document(
    tree: object,
    *,
    allow_modified: bool = False,
    trusted: Iterable[PublicKey] | None = None,
    migrations: ValueMigrations | None = None,
) -> SessionSnapshot:
    """Read a document from JSON data, as `read_document` reads it from a file."""
    # Before anything else of it is looked at.
    signers = () if trusted is None else verify_signature(tree, trusted)
    found = SessionSnapshot.from_dict(tree, allow_modified=allow_modified)
    if migrations is not None:
        found = migrate_values(found, migrations)
    return record_signers(found, signers) if signers else found


def migrate_values(found: SessionSnapshot, migrations: ValueMigrations) -> SessionSnapshot:
    """Bring the user's own values in a document up to date.

    Where it has events, one more says what was changed, so that they lead to the state.
    """
    version = found.extra.get(VALUES_VERSION, migrations.first)
    if type(version) is not int:
        raise InvalidDocumentError(
            f"the document's {VALUES_VERSION} is a number, not {short_repr(version)}"
        )
    if version == migrations.version:
        return found
    store = found.to_store()
    values = migrations.applied(found.state.values, version)
    for key in store.keys(STATE):
        store.delete(STATE, key)
    store.set_many([(STATE, key, value) for key, value in values.items()])
    state = store.snapshot()
    extra = {**found.extra, VALUES_VERSION: migrations.version}
    extra.pop(SIGNATURES, None)  # they are of the values as they were
    events = found.events
    if events:
        changes = state.changes(found.snapshot)
        events = (*events, make_migration_event(events[-1], version, migrations.version, changes))
    count = len(events) or found.event_log_count
    return replace(found, snapshot=state, extra=extra, events=events, event_log_count=count)


def make_migration_event(last: Event, version: int, newer: int, changes: Changes) -> Event:
    """Return the event of a migration, which is the same whenever a document is read."""
    id_ = uuid5(NAMESPACE_OID, f"{MIGRATED} {last.hash} {newer}")
    draft = EventDraft(str(id_), MIGRATED, last.at, {"from": version, "to": newer}, changes)
    return link_events([draft], last.seq, last.hash)[0]
