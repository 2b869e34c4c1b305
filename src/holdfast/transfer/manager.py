"""SnapshotManager: export sessions as documents, and import documents as sessions."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, TypeVar

from holdfast.documents.blobs import EMBED, Attachments
from holdfast.documents.document import Document, require_document
from holdfast.documents.export import export_document
from holdfast.documents.files import decode_document, read_document, write_document
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
from holdfast.documents.value_migrations import VALUES_VERSION
from holdfast.errors import NotFoundError, StateStoreError, short_repr
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.keys import SCOPES, SnapshotLocation, validate_id
from holdfast.snapshots.manifest import read_manifests
from holdfast.snapshots.records import validate_tags
from holdfast.stores.base import StateStore
from holdfast.transfer.import_document import ImportResult, import_document

T = TypeVar("T")

Redaction: TypeAlias = Callable[[Document], Document]

MAX_SUGGESTIONS_READ = 1000


class SnapshotManager:
    """Exports sessions as documents and imports documents as sessions.

    Without a state store it can only read and write documents. ``migrations`` are applied to the
    user's values when a document is read, and their version is written to new documents.
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
        """The state store.

        Raises:
            StateStoreError: The manager was created without one.

        """
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
        attachments: Attachments = EMBED,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> Document:
        """Export a session with its events: its committed state, or an earlier one.

        Args:
            agent_id: The agent.
            session_id: The session; by default the agent's session with the newest commit.
            snapshot_id: Export this snapshot.
            seq: Export the state after the event of this number.
            scope: The scope, if the agent has the session in both.
            tags: Tags to add to those of the snapshot.
            redact: A function that removes secrets, such as `Redactor.redact`.
            sign: The key to sign the document with.
            attachments: ``"embed"`` reads large values and attachments into the document,
                ``"folder"`` leaves them in the store until `to_file` writes them, and ``"omit"``
                leaves them out.
            limits: How much may be embedded.

        Raises:
            NotFoundError: There is no such agent, session, snapshot or event.
            IntegrityError: Stored data is damaged.
            DocumentTooLargeError: The attachments are too large to be embedded.
            StateStoreError: The store failed, or the manager has none.

        """
        wanted = validate_tags(tags)
        location = await self.locate(agent_id, session_id, scope=scope)
        document = await export_document(
            self.archive,
            location,
            snapshot_id=snapshot_id,
            seq=seq,
            tags=wanted,
            attachments=attachments,
            limits=limits,
        )
        if self._migrations is not None:
            extra = {**document.extra, VALUES_VERSION: self._migrations.version}
            document = replace(document, extra=extra)
        if redact is not None:
            document = redact(document)
        return document if sign is None else sign_document(document, sign)

    async def import_session(
        self,
        document: Document,
        *,
        dry_run: bool = False,
        agent_id: str | None = None,
        session_id: str | None = None,
        trusted: Iterable[PublicKey] | None = None,
    ) -> ImportResult:
        """Import a document as a session, under its own ids or others.

        If there is no such session, the document's events become its log. Otherwise its state
        becomes the document's, its log continues, and ``undo_id`` of the result is a snapshot of
        the previous state.

        Args:
            document: What to import.
            dry_run: Report what would change, and write nothing.
            agent_id: Import under this agent.
            session_id: Import under this session id.
            trusted: Require that one of these keys signed the document.

        Raises:
            InvalidDocumentError: The document's events are not a valid log.
            SignatureError: No trusted key signed it.
            ConflictError: Another writer changed the session; nothing was imported.
            StateStoreError: The store failed, or the manager has none.

        """
        require_document(document, "import_session")
        if trusted is not None:
            keys = validate_trusted_keys(trusted)
            if not keys.keys() & document.signed_by:
                document = record_signers(document, verify_signature(document, keys.values()))
        location = SnapshotLocation(
            document.session_id if session_id is None else validate_id(session_id, "session_id"),
            document.scope,
            document.agent_id if agent_id is None else validate_id(agent_id, "agent_id"),
        )
        return await import_document(self.state_store, document, location, dry_run=dry_run)

    async def locate(
        self, agent_id: str, session_id: str | None = None, *, scope: str | None = None
    ) -> SnapshotLocation:
        """Find a session of an agent, or its session with the newest commit.

        Raises:
            NotFoundError: There is no such agent or session; the message suggests similar names.

        """
        validate_id(agent_id, "agent_id")
        if scope not in (None, *SCOPES):
            raise ValueError(f"scope must be one of {', '.join(SCOPES)}, got {short_repr(scope)}")
        if session_id is None:
            latest = await self.catalog.latest_session(agent_id, scope=scope)
            if latest is None:
                raise await self._unknown_agent_error(agent_id)
            return latest.location
        locations = [
            each
            for each in await self.catalog.locations(session_id)
            if each.scope_id == agent_id and scope in (None, each.scope)
        ]
        manifests = await read_manifests(self.state_store, locations, creating=True)
        for location in locations:
            if location not in manifests or not manifests[location].is_claim:
                return location
        raise await self._unknown_session_error(agent_id, session_id)

    async def _unknown_agent_error(self, agent_id: str) -> NotFoundError:
        agents = await self.catalog.agents(limit=MAX_SUGGESTIONS_READ)
        return NotFoundError(
            f"no agent {short_repr(agent_id)} in this store{suggest_names(agent_id, agents)}"
        )

    async def _unknown_session_error(self, agent_id: str, session_id: str) -> NotFoundError:
        page = await self.catalog.sessions(agent_id, limit=MAX_SUGGESTIONS_READ)
        if not page.sessions:
            return await self._unknown_agent_error(agent_id)
        known = [entry.session_id for entry in page.sessions]
        return NotFoundError(
            f"agent {agent_id} has no session {short_repr(session_id)}"
            f"{suggest_names(session_id, known)}"
        )

    # --------------------------------------------------------------------------------- files

    def to_file(
        self,
        document: Document,
        path: str | os.PathLike[str],
        *,
        attachments: Attachments = EMBED,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> None:
        """Write a document atomically: ``.json``, ``.json.gz`` or ``.json.zst``.

        Args:
            document: What to write.
            path: The file.
            attachments: Embed large values and attachments, write them to the folder
                ``<path>.blobs`` before the document, or omit them.
            limits: How much may be embedded.

        Raises:
            StateStoreError: A file cannot be written.
            DocumentTooLargeError: The attachments are too large to be embedded.

        """
        write_document(document, path, attachments=attachments, limits=limits)

    def from_file(
        self,
        path: str | os.PathLike[str],
        *,
        allow_modified: bool = False,
        max_bytes: int | None = None,
        limits: DocumentLimits = DEFAULT_LIMITS,
        trusted: Iterable[PublicKey] | None = None,
    ) -> Document:
        """Read and validate a document, as `read_document` does.

        ``max_bytes`` replaces that of ``limits``.

        Raises:
            InvalidDocumentError: There is no such file, or it is not a valid document.
            SignatureError: No trusted key signed it.

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

    def to_dict(self, document: Document) -> dict[str, Any]:
        """Return a document as JSON data."""
        return require_document(document, "to_dict").to_dict()

    def from_dict(
        self,
        data: object,
        *,
        allow_modified: bool = False,
        trusted: Iterable[PublicKey] | None = None,
    ) -> Document:
        """Read and validate a document from JSON data, as `decode_document` does.

        Raises:
            InvalidDocumentError: It is not a valid document.
            SignatureError: No trusted key signed it.

        """
        return decode_document(
            data, allow_modified=allow_modified, trusted=trusted, migrations=self._migrations
        )


def require_store(value: T | None) -> T:
    """Return what depends on the state store, if the manager has one."""
    if value is None:
        raise StateStoreError(
            "this SnapshotManager has no state store; create it with "
            "SnapshotManager(state_store=...)"
        )
    return value


def suggest_names(name: str, known: list[str]) -> str:
    """Return the end of an error message that lists similar names, or the first ones."""
    if similar := difflib.get_close_matches(name, known, n=3, cutoff=0.4):
        return f"; did you mean {' or '.join(similar)}?"
    return f"; there are {', '.join(known[:3])}" if known else "; there are none"
