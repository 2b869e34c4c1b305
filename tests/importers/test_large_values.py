"""Large values that other tools wrote become blobs."""

from __future__ import annotations

import base64
import json

from holdfast import Session, SnapshotManager
from holdfast.importers.registry import read_source
from holdfast.importers.snapshots import save_snapshots
from holdfast.importers.source import open_source
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.blob_documents import DATA, TEXT, digest_of

IMAGE = "data:image/png;base64," + base64.b64encode(DATA).decode()
MESSAGES = [
    {"role": "user", "content": TEXT},
    {"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": IMAGE}}]},
    {"role": "user", "content": TEXT},
]


@async_test
async def test_large_messages_are_stored_once_as_blobs(tmp_path):
    path = tmp_path / "chat.json"
    path.write_text(json.dumps(MESSAGES))
    with open_source(str(path)) as source:
        (document,) = read_source(source, None).documents
    assert sorted(document.blobs) == sorted([digest_of(TEXT), digest_of(IMAGE)])
    assert document.state.messages == MESSAGES
    assert [event.changes["set"][0][2] for event in document.events[1:]] == MESSAGES
    store = MemoryStateStore()
    manager = SnapshotManager(store)
    result = await manager.import_session(document)
    await save_snapshots(manager, document, result)
    session = await Session.open(store, agent_id=result.agent_id, session_id=result.session_id)
    assert session.messages == MESSAGES
    assert (await session.verify()).damage == []
    stored = [(await store.get(key)).value async for key in store.list(session.location.prefix)]
    assert sum(map(len, stored)) < 1.1 * (len(TEXT.encode()) + len(IMAGE))
    assert [step async for step in session.events.read()][1].changes["set"][0][2] == MESSAGES[0]
