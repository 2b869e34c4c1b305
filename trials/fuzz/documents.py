"""Documents: as files, as JSON data, imported, redacted.

What is read is written and read again as the same. What is imported is there afterwards, and where
an import is refused, nothing is.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import zstandard
from hypothesis import strategies as st

from holdfast import Document, HoldfastError, Session, SnapshotManager
from holdfast.redaction.redactor import Redactor
from holdfast.stores.memory import MemoryStateStore
from trials.fuzz import junk
from trials.fuzz.mutation import changed_bytes, changed_json, written
from trials.fuzz.stored import content_of
from trials.fuzz.trying import Target, Wrong
from trials.fuzz.values import REAL

NAMES = (
    *(
        "schema_version",
        "snapshot_id",
        "parent_id",
        "agent_id",
        "session_id",
        "scope",
        "created_at",
    ),
    *("tags", "state", "events", "digest", "base", "messages", "message_keys", "values", "session"),
    *("namespaces", "status", "seq", "id", "type", "at", "data", "changes", "set", "delete"),
    "signatures",
)
SECRET = "AKIAIOSFODNN7EXAMPLE"  # an example of the vendor's documentation


async def real_documents() -> list[dict[str, Any]]:
    """Documents of a session with everything in it, of a pruned one, of an edited one."""
    store = MemoryStateStore()
    async with Session.open(store, agent_id="research bot/ü", session_id="ses 1") as session:
        session.status = "running"
        session.add_message("user", f"My key is {SECRET}, write to ada@example.com")
        session.add_message("assistant", [{"type": "text", "text": "Ok"}], tool_calls=[])
        for number, value in enumerate(REAL[:-1]):
            session.set(f"value {number}", value)
        session.record("tool.called", {"tool": "search", "password": "hunter2hunter2"})
        await session.save(tags={"env": "production"})
        session.delete("value 1")
        await session.save()
    manager = SnapshotManager(state_store=store)
    whole = manager.to_dict(await manager.export_session(agent_id="research bot/ü"))
    bare = {name: whole[name] for name in ("schema_version", "agent_id", "session_id", "state")}
    edited = json.loads(json.dumps(whole))
    del edited["digest"], edited["events"], edited["event_log_count"]
    return [whole, bare, edited]


class Documents(Target):
    """The reader of documents, the writer, and the import of what it read."""

    name = "documents"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._folder = folder / self.name
        self._folder.mkdir(exist_ok=True)
        self._texts = [json.dumps(tree).encode() for tree in asyncio.run(real_documents())]
        whole = self._texts[0]
        self._packed = [
            gzip.compress(whole, mtime=0),
            zstandard.compress(whole),
            b"\xef\xbb\xbf" + whole,
        ]
        self._runner = asyncio.Runner()
        self._runner.get_loop()

    @property
    def corpus(self) -> Sequence[bytes]:
        """Documents, plain and packed."""
        return [*self._texts, *self._packed]

    def mutated(self, rng: Random) -> bytes:
        """Damaged JSON, sometimes packed, or damage to what is packed."""
        kind = rng.randrange(8)
        if kind < 2:
            return changed_bytes(rng, rng.choice(self.corpus), self.corpus)
        text = changed_json(rng, rng.choice(self._texts))
        if kind == 2:
            return gzip.compress(text, 1)
        return zstandard.compress(text) if kind == 3 else text

    def made_up(self) -> st.SearchStrategy[bytes]:
        """A small document with something else in place of some of its fields."""
        bare = json.loads(self._texts[1])
        fields = st.dictionaries(st.sampled_from(NAMES), junk.trees(NAMES), max_size=3)
        state = st.dictionaries(st.sampled_from(NAMES[13:]), junk.trees(NAMES), max_size=3)
        return st.builds(
            lambda more, inner: written({**bare, "state": inner, **more}), fields, state
        )

    def attempt(self, data: bytes) -> None:
        """Read it from a file, write it, import it."""
        path = self._folder / "document.json"
        path.write_bytes(data)
        store = MemoryStateStore()
        manager = SnapshotManager(state_store=store)
        document = manager.from_file(path, allow_modified=zlib.crc32(data) % 2 == 0)
        for name in ("again.json", "again.json.gz"):
            manager.to_file(document, self._folder / name)
            again = manager.from_file(self._folder / name, allow_modified=True)
            self._check_same(document, again)
        if len(list(self._folder.iterdir())) != 3:
            raise Wrong("there are files that nobody asked for")
        self._runner.run(self._import(store, manager, document))

    def _check_same(self, document: Document, again: Document) -> None:
        if again.to_dict() != document.to_dict() and written(again.to_dict()) != written(
            document.to_dict()
        ):
            raise Wrong("what was read is written, and then reads as something else")

    async def _import(
        self, store: MemoryStateStore, manager: SnapshotManager, document: Document
    ) -> None:
        try:
            told = await manager.import_session(document, dry_run=True)
        finally:
            if await content_of(store):
                raise Wrong("a dry run wrote something")
        try:
            done = await manager.import_session(document)
        except HoldfastError as error:
            raise Wrong(f"a dry run takes it, and an import does not: {error}") from error
        if (told.messages_restored, told.diff) != (done.messages_restored, done.diff):
            raise Wrong("an import did something else than its dry run said")
        session = await Session.open(
            store, agent_id=document.agent_id, session_id=document.session_id, scope=document.scope
        )
        if session.snapshot().digest != document.digest:
            raise Wrong("what was imported has another digest")
        verification = await session.verify()
        if not verification.ok:
            raise Wrong(f"what was imported is damaged: {verification.damage[0]}")

    def close(self) -> None:
        """End its loop."""
        self._runner.close()


class Redaction(Documents):
    """Documents that are read and redacted: still documents, and the secret is gone."""

    name = "redaction"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._redactor = Redactor(paths=["values.*.role", "messages[*].content"])

    @property
    def corpus(self) -> Sequence[bytes]:
        """Plain documents."""
        return self._texts

    def mutated(self, rng: Random) -> bytes:
        """Damaged JSON."""
        return changed_json(rng, rng.choice(self._texts))

    def attempt(self, data: bytes) -> None:
        """Read, redact, write, read."""
        path = self._folder / "document.json"
        path.write_bytes(data)
        document = SnapshotManager(state_store=MemoryStateStore()).from_file(
            path, allow_modified=True
        )
        found = self._redactor.redact(document).to_dict()
        text = written(found)
        if SECRET.encode() in text:
            raise Wrong("a secret is still there")
        try:
            # Where the events did not lead to the state before, they do not afterwards.
            again = Document.from_dict(json.loads(text), allow_modified=True)
        except HoldfastError as error:
            raise Wrong(f"what was redacted is no document: {error}") from error
        if again.event_log_count != document.event_log_count:
            raise Wrong("redacting lost events")
