"""Documents with and without large values and attachments."""

from __future__ import annotations

import json

import pytest

from holdfast import NotFoundError
from support.async_tests import async_test
from support.blob_sessions import (
    CHART,
    FILE,
    LARGE_BYTES,
    LONG_TEXT,
    PATH,
    SESSION,
    blob_reads,
    digest_of,
    record_blobs,
)
from support.observed_store import ObservedStore
from support.rest_api import connect, expect_ok, expect_problem, open_session

EXPORT = f"/agents/{SESSION}/snapshot"
IMPORT = "/agents/snapshot/restore"


async def connect_to_blobs():
    """Return an observed store with large values, a client of it, and the snapshot ids."""
    store = ObservedStore()
    ids = await record_blobs(store)
    store.forget()
    return store, connect(store), ids


@async_test
async def test_document_embeds_attachments_and_is_imported_with_them():
    store, api, (_, second, _) = await connect_to_blobs()
    document = (await api.get(EXPORT, params={"snapshot_id": second})).content
    assert json.loads(document)["blobs"][digest_of(FILE)]["data"]
    done = expect_ok(await api.post(IMPORT, params={"session_id": "copy"}, content=document))
    assert done["created"]
    copy = await open_session(store, session_id="copy")
    assert copy.get("raw") == LARGE_BYTES
    assert copy.messages[1]["content"] == LONG_TEXT
    assert await copy.read_attachment(copy.get("report")) == FILE
    assert (await copy.verify()).damage == []


@async_test
async def test_document_without_attachments_reads_and_sends_none():
    store, api, _ = await connect_to_blobs()
    for path in (EXPORT, f"{PATH}/document"):
        response = await api.get(path, params={"attachments": "omit"})
        assert len(response.content) < 20_000
        assert response.json()["blobs"][digest_of(FILE)] == {"size": len(FILE)}
        tag = {"If-None-Match": response.headers["etag"]}
        again = await api.get(path, params={"attachments": "omit"}, headers=tag)
        assert again.status_code == 304
        assert (await api.get(path, headers=tag)).status_code == 200
        store.forget()
    expect_problem(await api.get(EXPORT, params={"attachments": "folder"}), 422)


@async_test
async def test_omitted_attachments_are_missing_only_where_they_are_read():
    store, api, _ = await connect_to_blobs()
    omitted = (await api.get(EXPORT, params={"attachments": "omit"})).content
    assert blob_reads(store) == []
    embedded = (await api.get(EXPORT)).content
    for name, document, query in (
        ("one", omitted, {}),
        ("two", embedded, {"attachments": "omit"}),
    ):
        query = {**query, "session_id": name}
        expect_ok(await api.post(IMPORT, params=query, content=document))
        copy = await open_session(store, session_id=name)
        first = copy.snapshot().get("messages", "000000000000")
        assert first["content"] == "What is in this report?"
        with pytest.raises(NotFoundError, match=digest_of(CHART)):
            await copy.read_attachment(copy.get("chart"))
        path = PATH.replace(SESSION, name)
        expect_problem(await api.get(f"{path}/blobs/{digest_of(CHART)}"), 404)
        state = expect_ok(await api.get(f"{path}/state"))["state"]
        assert state["values"]["chart"]["$attachment"][0] == digest_of(CHART)
    # An import of the whole document brings them back.
    expect_ok(await api.post(IMPORT, params={"session_id": "one"}, content=embedded))
    copy = await open_session(store, session_id="one")
    assert await copy.read_attachment(copy.get("chart")) == CHART


@async_test
async def test_too_much_to_embed_is_a_problem(monkeypatch):
    from holdfast.documents.limits import DEFAULT_LIMITS

    _, api, _ = await connect_to_blobs()
    monkeypatch.setattr(type(DEFAULT_LIMITS), "__setattr__", object.__setattr__)
    monkeypatch.setattr(DEFAULT_LIMITS, "max_embedded_bytes", 1_000_000)
    tree = expect_problem(await api.get(EXPORT), 422, "1,000,000")
    assert "attachments=omit" in tree["hint"]
    expect_ok(await api.get(EXPORT, params={"attachments": "omit"}))
