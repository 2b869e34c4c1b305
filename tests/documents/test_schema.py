"""Documents match the JSON Schema, and what it rejects is not read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from holdfast import Document, InvalidDocumentError, RetentionPolicy
from holdfast.documents.encode import encode_chunks
from holdfast.log.event import draft_event
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.blob_documents import make_blob_document
from support.conversations import open_session
from support.sample_documents import (
    edit_json,
    freeze,
    make_document,
    make_document_with_events,
    make_full_document,
)
from support.sample_values import SAMPLES

SCHEMA = Path(__file__).parent.parent.parent / "docs" / "spec" / "document.schema.json"


async def iterate_documents():
    """Yield documents of every kind with a name."""
    store = MemoryStateStore()
    session = await open_session(store)
    for number, text in enumerate("abcdef"):
        session.add_message("user", text)
        session.record("tool.called", {"args": SAMPLES})
        await session.save(tags={"number": str(number)})
    yield "whole", await session.export(tags={"env": "production"})
    session.record("forgotten", changes={"set": [], "delete": [("messages", "000000000000")]})
    await session.commit()
    yield "odd message keys", await session.export()
    await session.archive.prune(location=session.location, policy=RetentionPolicy(last=2))
    yield "pruned", await session.export()
    crew = await open_session(store, scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "draft")
    crew.agent("critic").set("step", 1)
    await crew.once("mail", lambda: b"sent")
    await crew.commit()
    yield "several agents", await crew.export()
    values = [("state", name, value) for name, value in SAMPLES.items()]
    yield "all values", make_document(freeze(*values, ("session", "status", "failed")))
    yield "odd keys", make_document(freeze(("messages", "x", 1), ("$set", "$map", 1)))
    yield "no status", make_document(freeze(("session", "status", 7), ("session", "x", None)))
    yield "full", make_full_document()
    yield "embedded blobs", await make_blob_document()
    yield "omitted blobs", await make_blob_document("omit")
    yield (
        "events",
        make_document_with_events(
            draft_event("state.set", set_=list(values)), after=3, prev="ab" * 32
        ),
    )


async def collect_documents():
    return {name: document async for name, document in iterate_documents()}


REAL = run_async(collect_documents())
VALIDATOR = Draft202012Validator(json.loads(SCHEMA.read_text()))


def test_the_json_schema_is_valid():
    Draft202012Validator.check_schema(VALIDATOR.schema)


def test_the_sample_documents_cover_the_schema():
    assert REAL["pruned"].base is not None
    assert REAL["several agents"].scope == "multi_agent"
    assert "message_keys" in REAL["odd message keys"].to_dict()["state"]
    assert REAL["all values"].state.values.keys() == SAMPLES.keys()


@pytest.mark.parametrize("name", REAL)
def test_documents_match_the_json_schema(name):
    tree = json.loads(b"".join(encode_chunks(REAL[name].to_dict())))
    VALIDATOR.validate(tree)
    assert Document.from_dict(tree).digest == REAL[name].digest
    migrated = {**tree, "values_version": 3, "later": {"any": [1]}}
    VALIDATOR.validate(migrated)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema_version",), 2),
        (("schema_version",), ...),
        (("agent_id",), ""),
        (("session_id",), "x" * 257),
        (("session_id",), ...),
        (("snapshot_id",), "a/b"),
        (("scope",), "group"),
        (("tags",), {"a": 1}),
        (("tags",), []),
        (("state",), ...),
        (("state",), []),
        (("state", "status"), 7),
        (("state", "messages"), {}),
        (("state", "values"), []),
        (("state", "message_keys"), ["a", "a"]),
        (("state", "session"), {"status": "running"}),
        (("state", "namespaces"), {"once": []}),
        (("state", "namespaces"), {"messages": {}}),
        (("event_log_count",), -1),
        (("events",), {}),
        (("events", 0, "seq"), 0),
        (("events", 0, "seq"), ...),
        (("events", 0, "id"), ...),
        (("events", 0, "at"), 7),
        (("events", 0, "changes"), []),
        (("events", 0, "changes", "set"), [["state", "key"]]),
        (("events", 0, "changes", "delete"), [["state"]]),
        (("base",), []),
        (("blobs",), []),
        (("blobs",), {"x": {"size": 1}}),
        (("blobs",), {"ab" * 32: {}}),
        (("blobs",), {"ab" * 32: {"size": -1}}),
        (("blobs",), {"ab" * 32: {"size": 1, "data": 7}}),
        (("blobs",), {"ab" * 32: {"size": 1, "file": f"../a.blobs/{'ab' * 32}"}}),
    ],
)
def test_documents_that_the_json_schema_rejects_are_rejected_on_reading(path, value):
    tree = edit_json(REAL["full"].to_dict(), *path, to=value)
    assert not VALIDATOR.is_valid(tree)
    with pytest.raises(InvalidDocumentError):
        Document.from_dict(tree)
