"""A session with large values and attachments, and its document in each form."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from holdfast import Document, Session, SnapshotManager, StateStore, read_document
from holdfast.stores.memory import MemoryStateStore

TEXT = "größe " * 12_000
DATA = bytes(range(256)) * 300
NOTE = b"a note"
VALUE: dict[str, Any] = {"image": DATA, "nested": (TEXT, {1: DATA}, frozenset([TEXT]))}
MODES = ("embed", "folder", "omit")


def digest_of(content: bytes | str) -> str:
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


DIGESTS = sorted(map(digest_of, (TEXT, DATA, NOTE)))


async def make_blob_session(store: StateStore | None = None, session_id: str = "ses") -> Session:
    """Commit a session with a large text, large bytes, and an attachment."""
    store = MemoryStateStore() if store is None else store
    session = await Session.open(store, agent_id="bot", session_id=session_id)
    session.add_message("user", TEXT)
    session.set("value", VALUE)
    session.set("note", await session.attach(NOTE, media_type="text/plain", name="note.txt"))
    session.record("tool.called", {"result": TEXT})
    await session.save()
    return session


async def make_blob_document(attachments: Any = "embed") -> Document:
    session = await make_blob_session()
    return await session.export(attachments=attachments)


def write_and_read(document: Document, folder: Path, mode: Any, name: str = "a.json") -> Document:
    SnapshotManager().to_file(document, folder / name, attachments=mode)
    return read_document(folder / name)


def check_contents(document: Document) -> None:
    """Check that all values of the document of `make_blob_session` are there."""
    assert document.state.messages == [{"role": "user", "content": TEXT}]
    assert document.state.values["value"] == VALUE
    assert document.blobs[document.state.values["note"].digest] == NOTE
    assert document.events[-1].data == {"result": TEXT}
    assert document.events[1].changes["set"][0][2]["content"] == TEXT
    assert sorted(document.blobs) == DIGESTS
