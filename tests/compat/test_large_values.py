"""Documents that earlier versions wrote with large values inline are read and kept as they are."""

from __future__ import annotations

from pathlib import Path

from holdfast import Session, SnapshotManager, read_document, replay, write_document
from holdfast.documents.signing import PublicKey, verify_signature
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.blob_documents import DATA, TEXT

PATH = Path(__file__).parent / "v1" / "large_values.json.gz"
KEY = PublicKey.from_file(PATH.with_name("large_values.pub"))
VALUE = {"image": DATA, "nested": (TEXT, {1: DATA})}


def check(document):
    assert document.state.messages == [{"role": "user", "content": TEXT}]
    assert document.state.values == {"value": VALUE}
    assert document.events[-1].data == {"result": TEXT}
    assert [step.after.digest for step in replay(document)][-1] == document.digest
    assert document.blobs.entries == []


def test_the_digest_and_the_signature_stay_valid(tmp_path):
    document = read_document(PATH)
    check(document)
    assert verify_signature(document, [KEY]) == (KEY,)
    write_document(document, tmp_path / "a.json")
    again = read_document(tmp_path / "a.json", trusted=[KEY])
    check(again)
    assert again.to_dict() == document.to_dict()


@async_test
async def test_such_a_document_is_imported_and_continued():
    store = MemoryStateStore()
    document = read_document(PATH)
    result = await SnapshotManager(store).import_session(document, trusted=[KEY])
    assert (result.created, result.events_restored) == (True, len(document.events))
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.get("value") == VALUE
    assert session.snapshot().digest == document.digest
    assert list(session.events)[:-1] == list(document.events)
    session.set("copy", TEXT)
    await session.save()
    exported = await session.export()
    assert exported.state.values == {"value": VALUE, "copy": TEXT}
    assert len(exported.blobs) == 1
    result = await SnapshotManager(store).import_session(document)
    assert result.diff == {"added": [], "removed": [("state", "copy")], "changed": []}
    assert (await session.verify()).damage == []
