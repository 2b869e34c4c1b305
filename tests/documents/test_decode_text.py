"""Decoding the text of a document item by item gives what decoding its JSON data gives."""

from __future__ import annotations

import json

import pytest

from holdfast import Document, IntegrityError, InvalidDocumentError, Session, read_document
from holdfast.documents import files
from holdfast.documents.decode_text import decode_text
from holdfast.snapshots import RetentionPolicy
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.sample_values import SAMPLES


async def export_sample(*, prune=False):
    """Export a session with messages, values, deletions and an event with unusual data."""
    session = await Session.open(MemoryStateStore(), agent_id="bot", session_id="ses")
    for number in range(6):
        session.add_message("user", f"hello {number}", score=number / 3, raw=b"x")
        session.set(f"key {number % 2}", {"b": number, "a": [None, True]})
        await session.save()
    session.pop_message()
    session.delete("key 0")
    session.record("tool.called", {"set": {1, 2}}, changes={"set": [("n", "k", 1)], "delete": []})
    await session.commit()
    if prune:
        await session.save()
        policy = RetentionPolicy(last=1)
        await session.archive.prune(location=session.location, policy=policy)
        session.set("later", 1)
        await session.commit()
    return await session.export()


SAMPLE = run_async(export_sample())
TEXT = SAMPLE.to_json().encode()
TREE = json.loads(TEXT)


@pytest.mark.parametrize("prune", [False, True])
def test_a_document_is_decoded_like_its_json_data(prune):
    document = run_async(export_sample(prune=prune))
    text = document.to_json().encode()
    decoded = decode_text(text)
    assert decoded is not None
    found, expected = Document(**decoded.finish()), Document.from_dict(json.loads(text))
    assert found.to_dict() == expected.to_dict()
    assert found.digest == expected.digest == document.digest


@pytest.mark.parametrize("size", [1, 2, 5])
def test_events_are_decoded_in_blocks(monkeypatch, size):
    monkeypatch.setattr("holdfast.documents.decode_text.EVENTS_PER_BLOCK", size)
    decoded = decode_text(TEXT)
    assert decoded is not None
    found = Document(**decoded.finish())
    assert found.events == Document.from_dict(TREE).events
    assert max(len(block.hashes) for block in found.events.blocks) == size
    assert found.to_json().encode() == TEXT


def test_a_state_with_another_order_of_names_is_accepted():
    tree = json.loads(TEXT)
    tree["state"]["values"]["key 1"] = dict(reversed(tree["state"]["values"]["key 1"].items()))
    text = json.dumps(tree).encode()
    assert decode_text(text) is None
    assert read_document(text).digest == SAMPLE.digest


def test_values_of_all_types_are_decoded():
    async def export():
        session = await Session.open(MemoryStateStore(), agent_id="bot", session_id="ses")
        for name, value in SAMPLES.items():
            session.append_message({"role": "user", "content": value})
            session.set(name, value)
        await session.commit()
        return await session.export()

    text = run_async(export()).to_json().encode()
    decoded = decode_text(text)
    assert decoded is not None
    assert Document(**decoded.finish()).to_json().encode() == text


def change(path, value):
    """Return the text of the sample with one value replaced, or removed if it is None."""
    tree = json.loads(TEXT)
    *parents, last = path
    inner = tree
    for name in parents:
        inner = inner[name]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return json.dumps(tree).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["digest"], "sha256:0"),
        (["digest"], None),
        (["events", 2, "type"], "other"),
        (["events", 2, "hash"], "0" * 64),
        (["events", 3, "seq"], 9),
        (["events", 1], 5),
        (["events", 4], None),
        (["event_log_count"], 3),
        (["state", "messages", 0, "content"], "other"),
        (["state", "messages", 0], None),
        (["state", "messages"], {}),
        (["state", "values", "key 1"], 7),
        (["agent_id"], 5),
        (["scope"], "other"),
        (["schema_version"], 99),
        (["tags"], [1]),
    ],
)
def test_an_invalid_document_has_the_same_error_as_its_json_data(path, value):
    text = change(path, value)
    with pytest.raises((InvalidDocumentError, IntegrityError)) as expected:
        Document.from_dict(json.loads(text))
    with pytest.raises(type(expected.value)) as found:
        read_document(text)
    assert str(found.value) == str(expected.value)


def test_unknown_fields_are_preserved():
    tree = {**TREE, "note": {"x": 1}}
    tree["digest"] = Document.from_dict(tree, allow_modified=True).document_digest()
    found = read_document(json.dumps(tree).encode())
    assert found.extra == {"note": {"x": 1}}


def test_the_text_is_not_parsed_as_a_whole(monkeypatch):
    monkeypatch.setattr(files, "parse_json", None)
    assert read_document(TEXT).to_json().encode() == TEXT
