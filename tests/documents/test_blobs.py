"""Documents embed the blobs that they refer to, have them in a folder beside them, or omit them."""

from __future__ import annotations

import base64
import json
import os
import tracemalloc
from dataclasses import replace

import pytest

from holdfast import (
    Document,
    InvalidDocumentError,
    NotFoundError,
    Session,
    SessionSnapshot,
    SnapshotManager,
    StateStoreError,
    Store,
    ValueMigrations,
    open_state_store,
    read_document,
    replay,
    write_document,
)
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.documents.blobs import validate_attachments
from holdfast.documents.errors import DocumentTooLargeError, ModifiedDocumentError
from holdfast.documents.limits import DocumentLimits
from holdfast.documents.signing import SignatureError, SigningKey, sign_document, verify_signature
from holdfast.stores.memory import MemoryStateStore
from holdfast.values.references import BLOB_SIZE, BlobReference, keep_references
from support.async_tests import async_test
from support.blob_documents import (
    DATA,
    DIGESTS,
    MODES,
    NOTE,
    TEXT,
    VALUE,
    check_contents,
    digest_of,
    make_blob_document,
    make_blob_session,
    write_and_read,
)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.zst"])
@pytest.mark.parametrize("mode", ["embed", "folder"])
@async_test
async def test_large_values_come_back_from_a_file(tmp_path, mode, name):
    document = await make_blob_document(mode)
    check_contents(document)
    found = write_and_read(document, tmp_path, mode, name)
    check_contents(found)
    assert [step.event for step in replay(found)] == list(document.events)
    assert [step.after.digest for step in replay(found)][-1] == document.digest
    assert found.document_digest() == document.document_digest()
    folder = tmp_path / f"{name}.blobs"
    if mode == "folder":
        assert sorted(each.name for each in folder.iterdir()) == DIGESTS
    else:
        assert not folder.exists()


@async_test
async def test_an_omitted_blob_is_an_error_where_its_value_is_read(tmp_path):
    document = await make_blob_document("omit")
    for found in (document, write_and_read(document, tmp_path, "omit")):
        assert not list(found.blobs)
        assert [(each.digest, each.is_omitted) for each in found.blobs.entries] == [
            (digest, True) for digest in DIGESTS
        ]
        assert found.state.status == "pending"
        assert found.state.snapshot.get("state", "note").name == "note.txt"
        with keep_references():
            assert found.state.messages[0]["content"] == BlobReference(
                digest_of(TEXT), len(TEXT.encode()), "str"
            )
            assert len(list(found.events)) == len(list(replay(found))) == 5
        for read in (
            lambda found=found: found.state.messages,
            lambda found=found: found.snapshot.get("state", "value"),
            lambda found=found: list(found.events),
            lambda found=found: list(replay(found)),
        ):
            with pytest.raises(NotFoundError, match="does not contain blob .* it was omitted"):
                read()


@async_test
async def test_the_digest_and_signatures_do_not_depend_on_where_blobs_are(tmp_path):
    key = SigningKey.generate()
    signed = sign_document(await make_blob_document(), key)
    for mode in MODES:
        found = write_and_read(signed, tmp_path, mode, f"{mode}.json")
        assert found.document_digest() == signed.document_digest()
        assert verify_signature(found, [key.public]) == (key.public,)
        assert read_document(tmp_path / f"{mode}.json", trusted=[key.public]).signed_by
    data = signed.to_dict()
    assert verify_signature(data, [key.public])
    # Another content has another digest, so the references that are signed must change.
    other = json.loads(json.dumps(data).replace(digest_of(NOTE), digest_of(b"other!")))
    other["blobs"][digest_of(b"other!")] = embed(b"other!")
    with pytest.raises(SignatureError, match="changed after it was signed"):
        verify_signature(other, [key.public])
    with pytest.raises(ModifiedDocumentError):
        Document.from_dict(other)


@async_test
async def test_json_data_and_text_embed_blobs():
    document = await make_blob_document("folder")
    data = document.to_dict()
    assert data["blobs"][digest_of(NOTE)] == embed(NOTE)
    assert list(data)[-1] == "blobs"
    for found in (Document.from_dict(data), Document.from_json(document.to_json())):
        check_contents(found)
        assert found.to_dict() == data
    text = json.loads(document.to_json())
    assert text == data


def test_a_state_without_events_is_written_with_references():
    store = Store()
    store.set("state", "value", VALUE)
    store.set("state", "small", "x" * (BLOB_SIZE - 1))
    snapshot = SessionSnapshot.from_snapshot(store.snapshot(), agent_id="bot", session_id="ses")
    document = Document.from_snapshot(snapshot)
    assert document.state.values == {"value": VALUE, "small": "x" * (BLOB_SIZE - 1)}
    assert document.digest == snapshot.digest
    assert document.snapshot.diff(store.snapshot()) == {"added": [], "removed": [], "changed": []}
    data = document.to_dict()
    assert sorted(data["blobs"]) == sorted(map(digest_of, (TEXT, DATA)))
    assert "$blob" in data["state"]["values"]["value"]["image"]
    assert Document.from_dict(data).state.values == document.state.values
    inline = replace(document, blobs=None, snapshot=store.snapshot())
    assert inline.document_digest() == document.document_digest()


def test_a_document_with_large_values_inline_is_kept_as_it_is():
    """As versions before blobs wrote them."""
    document = Document(snapshot=Store().snapshot(), agent_id="bot", session_id="ses")
    data = document.to_dict()
    data["state"]["values"] = {"text": TEXT, "data": {"$bytes": base64.b64encode(DATA).decode()}}
    found = Document.from_dict(data, allow_modified=True)
    assert found.state.values == {"text": TEXT, "data": DATA}
    again = found.to_dict()
    assert again["state"] == data["state"]
    assert "blobs" not in again
    assert Document.from_dict(again).to_dict() == again


@async_test
async def test_embedding_is_limited(tmp_path):
    session = await make_blob_session()
    limits = DocumentLimits(max_embedded_bytes=len(DATA))
    manager = SnapshotManager(session.committer.state_store)
    with pytest.raises(DocumentTooLargeError, match="--attachments folder") as error:
        await manager.export_session("bot", "ses", limits=limits)
    assert f"{len(TEXT.encode()):,}, {len(DATA):,}, {len(NOTE)}" in str(error.value)
    document = await session.export()
    with pytest.raises(DocumentTooLargeError):
        manager.to_file(document, tmp_path / "a.json", limits=limits)
    assert not list(tmp_path.iterdir())
    for mode in ("folder", "omit"):
        manager.to_file(document, tmp_path / mode, attachments=mode, limits=limits)
    with pytest.raises(ValueError, match="max_embedded_bytes must be a positive int"):
        DocumentLimits(max_embedded_bytes=0)


@async_test
async def test_an_export_that_omits_blobs_does_not_read_them():
    store = MemoryStateStore()
    session = await make_blob_session(store)
    for digest in (digest_of(TEXT), digest_of(DATA)):
        await store.put(f"{session.location.prefix}blobs/{digest}/000000", b"damaged")
    document = await session.export(attachments="omit")
    assert [each.digest for each in document.blobs.entries] == DIGESTS
    (await session.export(attachments="folder")).chunks("omit")


@async_test
async def test_a_blob_that_is_not_stored_is_omitted(caplog):
    store = MemoryStateStore()
    session = await make_blob_session(store)
    await store.delete(f"{session.location.prefix}blobs/{digest_of(NOTE)}/000000")
    for mode in ("embed", "folder"):
        document = await session.export(attachments=mode)
        assert [each.digest for each in document.blobs.entries if each.is_omitted] == [
            digest_of(NOTE)
        ]
        assert f"1 blobs of {session.location.prefix} are not stored" in caplog.text
        assert document.state.messages[0]["content"] == TEXT


@async_test
async def test_digests_in_plain_values_are_carried():
    session = await make_blob_session()
    digest = digest_of(NOTE)
    session.committer.working.record_owned(
        "x.y", None, {"set": [("files", "a.txt", {"digest": digest, "size": 6})], "delete": []}
    )
    session.delete("note")
    await session.commit()
    document = await session.export(attachments="folder")
    assert document.blobs[digest] == NOTE


def test_unknown_modes_are_refused(tmp_path):
    document = Document(snapshot=Store().snapshot(), agent_id="bot", session_id="ses")
    with pytest.raises(ValueError, match="attachments must be one of embed, folder, omit, got 'x'"):
        write_document(document, tmp_path / "a.json", attachments="x")
    assert validate_attachments("omit") == "omit"


# -------------------------------------------------------------------------------- malformed blobs


def embed(content: bytes) -> dict[str, object]:
    return {"size": len(content), "data": base64.b64encode(content).decode()}


MALFORMED = {
    "a list": ([], "blobs"),
    "a name that is not a digest": ({"x": embed(NOTE)}, "sha256"),
    "an upper-case digest": ({digest_of(NOTE).upper(): embed(NOTE)}, "sha256"),
    "an entry that is not an object": ({digest_of(NOTE): 7}, "JSON object"),
    "no size": ({digest_of(NOTE): {}}, "size must be"),
    "a negative size": ({digest_of(NOTE): {"size": -1}}, "size must be"),
    "a size that is a bool": ({digest_of(NOTE): {"size": True}}, "size must be"),
    "a huge size": ({digest_of(NOTE): {"size": 10**30}}, "size must be"),
    "data that is not base64": ({digest_of(NOTE): {"size": 6, "data": "*"}}, "base64"),
    "data that is not text": ({digest_of(NOTE): {"size": 6, "data": 7}}, "string"),
    "a wrong size": ({digest_of(NOTE): {**embed(NOTE), "size": 7}}, "its data has 6 bytes"),
    "a wrong content": ({digest_of(NOTE): embed(b"a nota")}, "does not match its digest"),
    "data and a file": (
        {digest_of(NOTE): {**embed(NOTE), "file": f"a.blobs/{digest_of(NOTE)}"}},
        "both",
    ),
    "a file that is not text": ({digest_of(NOTE): {"size": 6, "file": 7}}, "string"),
    **{
        f"the file {file}": ({digest_of(NOTE): {"size": 6, "file": file}}, "invalid path")
        for file in (
            "",
            digest_of(NOTE),
            f"/a.blobs/{digest_of(NOTE)}",
            f"../a.blobs/{digest_of(NOTE)}",
            f"x/../a.blobs/{digest_of(NOTE)}",
            f"a.blobs/../{digest_of(NOTE)}",
            f"a.blobs/{digest_of(DATA)}",
            f"a.blobs\\{digest_of(NOTE)}",
            f"C:a.blobs/{digest_of(NOTE)}",
            f"a\0.blobs/{digest_of(NOTE)}",
            f"..blobs/{digest_of(NOTE)}/x",
        )
    },
}


@pytest.mark.parametrize(("blobs", "problem"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_blobs_are_refused(tmp_path, blobs, problem):
    document = Document(snapshot=Store().snapshot(), agent_id="bot", session_id="ses")
    data = {**document.to_dict(), "blobs": blobs}
    for read in (Document.from_dict, lambda data: Document.from_json(json.dumps(data))):
        with pytest.raises(InvalidDocumentError, match="(?i)" + problem):
            read(data)
    (tmp_path / "a.json").write_text(json.dumps(data))
    with pytest.raises(InvalidDocumentError, match="(?i)" + problem):
        read_document(tmp_path / "a.json", allow_modified=True)


@async_test
async def test_a_changed_or_missing_file_is_an_error_when_it_is_read(tmp_path):
    path = tmp_path / "a.json.blobs" / digest_of(NOTE)
    outside = tmp_path / "outside"
    outside.write_bytes(NOTE)
    found = write_and_read(await make_blob_document(), tmp_path, "folder")

    def read(error, problem):
        for call in (lambda: found.blobs[digest_of(NOTE)], lambda: found.blobs.source(path.name)):
            with pytest.raises(error, match=problem):
                call()

    path.write_bytes(b"a nota")
    read(InvalidDocumentError, "does not match its digest")
    path.write_bytes(b"a no")
    read(InvalidDocumentError, "has 4 bytes, but the document says 6")
    path.unlink()
    read(NotFoundError, "no such file")
    path.symlink_to(outside)
    read(InvalidDocumentError, "symbolic link")
    path.unlink()
    path.mkdir()
    read(InvalidDocumentError, "not a regular file")
    path.rmdir()
    os.mkfifo(path)
    read(InvalidDocumentError, "not a regular file")
    path.unlink()
    path.write_bytes(NOTE)
    assert found.blobs[digest_of(NOTE)] == NOTE
    path.parent.rename(tmp_path / "moved")
    path.parent.symlink_to(tmp_path / "moved")
    read(InvalidDocumentError, "symbolic link")


@async_test
async def test_a_folder_is_not_needed_until_a_value_is_read(tmp_path):
    write_and_read(await make_blob_document(), tmp_path, "folder")
    text = (tmp_path / "a.json").read_bytes()
    found = read_document(text)
    with pytest.raises(NotFoundError, match="was read without that folder"):
        _ = found.state.messages


@async_test
async def test_a_folder_is_completed_and_repaired_by_the_next_export(tmp_path):
    document = await make_blob_document()
    write_and_read(document, tmp_path, "folder")
    folder = tmp_path / "a.json.blobs"
    (folder / digest_of(NOTE)).write_bytes(b"a nota")
    (folder / digest_of(DATA)).unlink()
    before = (folder / digest_of(TEXT)).stat().st_ino
    check_contents(write_and_read(document, tmp_path, "folder"))
    assert (folder / digest_of(TEXT)).stat().st_ino == before
    assert sorted(each.name for each in folder.iterdir()) == DIGESTS


@async_test
async def test_a_folder_that_cannot_be_written_is_an_error(tmp_path):
    document = await make_blob_document()
    (tmp_path / "a.json.blobs").write_text("a file")
    with pytest.raises(StateStoreError, match=r"cannot write to .*a\.json\.blobs"):
        write_document(document, tmp_path / "a.json", attachments="folder")
    (tmp_path / "b.json.blobs").symlink_to(tmp_path)
    with pytest.raises(StateStoreError, match="symbolic link"):
        write_document(document, tmp_path / "b.json", attachments="folder")
    assert not (tmp_path / "a.json").exists()
    assert not (tmp_path / "b.json").exists()
    plain = Document(snapshot=Store().snapshot(), agent_id="bot", session_id="ses")
    write_document(plain, tmp_path / "c.json", attachments="folder")
    assert not (tmp_path / "c.json.blobs").exists()


@async_test
async def test_values_are_migrated_with_their_blobs(tmp_path):
    def rename(values):
        return {"renamed": values["value"], "more": TEXT + "!"}

    migrations = ValueMigrations(2, {1: rename})
    manager = SnapshotManager(migrations=migrations)
    for mode in MODES:
        write_and_read(await make_blob_document(), tmp_path, mode)
        found = manager.from_file(tmp_path / "a.json")
        if mode == "omit":
            with pytest.raises(NotFoundError):
                found.snapshot.get("state", "renamed")
        else:
            assert found.state.values == {"renamed": VALUE, "more": TEXT + "!"}
            assert len(found.events) == 6
            assert found.events[4].data == {"result": TEXT}
        assert digest_of(TEXT + "!") in found.blobs
        assert Document.from_json(found.to_json()).document_digest() == found.document_digest()


@async_test
async def test_a_folder_is_written_with_one_chunk_in_memory(tmp_path):
    async with open_state_store(f"sqlite:///{tmp_path}/s.db") as store:
        session = await Session.open(store, agent_id="bot", session_id="ses")
        for number in range(4):
            session.set(f"a{number}", await session.attach(bytes([number]) * (6 * CHUNK_SIZE)))
        await session.commit()
        tracemalloc.start()
        try:
            document = await session.export(attachments="folder")
            write_document(document, tmp_path / "a.json", attachments="folder")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 4 * CHUNK_SIZE
    assert len(read_document(tmp_path / "a.json").blobs) == 4
