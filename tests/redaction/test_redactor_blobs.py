"""Secrets in large texts and attachments are redacted; what is not text is reported or dropped."""

from __future__ import annotations

import pytest

from holdfast import Document, NotFoundError, Redactor, Session, SnapshotManager
from holdfast.redaction.redactor import NOT_SEARCHED
from holdfast.stores.memory import MemoryStateStore
from holdfast.values.references import Attachment
from support.async_tests import async_test
from support.blob_documents import digest_of

SECRET = "sk-ant-api03-" + "aB3dE5gH7jK9" * 7 + "-abcdefgh"
MAIL = "ada@example.com"
FILLER = "The quick brown fox jumps over the lazy dog. " * 1600
BINARY = bytes(range(128, 256)) * 600
TEXTS = (FILLER + SECRET, (FILLER + MAIL).encode())


async def export_with(**values):
    session = await Session.open(MemoryStateStore(), agent_id="bot", session_id="ses")
    for key, value in values.items():
        if isinstance(value, tuple):
            content, options = value
            value = await session.attach(content, **options)
        session.set(key, value)
        session.record("x.y", {"seen": value})
    await session.commit()
    return await session.export()


def find_traces(document, *texts):
    """Return those of the texts that the document or one of its blobs still has."""
    data = document.to_json().encode() + b"".join(map(document.blobs.get, document.blobs))
    return [text for text in texts if text.encode() in data or text.encode("utf-16-le") in data]


@async_test
async def test_large_texts_are_redacted_and_references_follow():
    document = await export_with(text=TEXTS[0], data=TEXTS[1], small=f"mail {MAIL}")
    redacted = Redactor().redact(document)
    assert find_traces(document, SECRET, MAIL) == [SECRET, MAIL]
    assert find_traces(redacted, SECRET, MAIL) == []
    values = redacted.state.values
    assert values["text"].startswith(FILLER + "[redacted: ")
    assert values["data"] == (FILLER + "[redacted: email]").encode()
    seen = [event.data["seen"] for event in redacted.events if event.type == "x.y"]
    assert seen == [values["text"], values["data"], "mail [redacted: email]"]
    assert len(redacted.blobs) == 2
    again = Document.from_json(redacted.to_json())
    assert again.state.values == values
    assert (await SnapshotManager(MemoryStateStore()).import_session(again)).created


@async_test
async def test_attachments_that_are_text_are_redacted():
    document = await export_with(
        plain=(f"key {SECRET}".encode(), {"name": f"{MAIL} note.txt"}),
        latin=(f"für {MAIL}".encode("latin-1"), {"media_type": "text/plain; charset=latin-1"}),
        wide=(f"für {MAIL}".encode("utf-16"), {"media_type": "application/json"}),
        clean=(b"nothing here", {"name": "clean.txt"}),
    )
    redacted = Redactor().redact(document)
    assert find_traces(redacted, SECRET, MAIL) == []
    values = redacted.state.values
    assert values["plain"].name == "[redacted: email] note.txt"
    assert redacted.blobs[values["plain"].digest].startswith(b"key [redacted: ")
    assert redacted.blobs[values["latin"].digest] == "für [redacted: email]".encode("latin-1")
    assert redacted.blobs[values["wide"].digest].decode("utf-16") == "für [redacted: email]"
    assert values["clean"] == document.state.values["clean"]
    assert sorted(redacted.blobs) == sorted(each.digest for each in values.values())
    seen = [event.data["seen"] for event in redacted.events if event.type == "x.y"]
    assert seen == [values[key] for key in ("plain", "latin", "wide", "clean")]
    assert NOT_SEARCHED not in redacted.extra
    assert Document.from_json(redacted.to_json()).state.values == values


@async_test
async def test_binary_contents_are_reported_or_dropped():
    image = (BINARY, {"media_type": "image/png", "name": "a.png"})
    document = await export_with(image=image, data=BINARY + b"\xff", small=b"\xff\xfe")
    redacted = Redactor().redact(document)
    assert redacted.extra[NOT_SEARCHED] == [
        {"path": "values.data", "size": len(BINARY) + 1},
        {
            "path": "values.image",
            "size": len(BINARY),
            "media_type": "image/png",
            "name": "a.png",
        },
    ]
    assert redacted.state.values == document.state.values
    dropped = Redactor(drop_binary=True).redact(redacted)
    assert NOT_SEARCHED not in dropped.extra
    assert {each["kind"] for each in dropped.extra["redactions"]} == {"binary"}
    assert dropped.state.values["data"] == b"[redacted: binary]"
    assert dropped.state.values["small"] == b"\xff\xfe"
    found = dropped.state.values["image"]
    assert isinstance(found, Attachment)
    with pytest.raises(NotFoundError, match="binary, and was dropped"):
        _ = dropped.blobs[found.digest]
    assert Document.from_json(dropped.to_json()).state.values == dropped.state.values


@async_test
async def test_paths_remove_attachments_and_their_contents():
    document = await export_with(plain=(b"only here", {"name": "a.txt"}), text=TEXTS[0])
    redacted = Redactor(patterns=False, paths=["values.plain", "values.text", "events[*].data"])
    found = redacted.redact(document)
    assert found.state.values["plain"] == found.state.values["text"] == "[redacted: path]"
    assert list(found.blobs) == []
    assert found.blobs.entries == []


@async_test
async def test_files_of_a_workspace_are_redacted():
    content = f"TOKEN={SECRET}\n".encode()
    session = await Session.open(MemoryStateStore(), agent_id="bot", session_id="ses")
    kept = await session.attach(content)
    session.set("x", kept)
    file = {"digest": kept.digest, "size": kept.size, "mode": 0o644}
    changes = {"set": [("files", ".env", file)], "delete": []}
    session.committer.working.record_owned("x.y", None, changes)
    session.committer.working.record_owned("x.y", None, {"set": [], "delete": [("state", "x")]})
    await session.commit()
    redacted = Redactor().redact(await session.export())
    new = redacted.snapshot.get("files", ".env")
    assert new["digest"] != kept.digest
    assert new["mode"] == 0o644
    assert redacted.blobs[new["digest"]].startswith(b"TOKEN=[redacted: ")
    assert kept.digest not in redacted.blobs
    assert find_traces(redacted, SECRET) == []


@async_test
async def test_omitted_contents_stay_references():
    document = await export_with(text=TEXTS[0], plain=(b"x" * 10, {"name": f"{MAIL}.txt"}))
    blank = Document.from_json(b"".join(document.chunks("omit")))
    redacted = Redactor().redact(blank)
    assert find_traces(redacted, MAIL) == []
    assert redacted.snapshot.get("state", "plain").digest == digest_of(b"x" * 10)
    assert len(redacted.blobs.entries) == 2
    with pytest.raises(NotFoundError):
        redacted.snapshot.get("state", "text")
