"""Attachments: files and other large contents that a session refers to."""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast import BlockingSession, HoldfastError, IntegrityError, NotFoundError, open_state_store
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.portal import sync
from holdfast.values.references import Attachment
from support.async_tests import async_test
from support.conversations import AGENT, SESSION, open_session, open_two_writers, reopen_session
from support.observed_store import ObservedStore, collect

IMAGE = bytes(range(256)) * 4096
DIGEST = hashlib.sha256(IMAGE).hexdigest()


async def iterate(content, size=100_000):
    for start in range(0, len(content), size):
        yield content[start : start + size]


def list_blob_keys(state_store):
    """Return the keys of all chunks."""
    return state_store.keys_with("/blobs/")


@pytest.mark.parametrize("new_state_store", ["sqlite", "files"], indirect=True)
@async_test
async def test_an_attachment_is_a_value(new_state_store):
    async with new_state_store() as state_store:
        session = await open_session(state_store)
        image = await session.attach(IMAGE, media_type="image/png", name="chart.png")
        assert image == Attachment(DIGEST, len(IMAGE), "image/png", "chart.png")
        session.add_message("user", [{"type": "image", "source": image}])
        session.set("charts", (image, {"latest": image}))
        assert await session.read_attachment(image) == IMAGE
        saved = await session.save()
    async with new_state_store() as state_store:
        again = await open_session(state_store)
        assert again.messages[0]["content"] == [{"type": "image", "source": image}]
        assert again.get("charts") == (image, {"latest": image})
        assert await again.read_attachment(image) == IMAGE
        chunks = await collect(again.stream_attachment(image))
        assert [len(chunk) for chunk in chunks] == [CHUNK_SIZE, CHUNK_SIZE]
        assert b"".join(chunks) == IMAGE
        fork = await again.fork("what-if", at=saved.snapshot_id)
        assert await fork.read_attachment(image) == IMAGE
        assert (await again.verify()).damage == []


@async_test
async def test_a_path_an_iterator_and_bytes_give_the_same_attachment(tmp_path):
    session = await open_session(MemoryStateStore())
    path = tmp_path / "chart.png"
    path.write_bytes(IMAGE)
    named = Attachment(DIGEST, len(IMAGE), "image/png", "chart.png")
    assert await session.attach(path) == await session.attach(str(path)) == named
    assert await session.attach(path, name="b.bin", media_type="x/y") == Attachment(
        DIGEST, len(IMAGE), "x/y", "b.bin"
    )
    plain = Attachment(DIGEST, len(IMAGE))
    assert await session.attach(iterate(IMAGE)) == plain
    assert await session.attach([IMAGE[:10], IMAGE[10:]]) == plain
    assert await session.attach(bytearray(IMAGE)) == plain
    assert await session.attach(memoryview(IMAGE)) == plain
    assert (await session.attach(b"{}", name="a.json")).media_type == "application/json"
    assert (await session.attach(b"", name="no-suffix")).media_type is None


@async_test
async def test_an_empty_attachment_is_stored():
    session = await open_session(MemoryStateStore())
    empty = await session.attach(b"")
    session.set("empty", empty)
    await session.commit()
    again = await reopen_session(session)
    assert await again.read_attachment(empty) == b""
    assert await collect(again.stream_attachment(empty)) == [b""]


@async_test
async def test_an_attachment_is_pending_until_a_commit_refers_to_it():
    state_store = ObservedStore()
    session = await open_session(state_store)
    used, unused = await session.attach(IMAGE), await session.attach(b"never used")
    session.add_message("user", "no attachment")
    await session.commit()
    assert list_blob_keys(state_store) == []
    session.add_message("user", [used])
    assert list_blob_keys(state_store) == []
    await session.commit()
    assert len(list_blob_keys(state_store)) == 2
    assert await session.read_attachment(unused) == b"never used"
    with pytest.raises(NotFoundError, match=unused.digest):
        await (await reopen_session(session)).read_attachment(unused)


@async_test
async def test_a_content_is_stored_once_however_often_it_is_attached():
    state_store = ObservedStore()
    session = await open_session(state_store)
    for number in range(5):
        image = await session.attach(IMAGE, name=f"{number}.png")
        session.add_message("user", [image])
        session.set(f"copy-{number}", IMAGE)
        await session.save()
    again = await reopen_session(session)
    again.add_message("user", [await again.attach(IMAGE)])
    await again.save()
    assert sum(len(state_store.content[key]) for key in list_blob_keys(state_store)) == len(IMAGE)
    assert state_store.bytes < len(IMAGE) + 50_000


@async_test
async def test_the_content_of_a_file_is_that_of_the_call(tmp_path):
    session = await open_session(MemoryStateStore())
    path = tmp_path / "report.txt"
    path.write_bytes(b"before")
    report = await session.attach(path)
    path.write_bytes(b"after!")
    session.set("report", report)
    await session.commit()
    assert await (await reopen_session(session)).read_attachment(report) == b"before"


@async_test
async def test_temporary_files_are_deleted_after_the_commit(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session = await open_session(MemoryStateStore())
    session.set("report", await session.attach(iterate(IMAGE)))
    assert len(list(tmp_path.iterdir())) == 1
    await session.commit()
    gc.collect()
    assert list(tmp_path.iterdir()) == []


@async_test
async def test_an_unknown_attachment_cannot_be_committed():
    state_store = ObservedStore()
    session = await open_session(state_store)
    await session.commit()
    unknown = Attachment(hashlib.sha256(b"unknown").hexdigest(), 7)
    session.set("image", unknown)
    keys = set(state_store.content)
    with pytest.raises(NotFoundError, match=unknown.digest):
        await session.commit()
    assert set(state_store.content) == keys
    assert await session.attach(b"unknown") == unknown
    await session.commit()
    assert await (await reopen_session(session)).read_attachment(unknown) == b"unknown"


@async_test
async def test_an_attachment_of_another_session_is_not_found():
    state_store = MemoryStateStore()
    one, other = await open_session(state_store, "one"), await open_session(state_store, "other")
    image = await one.attach(IMAGE)
    one.set("image", image)
    await one.commit()
    with pytest.raises(NotFoundError, match="is not stored"):
        await other.read_attachment(image)
    other.set("image", image)
    with pytest.raises(NotFoundError, match=r"attach it to this session.*call reload\(\)"):
        await other.commit()
    await other.reload()
    other.set("number", 1)
    await other.commit()


@async_test
async def test_a_file_name_in_another_encoding_can_be_stored(tmp_path):
    state_store = MemoryStateStore()
    path = os.fsdecode(os.fsencode(tmp_path) + b"/gr\xfc\xdfe.png")
    Path(path).write_bytes(IMAGE)
    session = await open_session(state_store)
    image = await session.attach(path)
    assert image.name == "gr\ufffd\ufffde.png"
    session.set("image", image)
    await session.commit()
    assert (await reopen_session(session)).get("image") == image


@async_test
async def test_wrong_arguments_are_refused(tmp_path):
    session = await open_session(MemoryStateStore())
    for content in (5, None, object()):
        with pytest.raises(TypeError, match="content must be bytes, the path of a file or"):
            await session.attach(content)
    with pytest.raises(TypeError, match="media_type must be a str, got 5"):
        await session.attach(b"", media_type=5)
    with pytest.raises(TypeError, match="name must be a str, got b'x'"):
        await session.attach(b"", name=b"x")
    for content in (iterate("text"), ["text"], [b"a", None, b"b"], [1]):
        with pytest.raises(TypeError, match="content must be bytes, got (str|None|int)"):
            await session.attach(content)
    with pytest.raises(HoldfastError, match=r"cannot read .*missing\.png: No such file"):
        await session.attach(tmp_path / "missing.png")
    for wrong in (DIGEST, {"digest": DIGEST}, None):
        with pytest.raises(TypeError, match=r"expected an Attachment as returned by session\.att"):
            await session.read_attachment(wrong)
        with pytest.raises(TypeError, match="expected an Attachment"):
            await collect(session.stream_attachment(wrong))


@async_test
async def test_damage_and_loss_are_errors_where_the_attachment_is_read():
    state_store = ObservedStore()
    session = await open_session(state_store)
    damaged, gone = await session.attach(IMAGE), await session.attach(b"gone")
    session.add_message("user", ["see", damaged, gone])
    await session.save()
    await state_store.damage(
        f"{session.blobs.location_prefix}blobs/{DIGEST}/000001", lambda d: d[1:]
    )
    await state_store.delete(f"{session.blobs.location_prefix}blobs/{gone.digest}/000000")
    again = await reopen_session(session)
    assert again.messages[0]["content"] == ["see", damaged, gone]
    with pytest.raises(IntegrityError, match=DIGEST):
        await again.read_attachment(damaged)
    seen = []
    with pytest.raises(IntegrityError, match=DIGEST):
        async for chunk in again.stream_attachment(damaged):
            seen.append(chunk)
    assert len(b"".join(seen)) < len(IMAGE)
    with pytest.raises(NotFoundError, match=gone.digest):
        await again.read_attachment(gone)
    again.add_message("user", "it goes on")
    await again.commit()


@async_test
async def test_a_wrong_size_never_yields_a_wrong_content():
    session = await open_session(MemoryStateStore())
    image = await session.attach(IMAGE)
    session.set("image", image)
    await session.commit()
    for size in (100 * len(IMAGE), 2**52):
        with pytest.raises(NotFoundError, match=DIGEST):
            await session.read_attachment(replace(image, size=size))
    for size in (0, 1, CHUNK_SIZE):
        with pytest.raises(IntegrityError, match=DIGEST):
            await session.read_attachment(replace(image, size=size))


@async_test
async def test_attachments_survive_conflicts_and_reloads():
    one, other = await open_two_writers(MemoryStateStore())
    image = await one.attach(IMAGE)
    one.add_message("user", [image])
    other.add_message("user", "first")
    await other.commit()
    await one.commit(on_conflict="rebase")
    assert await (await reopen_session(one)).read_attachment(image) == IMAGE
    later = await one.attach(b"kept over a reload")
    await one.reload()
    one.set("later", later)
    await one.commit()
    assert await (await reopen_session(one)).read_attachment(later) == b"kept over a reload"


@async_test
async def test_a_fork_takes_pending_attachments_along():
    session = await open_session(MemoryStateStore())
    session.add_message("user", "hello")
    await session.commit()
    image = await session.attach(IMAGE)
    fork = await session.fork("what-if")
    fork.set("image", image)
    await fork.commit()
    assert await (await reopen_session(fork)).read_attachment(image) == IMAGE


@async_test
async def test_streams_are_bounded_in_memory_both_ways(tmp_path):
    async def produce():
        for _ in range(200):
            yield bytes(100_000)

    async with open_state_store(f"sqlite:///{tmp_path}/state.db") as state_store:
        session = await open_session(state_store)
        await session.commit()
        tracemalloc.start()
        large = await session.attach(produce())
        session.set("large", large)
        await session.commit()
        size = 0
        async for chunk in session.stream_attachment(large):
            size += len(chunk)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size == large.size == 20_000_000
    assert peak < 10 * CHUNK_SIZE


@pytest.mark.parametrize("backend", ["sqlite", "memory", "redis"])
def test_a_blocking_session_attaches_too(backend, request, tmp_path):
    from support.backends import make_opener

    path = tmp_path / "chart.png"
    path.write_bytes(IMAGE)
    new_state_store = make_opener(backend, request)
    state_store = new_state_store()
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=SESSION) as session:
        image = session.attach(path)
        text = session.attach([b"a", b"b"], name="a.txt")
        assert image == Attachment(DIGEST, len(IMAGE), "image/png", "chart.png")
        session.add_message("user", [image, text])
        assert session.read_attachment(image) == IMAGE
    sync(state_store.close())
    state_store = new_state_store()
    again = BlockingSession.open(state_store, agent_id=AGENT, session_id=SESSION)
    assert again.messages[0]["content"] == [image, text]
    assert again.read_attachment(text) == b"ab"
    assert b"".join(again.stream_attachment(image)) == IMAGE
    with pytest.raises(TypeError, match="expected an Attachment"):
        list(again.stream_attachment(None))
    with pytest.raises(HoldfastError, match="cannot read"):
        again.attach(Path(tmp_path, "missing"))
    sync(state_store.close())
