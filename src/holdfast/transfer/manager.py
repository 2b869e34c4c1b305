"""Sessions as documents: exported, looked at, carried elsewhere, imported."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from holdfast.documents.export import export_document
from holdfast.documents.files import (
    VALUES_VERSION,
    decode_document,
    read_document,
    write_document,
)
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.documents.migrations import ValueMigrations
from holdfast.documents.signing import (
    PublicKey,
    SigningKey,
    record_signers,
    sign_document,
    validate_trusted_keys,
    verify_signature,
)
from holdfast.errors import NotFoundError, StateStoreError, short_repr
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.keys import SCOPES, SnapshotLocation, validate_id
from holdfast.snapshots.records import validate_tags
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.stores.base import StateStore
from holdfast.transfer.import_document import ImportResult, import_document

T = TypeVar("T")

Redaction: TypeAlias = Callable[[SessionSnapshot], SessionSnapshot]

MAX_SUGGESTIONS_READ = 1000


class SnapshotManager:
    """Exports and imports sessions as documents.

    Without a state store it reads and writes documents, and nothing else. ``migrations`` brings the
    user's own values in older documents up to date on reading, and writes their version into new
    ones.
    """

    def __init__(
        self, state_store: StateStore | None = None, *, migrations: ValueMigrations | None = None
    ) -> None:
        self._state_store = state_store
        self._archive = None if state_store is None else SnapshotArchive(state_store)
        self._catalog = None if state_store is None else Catalog(state_store)
        self._migrations = migrations

    @property
    def state_store(self) -> StateStore:
        """The state store. `StateStoreError` where the manager was made without one."""
        return require_store(self._state_store)

    @property
    def archive(self) -> SnapshotArchive:
        """The durable snapshots of the state store."""
        return require_store(self._archive)

    @property
    def catalog(self) -> Catalog:
        """The agents and sessions of the state store."""
        return require_store(self._catalog)

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

        ``seq`` is the number of that event. Without ``session_id`` it is the agent's session with
        the newest commit. ``tags`` are added to the snapshot's own. ``redact`` takes out what must
        not leave, as `Redactor.redacted` does, and ``sign`` is the key to sign what is left with.
        """
        wanted = validate_tags(tags)
        location = await self.locate(agent_id, session_id, scope=scope)
        found = await export_document(
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
                f"{short_repr(snapshot)}"
            )
        if trusted is not None:
            known = validate_trusted_keys(trusted)
            if not known.keys() & snapshot.signed_by:
                snapshot = record_signers(snapshot, verify_signature(snapshot, known.values()))
        location = SnapshotLocation(
            snapshot.session_id if session_id is None else validate_id(session_id, "session_id"),
            snapshot.scope,
            snapshot.agent_id if agent_id is None else validate_id(agent_id, "agent_id"),
        )
        return await import_document(self.state_store, snapshot, location, dry_run=dry_run)

    async def locate(
        self, agent_id: str, session_id: str | None = None, *, scope: str | None = None
    ) -> SnapshotLocation:
        """Where a session of an agent is kept; without an id, the one with the newest commit."""
        validate_id(agent_id, "agent_id")
        if scope not in (None, *SCOPES):
            raise ValueError(f"scope is one of {', '.join(SCOPES)}, not {short_repr(scope)}")
        if session_id is None:
            return await self._latest(agent_id, scope)
        for location in await self.catalog.locations(session_id):
            if location.scope_id == agent_id and scope in (None, location.scope):
                return location
        raise await self._unknown_session(agent_id, session_id)

    async def _latest(self, agent_id: str, scope: str | None) -> SnapshotLocation:
        """Return the session of an agent with the newest commit."""
        found = await self.catalog.latest_session(agent_id, scope=scope)
        if found is None:
            raise await self._unknown_agent(agent_id)
        return found.location

    async def _unknown_agent(self, agent_id: str) -> NotFoundError:
        agents = await self.catalog.agents(limit=MAX_SUGGESTIONS_READ)
        return NotFoundError(
            f"there is no agent {short_repr(agent_id)} in this store{suggest_names(agent_id, agents)}"
        )

    async def _unknown_session(self, agent_id: str, session_id: str) -> NotFoundError:
        page = await self.catalog.sessions(agent_id, limit=MAX_SUGGESTIONS_READ)
        if not page.sessions:
            return await self._unknown_agent(agent_id)
        known = [entry.session_id for entry in page.sessions]
        return NotFoundError(
            f"the agent {agent_id} has no session {short_repr(session_id)}{suggest_names(session_id, known)}"
        )

    # --------------------------------------------------------------------------------- files

    def to_file(self, snapshot: SessionSnapshot, path: str | os.PathLike[str]) -> None:
        """Write a document: ``.json``, ``.json.gz`` or ``.json.zst``, all of it or nothing."""
        write_document(snapshot, path)

    def from_file(
        self,
        path: str | os.PathLike[str],
        *,
        allow_modified: bool = False,
        max_bytes: int | None = None,
        limits: DocumentLimits = DEFAULT_LIMITS,
        trusted: Iterable[PublicKey] | None = None,
    ) -> SessionSnapshot:
        """Read a document, and check all of it.

        ``allow_modified`` takes one that was edited on purpose; ``limits`` bounds what is read,
        and ``max_bytes`` is short for limits with this one. With ``trusted`` it must be signed by
        one of these keys.
        """
        if max_bytes is not None:
            limits = replace(limits, max_bytes=max_bytes)
        return read_document(
            path,
            allow_modified=allow_modified,
            limits=limits,
            trusted=trusted,
            migrations=self._migrations,
        )

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
        return decode_document(
            tree, allow_modified=allow_modified, trusted=trusted, migrations=self._migrations
        )


def require_store(found: T | None) -> T:
    """Return what needs a state store, or refuse what cannot be done without one."""
    if found is None:
        raise StateStoreError(
            "this SnapshotManager has no state store, and only reads and writes documents; create "
            "it with SnapshotManager(state_store=...)"
        )
    return found


def suggest_names(name: str, known: list[str]) -> str:
    """The names that are nearest to one that is not there, for an error."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.4) or known[:3]
    return f"; there are {', '.join(close)}" if close else "; there is none at all"
