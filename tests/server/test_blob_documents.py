"""Documents that are downloaded embed blobs, and uploads import them."""

from __future__ import annotations

from holdfast import Document, Session
from holdfast.documents import export
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.blob_documents import DIGESTS, NOTE, TEXT, VALUE, make_blob_session
from support.rest_api import connect, expect_ok

PATH = "/agents/bot/sessions/ses/document"


@async_test
async def test_a_downloaded_document_can_be_uploaded():
    source, target = MemoryStateStore(), MemoryStateStore()
    await make_blob_session(source)
    data = expect_ok(await connect(source).get(PATH))
    assert sorted(data["blobs"]) == DIGESTS
    assert Document.from_dict(data).state.values["value"] == VALUE
    api = connect(target)
    expect_ok(await api.post("/agents/snapshot/restore?dry_run=true", json=data))
    assert [key async for key in target.list("")] == []
    expect_ok(await api.post("/agents/snapshot/restore", json=data))
    session = await Session.open(target, agent_id="bot", session_id="ses")
    assert session.messages[0]["content"] == TEXT
    assert session.get("value") == VALUE
    assert await session.read_attachment(session.get("note")) == NOTE
    # Paths of files mean nothing to a server.
    data["blobs"] = {
        digest: {"size": data["blobs"][digest]["size"], "file": f"a.blobs/{digest}"}
        for digest in DIGESTS
    }
    expect_ok(await api.post("/agents/snapshot/restore", json={**data, "session_id": "ses"}))
    data["blobs"][DIGESTS[0]]["file"] = f"../a.blobs/{DIGESTS[0]}"
    answer = await api.post("/agents/snapshot/restore", json=data)
    assert answer.status_code == 422
    assert "invalid path" in answer.text


@async_test
async def test_too_many_blobs_to_embed_are_an_error(monkeypatch):
    store = MemoryStateStore()
    await make_blob_session(store)
    monkeypatch.setattr(export, "check_embedded_size", lambda blobs, _: embed_nothing(blobs))

    def embed_nothing(blobs):
        check(blobs, export.DocumentLimits(max_embedded_bytes=1))

    answer = await connect(store).get(PATH)
    assert answer.status_code < 500
    assert "can be embedded" in answer.text


check = export.check_embedded_size
