"""Imports write the blobs of a document before what refers to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    ConflictError,
    Document,
    HoldfastError,
    InvalidDocumentError,
    NotFoundError,
    Session,
    SnapshotManager,
    Store,
    replay,
)
from holdfast.blobs.keys import blobs_prefix
from holdfast.documents.blobs import EmbeddedBlob
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.stores.memory import MemoryStateStore
from holdfast.values.references import BLOB_SIZE
from support.async_tests import async_test
from support.blob_documents import (
    DATA,
    DIGESTS,
    MODES,
    NOTE,
    TEXT,
    VALUE,
    digest_of,
    make_blob_document,
    make_blob_session,
    write_and_read,
)
from support.faults import Fault, FaultyStateStore


async def list_blobs(store, session_id="ses"):
    prefix = SnapshotLocation(session_id, "agent", "bot").prefix
    return [key async for key in store.list(blobs_prefix(prefix))]


async def check_session(store, session_id="ses"):
    session = await Session.open(store, agent_id="bot", session_id=session_id)
    assert session.messages == [{"role": "user", "content": TEXT}]
    assert session.get("value") == VALUE
    assert await session.read_attachment(session.get("note")) == NOTE
    return session


@pytest.mark.parametrize("new_state_store", ["sqlite", "files"], indirect=True)
@pytest.mark.parametrize("mode", ["embed", "folder"])
@async_test
async def test_a_new_session_has_the_blobs(new_state_store, tmp_path, mode):
    found = write_and_read(await make_blob_document(), tmp_path, mode)
    async with new_state_store() as store:
        assert (await SnapshotManager(store).import_session(found)).created
        session = await check_session(store)
        assert (await session.verify()).damage == []
        assert sorted((await session.export()).blobs) == DIGESTS
        assert [step.event async for step in replay(session)][:-1] == list(found.events)


@async_test
async def test_an_existing_session_gets_the_blobs():
    store = MemoryStateStore()
    before = await Session.open(store, agent_id="bot", session_id="ses")
    before.set("other", TEXT * 2)
    await before.commit()
    result = await SnapshotManager(store).import_session(await make_blob_document())
    assert not result.created
    session = await check_session(store)
    assert session.get("other") is None
    assert len(await list_blobs(store)) == 4
    await session.restore(result.undo_id)
    assert session.get("other") == TEXT * 2
    assert (await session.verify()).damage == []


@async_test
async def test_a_dry_run_verifies_the_blobs_and_writes_nothing(tmp_path):
    store = MemoryStateStore()
    found = write_and_read(await make_blob_document(), tmp_path, "folder")
    assert (await SnapshotManager(store).import_session(found, dry_run=True)).created
    (tmp_path / "a.json.blobs" / digest_of(DATA)).write_bytes(b"x" * len(DATA))
    for dry_run in (True, False):
        with pytest.raises(InvalidDocumentError, match="does not match its digest"):
            await SnapshotManager(store).import_session(found, dry_run=dry_run)
    (tmp_path / "a.json.blobs" / digest_of(DATA)).unlink()
    with pytest.raises(NotFoundError, match="no such file"):
        await SnapshotManager(store).import_session(found)
    assert [key async for key in store.list("")] == []


@async_test
async def test_names_of_an_import_may_differ():
    store = MemoryStateStore()
    session = await make_blob_session(store)
    document = await session.export(attachments="folder")
    await SnapshotManager(store).import_session(document, session_id="other")
    await check_session(store, "other")
    assert len(await list_blobs(store, "other")) == 3


@async_test
async def test_omitted_blobs_are_missing_in_a_new_session():
    store = MemoryStateStore()
    assert (await SnapshotManager(store).import_session(await make_blob_document("omit"))).created
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.message_count == 1
    assert session.get("note").name == "note.txt"
    with pytest.raises(NotFoundError, match="is not stored: it was deleted, pruned, omitted"):
        session.get("value")
    session.add_message("user", "go on")
    saved = await session.save()
    await session.restore(2)
    await session.restore(saved.snapshot_id)
    fork = await session.fork("fork")
    assert fork.message_count == 2
    again = await session.export()
    assert not list(again.blobs)
    # A later import of the whole document completes the session.
    await SnapshotManager(store).import_session(await make_blob_document())
    await check_session(store)


@async_test
async def test_omitted_blobs_are_found_in_a_session_that_has_them():
    store = MemoryStateStore()
    session = await make_blob_session(store)
    document = await session.export(attachments="omit")
    session.delete("value")
    session.delete("note")
    await session.commit()
    assert not (await SnapshotManager(store).import_session(document)).created
    await check_session(store)


@async_test
async def test_omitted_blobs_may_be_missing_in_an_existing_session():
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    session.set("a", 1)
    await session.commit()
    await SnapshotManager(store).import_session(await make_blob_document("omit"))
    session = await Session.open(store, agent_id="bot", session_id="ses")
    assert session.message_count == 1
    with pytest.raises(NotFoundError):
        session.get("value")


@async_test
async def test_a_session_is_restored_to_a_document(tmp_path):
    found = write_and_read(await make_blob_document(), tmp_path, "folder")
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    session.set("a", 1)
    await session.commit()
    await session.restore(found)
    session = await check_session(store)
    assert session.get("a") is None
    assert (await session.verify()).damage == []


@async_test
async def test_blobs_without_a_reference_are_verified_and_not_stored():
    store = MemoryStateStore()
    document = await make_blob_document()
    extra = replace(document, blobs=document.blobs | [EmbeddedBlob(b"unused")])
    assert (await SnapshotManager(store).import_session(extra)).created
    assert len(await list_blobs(store)) == 3
    wrong = replace(document, blobs=document.blobs | [EmbeddedBlob(b"unused", digest_of(b"x"))])
    with pytest.raises(InvalidDocumentError, match="do not match its digest"):
        await SnapshotManager(MemoryStateStore()).import_session(wrong)


@async_test
async def test_references_must_match_their_blobs():
    data = (await make_blob_document()).to_dict()
    size = len(TEXT.encode())
    other = json.loads(json.dumps(data).replace(f'{size}, "str"', f'{size + 1}, "str"'))
    document = Document.from_dict(other, allow_modified=True)
    store = MemoryStateStore()
    with pytest.raises(InvalidDocumentError, match=f"has {size:,} bytes, but a reference"):
        await SnapshotManager(store).import_session(document)
    # Bytes that are not UTF-8 cannot be a str.
    data["state"]["values"]["value"] = {"$blob": [digest_of(DATA), len(DATA), "str"]}
    document = Document.from_dict(data, allow_modified=True)
    with pytest.raises(InvalidDocumentError, match="is a str, but not UTF-8"):
        await SnapshotManager(store).import_session(document)
    assert [key async for key in store.list("")] == []


@async_test
async def test_an_edited_document_refers_to_its_blobs():
    """Its events do not lead to its state, so the import records the difference."""
    data = (await make_blob_document()).to_dict()
    data["state"]["values"]["copy"] = data["state"]["values"]["value"]
    document = Document.from_dict(data, allow_modified=True)
    store = MemoryStateStore()
    await SnapshotManager(store).import_session(document)
    session = await check_session(store)
    assert session.get("copy") == VALUE


@async_test
async def test_a_failed_import_leaves_no_session_and_can_be_repeated():
    document = await make_blob_document()
    for at in range(1, 20):
        disk = MemoryStateStore()
        store = FaultyStateStore(disk)
        store.plan(Fault(at, "error"))
        try:
            await SnapshotManager(store).import_session(document)
        except HoldfastError:
            assert (await SnapshotManager(disk).catalog.sessions("bot")).sessions == []
        else:
            break
        await SnapshotManager(disk).import_session(document)
        await check_session(disk)
    assert at > 2


@async_test
async def test_a_concurrent_creation_is_a_conflict():
    document = await make_blob_document()
    disk = MemoryStateStore()

    class Racing(MemoryStateStore):
        async def put_many(self, puts, **options):
            if any("/blobs/" in put.key for put in puts):
                await disk_import()
            return await disk.put_many(puts, **options)

        async def get_many(self, keys):
            return await disk.get_many(keys)

        def list(self, prefix, **options):
            return disk.list(prefix, **options)

    async def disk_import():
        session = await Session.open(disk, agent_id="bot", session_id="ses")
        session.set("a", 1)
        await session.commit()

    with pytest.raises(ConflictError, match="was created concurrently; retry the import"):
        await SnapshotManager(Racing()).import_session(document)
    assert (await Session.open(disk, agent_id="bot", session_id="ses")).get("a") == 1


# ------------------------------------------------------------------------------------- any values


@dataclass(frozen=True)
class Large:
    """A large value, which is short to print."""

    filling: str | bytes
    more: int

    def make(self):
        unit = self.filling.encode() if isinstance(self.filling, str) else self.filling
        return self.filling * ((BLOB_SIZE + self.more) // len(unit))


large = st.builds(Large, st.sampled_from(["a", "é", "€", "😀", b"x", b"\xff"]), st.integers(-2, 2))
leaves = st.one_of(st.integers(), st.text(max_size=5), large)
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
        st.dictionaries(st.integers(), inner, max_size=2),
        st.frozensets(leaves, max_size=2),
    ),
    max_leaves=5,
)


def make_large(value):
    """Return a value with the large ones in it made."""
    if isinstance(value, Large):
        return value.make()
    if isinstance(value, dict):
        return {key: make_large(item) for key, item in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return type(value)(make_large(item) for item in value)
    return value


def describe(value):
    """Return a value with the types in it, which equality ignores."""
    if isinstance(value, dict):
        return dict, {key: describe(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [describe(item) for item in value]
    return type(value), value


@given(st.lists(values, min_size=1, max_size=3), st.sampled_from(MODES), st.booleans())
def test_any_values_come_back(tmp_path_factory, items, mode, with_events):
    items = make_large(items)

    @async_test
    async def check():
        store = MemoryStateStore()
        session = await Session.open(store, agent_id="bot", session_id="ses")
        for number, item in enumerate(items):
            session.set(f"k{number}", item)
            session.record("x.y", item)
        await session.commit()
        document = await session.export()
        if not with_events:
            plain = Store()
            plain.set_many([("state", f"k{at}", item) for at, item in enumerate(items)])
            document = Document(snapshot=plain.snapshot(), agent_id="bot", session_id="ses")
        folder = tmp_path_factory.mktemp("any")
        found = write_and_read(document, folder, mode)
        assert found.document_digest() == document.document_digest()
        assert found.digest == document.digest
        if mode == "omit" and document.blobs:
            with pytest.raises(NotFoundError):
                _ = found.state.values
            # The contents come from elsewhere.
            found = Document.from_dict({**found.to_dict(), "blobs": document.to_dict()["blobs"]})
        target = MemoryStateStore()
        await SnapshotManager(target).import_session(found)
        again = await Session.open(target, agent_id="bot", session_id="ses")
        for number, item in enumerate(items):
            assert describe(found.state.values[f"k{number}"]) == describe(item)
            assert describe(again.get(f"k{number}")) == describe(item)
        recorded = [event.data for event in found.events if event.type == "x.y"]
        assert describe(recorded) == describe(items if with_events else [])

    check()
