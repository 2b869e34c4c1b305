"""The JSON text of a document, as a whole and in chunks."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from holdfast import Document, Store
from holdfast.documents.encode import CHUNK_BYTES, encode_chunks
from support.async_tests import async_test
from support.conversations import make_large_session


def join(chunks):
    return b"".join(chunks)


@async_test
async def test_chunks_join_to_the_text_of_the_whole_document():
    session = await make_large_session()
    session.set("plan", {1: (2, 3)})
    session.status = "completed"
    await session.commit()
    for found in (
        await session.export(tags={"a": "b"}),
        replace(await session.export(), extra={"x": [], "y": {}}, state_extra={"z": [1, {}]}),
    ):
        chunks = list(found.chunks())
        assert join(chunks) == join(encode_chunks(found.to_dict()))
        assert min(map(len, chunks[:-1])) >= CHUNK_BYTES


@pytest.mark.parametrize("namespace", ["messages", "state", "session", "own", "once"])
def test_any_namespace_is_encoded_and_decoded(namespace):
    store = Store()
    store.set(namespace, "key", {"a": dt.date(2026, 1, 2)})
    for snapshot in (Store().snapshot(), store.snapshot()):
        found = Document(snapshot=snapshot, agent_id="bot", session_id="ses")
        assert join(found.chunks()) == join(encode_chunks(found.to_dict()))
        assert Document.from_dict(found.to_dict()).digest == found.digest


def test_the_text_has_one_line_per_item():
    tree = {"a": 1, "state": {"messages": [], "values": {"x": [1]}, "more": {}}, "events": [{}]}
    expected = (
        b'{\n "a": 1,\n "state": {\n  "messages": [],\n  "values": {\n  "x": [1]},\n'
        b'  "more": {}},\n "events": [\n  {}]\n}\n'
    )
    assert join(encode_chunks(tree)) == expected
    tree["events"] = iter([tree["events"]])  # batches of items
    tree["state"]["messages"] = iter([])
    assert join(encode_chunks(tree)) == expected
