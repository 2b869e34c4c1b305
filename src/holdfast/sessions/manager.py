"""Sessions as documents: exported, looked at, carried elsewhere, imported."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from holdfast.errors import InvalidDocumentError, NotFoundError, shown
from holdfast.sessions.exporting import exported
from holdfast.sessions.importing import ImportResult, imported
from holdfast.snapshots import document_files
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.snapshots.document import SIGNATURES
from holdfast.snapshots.layout import SCOPES, SnapshotLocation, checked_id
from holdfast.snapshots.migrations import ValueMigrations
from holdfast.snapshots.records import checked_tags
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import STATE
from holdfast.snapshots.signing import (
    PublicKey,
    SigningKey,
    check_signature,
    checked_keys,
    sign_document,
    vouched,
)
from holdfast.state.store import Store
from holdfast.stores.contract import StateStore

Redaction: TypeAlias = Callable[[SessionSnapshot], SessionSnapshot]

VALUES_VERSION = "values_version"
MOST_AGENTS = 1000


class SnapshotManager:
    """Exports and imports sessions as documents.

    ``migrations`` brings the user's own values in older documents up to date on reading, and writes
    their version into new ones.
    """

    def __init__(
        self, state_store: StateStore, *, migrations: ValueMigrations | None = None
    ) -> None:
        self.state_store = state_store
        self.archive = SnapshotArchive(state_store)
        self.catalog = Catalog(state_store)
        self._migrations = migrations

    # ---------------------------------------------------------------------- export and import

    async def export_session(
        self,
        agent_id: str,
        session_id: str | None = None,
        *,
        snapshot_id: str | None = None,
        seq: int | None = None,
        scope: str | None = None,
        tags: Mapping[str, str] | None = None,
        redact: Redaction | None = None,
        sign: SigningKey | None = None,
    ) -> SessionSnapshot:
        """A session with its events: as it is now, as it was at a snapshot, or after an event.

        ``seq`` is the number of that event. Without ``session_id`` it is the agent's latest
        session. ``tags`` are added to the snapshot's own. ``redact`` takes out what must not leave,
        as `Redactor.redacted` does, and ``sign`` is the key to sign what is left with.
        """
        wanted = checked_tags(tags)
        location = await self.locate(agent_id, session_id, scope=scope)
        found = await exported(
            self.archive, location, snapshot_id=snapshot_id, seq=seq, tags=wanted
        )
        if self._migrations is not None:
            extra = {**found.extra, VALUES_VERSION: self._migrations.version}
            found = replace(found, extra=extra)
        if redact is not None:
            found = redact(found)
        return found if sign is None else sign_document(found, sign)

    async def import_session(
        self,
        snapshot: SessionSnapshot,
        *,
        dry_run: bool = False,
        agent_id: str | None = None,
        session_id: str | None = None,
        trusted: Iterable[PublicKey] | None = None,
    ) -> ImportResult:
        """Make a document a session here, under its own ids or others.

        Where there is no such session, the document's events become its log. Where there is one,
        its state becomes the document's, its own log goes on, and ``undo_id`` names a snapshot of
        what was there. A dry run says what would change and writes nothing. With ``trusted`` the
        document must be signed by one of these keys: it was found to be when it was read, or is as
        it would be written.
        """
        if not isinstance(snapshot, SessionSnapshot):
            raise TypeError(
                "import_session takes a SessionSnapshot, as from_file() gives it, not "
                f"{shown(snapshot)}"
            )
        if trusted is not None:
            known = checked_keys(trusted)
            if not known.keys() & snapshot.signed_by:
                snapshot = vouched(snapshot, check_signature(snapshot, known.values()))
        location = SnapshotLocation(
            snapshot.session_id if session_id is None else checked_id(session_id, "session_id"),
            snapshot.scope,
            snapshot.agent_id if agent_id is None else checked_id(agent_id, "agent_id"),
        )
        return await imported(self.state_store, snapshot, location, dry_run=dry_run)

    async def locate(
        self, agent_id: str, session_id: str | None = None, *, scope: str | None = None
    ) -> SnapshotLocation:
        """Where a session of an agent is kept; the one that it started last without an id."""
        checked_id(agent_id, "agent_id")
        if scope not in (None, *SCOPES):
            raise ValueError(f"scope is one of {', '.join(SCOPES)}, not {shown(scope)}")
        if session_id is None:
            return await self._latest(agent_id, scope)
        for location in await self.catalog.locations(session_id):
            if location.scope_id == agent_id and scope in (None, location.scope):
                return location
        raise await self._unknown_session(agent_id, session_id)

    async def _latest(self, agent_id: str, scope: str | None) -> SnapshotLocation:
        """The session that an agent started last."""
        token = None
        while True:
            page = await self.catalog.sessions(
                agent_id, limit=1 if scope is None else MOST_AGENTS, next_token=token
            )
            for entry in page.sessions:
                if scope in (None, entry.scope):
                    return entry.location
            token = page.next_token
            if token is None:
                raise await self._unknown_agent(agent_id)

    async def _unknown_agent(self, agent_id: str) -> NotFoundError:
        agents = await self.catalog.agents(limit=MOST_AGENTS)
        return NotFoundError(
            f"there is no agent {shown(agent_id)} in this store{near(agent_id, agents)}"
        )

    async def _unknown_session(self, agent_id: str, session_id: str) -> NotFoundError:
        page = await self.catalog.sessions(agent_id, limit=MOST_AGENTS)
        if not page.sessions:
            return await self._unknown_agent(agent_id)
        known = [entry.session_id for entry in page.sessions]
        return NotFoundError(
            f"the agent {agent_id} has no session {shown(session_id)}{near(session_id, known)}"
        )

    # --------------------------------------------------------------------------------- files

    def to_file(self, snapshot: SessionSnapshot, path: str | os.PathLike[str]) -> None:
        """Write a document: ``.json``, ``.json.gz`` or ``.json.zst``, all of it or nothing."""
        document_files.write(path, snapshot.chunks())

    def from_file(
        self,
        path: str | os.PathLike[str],
        *,
        allow_modified: bool = False,
        max_bytes: int = document_files.MAX_BYTES,
        trusted: Iterable[PublicKey] | None = None,
    ) -> SessionSnapshot:
        """Read a document, and check all of it.

        ``allow_modified`` takes one that was edited on purpose; ``max_bytes`` bounds what it may
        have when it is unpacked. With ``trusted`` it must be signed by one of these keys.
        """
        tree = document_files.read(path, max_bytes=max_bytes)
        return self.from_dict(tree, allow_modified=allow_modified, trusted=trusted)

    def to_dict(self, snapshot: SessionSnapshot) -> dict[str, Any]:
        """The document, as JSON data."""
        return snapshot.to_dict()

    def from_dict(
        self,
        tree: object,
        *,
        allow_modified: bool = False,
        trusted: Iterable[PublicKey] | None = None,
    ) -> SessionSnapshot:
        """What a document says, checked, with the user's own values brought up to date.

        With ``trusted`` it must be signed by one of these keys, as it stands.
        """
        # Before anything else of it is looked at.
        signers = () if trusted is None else check_signature(tree, trusted)
        found = SessionSnapshot.from_dict(tree, allow_modified=allow_modified)
        found = self._migrated(found)
        return vouched(found, signers) if signers else found

    def _migrated(self, found: SessionSnapshot) -> SessionSnapshot:
        """A document with the user's own values brought up to date."""
        migrations = self._migrations
        if migrations is None:
            return found
        version = found.extra.get(VALUES_VERSION, migrations.first)
        if type(version) is not int:
            raise InvalidDocumentError(
                f"the document's {VALUES_VERSION} is a number, not {shown(version)}"
            )
        if version == migrations.version:
            return found
        store = Store(max_history=0)
        store.restore(found.snapshot)
        values = migrations.applied(found.state.values, version)
        for key in store.keys(STATE):
            store.delete(STATE, key)
        store.set_many([(STATE, key, value) for key, value in values.items()])
        extra = {**found.extra, VALUES_VERSION: migrations.version}
        extra.pop(SIGNATURES, None)  # they are of the values as they were
        return replace(found, snapshot=store.snapshot(), extra=extra)


def near(name: str, known: list[str]) -> str:
    """The names that are nearest to one that is not there, for an error."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
    return f"; there are {', '.join(close)}" if close else "; there is none at all"
