"""Documents: as files, imported, and redacted.

What is read is written and read as the same document. An import does what its dry run reports, and
an import that is refused writes nothing.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from pathlib import Path
from typing import Any

import zstandard
from hypothesis import strategies as st

from holdfast import Document, HoldfastError, Redactor, Session, SnapshotManager
from holdfast.stores.memory import MemoryStateStore
from trials.fuzz.stored import read_content
from trials.fuzz.strategies import dump_json, mutated_bytes, mutated_json, trees
from trials.fuzz.target import Target
from trials.fuzz.values import VALUES

FIELDS = (
    *("schema_version", "snapshot_id", "parent_id", "agent_id", "session_id", "scope", "state"),
    *("created_at", "tags", "events", "digest", "signatures"),
)
STATE_FIELDS = (
    *("messages", "message_keys", "values", "session", "namespaces", "status", "seq", "id"),
    *("type", "at", "data", "changes", "set", "delete", "base"),
)
SECRET = "AKIAIOSFODNN7EXAMPLE"  # an example of the vendor's documentation


async def write_documents() -> list[dict[str, Any]]:
    """Return documents of a session: whole, with required fields only, and without events."""
    store = MemoryStateStore()
    async with Session.open(store, agent_id="research bot/ü", session_id="ses 1") as session:
        session.status = "running"
        session.add_message("user", f"My key is {SECRET}, write to ada@example.com")
        session.add_message("assistant", [{"type": "text", "text": "Ok"}], tool_calls=[])
        for number, value in enumerate(VALUES[:-1]):
            session.set(f"value {number}", value)
        session.record("tool.called", {"tool": "search", "password": "hunter2hunter2"})
        await session.save(tags={"env": "production"})
        session.delete("value 1")
        await session.save()
    manager = SnapshotManager(state_store=store)
    whole = manager.to_dict(await manager.export_session(agent_id="research bot/ü"))
    bare = {name: whole[name] for name in ("schema_version", "agent_id", "session_id", "state")}
    left_out = ("digest", "events", "event_log_count")
    return [whole, bare, {name: whole[name] for name in whole if name not in left_out}]


class Redaction(Target):
    """Documents that are read and redacted: still documents, and without the secret."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.path = folder / "document.json"
        documents = asyncio.run(write_documents())
        self.valid = [dump_json(document) for document in documents]
        changes = st.dictionaries(st.sampled_from(FIELDS), trees(*FIELDS), max_size=3)
        state = st.dictionaries(st.sampled_from(STATE_FIELDS), trees(*STATE_FIELDS), max_size=3)
        self.inputs = mutated_json(documents) | st.builds(
            lambda state, changes: dump_json({**documents[1], "state": state, **changes}),
            state,
            changes,
        )
        self._redactor = Redactor(paths=["values.*.role", "messages[*].content"])

    def check(self, data: bytes) -> None:
        """Read, redact, write and read again."""
        self.path.write_bytes(data)
        manager = SnapshotManager(state_store=MemoryStateStore())
        document = manager.from_file(self.path, allow_modified=True)
        text = dump_json(self._redactor.redact(document).to_dict())
        assert SECRET.encode() not in text, "the secret is still there"
        try:
            again = Document.from_dict(json.loads(text), allow_modified=True)
        except HoldfastError as error:
            raise AssertionError("a redacted document is invalid") from error
        assert again.event_log_count == document.event_log_count, "redaction lost events"


class Documents(Redaction):
    """Documents that are read, written and imported."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder / "documents"
        self._folder.mkdir(exist_ok=True)
        self.path = self._folder / "document.json"
        whole = self.valid[0]
        packed = [gzip.compress(whole), zstandard.compress(whole), b"\xef\xbb\xbf" + whole]
        self.valid = [*self.valid, *packed]
        self.inputs |= (
            mutated_bytes(self.valid, self.valid)
            | self.inputs.map(gzip.compress)
            | self.inputs.map(zstandard.compress)
        )

    def check(self, data: bytes) -> None:
        """Read, write and import."""
        self.path.write_bytes(data)
        store = MemoryStateStore()
        manager = SnapshotManager(state_store=store)
        document = manager.from_file(self.path, allow_modified=zlib.crc32(data) % 2 == 0)
        expected = dump_json(document.to_dict())  # as a text, where NaN equals itself
        for name in ("again.json", "again.json.gz"):
            manager.to_file(document, self._folder / name)
            again = manager.from_file(self._folder / name, allow_modified=True)
            assert dump_json(again.to_dict()) == expected, "it reads as something else"
        assert len(list(self._folder.iterdir())) == 3, "there are other files"
        asyncio.run(self._import(store, manager, document))

    async def _import(
        self, store: MemoryStateStore, manager: SnapshotManager, document: Document
    ) -> None:
        try:
            planned = await manager.import_session(document, dry_run=True)
        finally:
            assert not await read_content(store), "a dry run wrote something"
        try:
            done = await manager.import_session(document)
        except HoldfastError as error:
            raise AssertionError("an import is refused, and its dry run was not") from error
        assert planned.messages_restored == done.messages_restored
        assert planned.diff == done.diff, "an import differs from its dry run"
        session = await Session.open(
            store, agent_id=document.agent_id, session_id=document.session_id, scope=document.scope
        )
        assert session.snapshot().digest == document.digest, "the import has another digest"
        verification = await session.verify()
        assert verification.ok, f"the import is damaged: {verification.damage}"
