"""The storage for Strands' snapshot sessions, with the real package and a scripted model."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import threading

import pytest

pytest.importorskip("strands")

from hypothesis import given
from hypothesis import strategies as st
from strands.storage import InMemoryStorage, Storage
from strands.types.exceptions import StorageError

from holdfast import Session, SnapshotArchive, open_state_store
from holdfast.adapters.strands import HoldfastStorage
from holdfast.log import timeline
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.observed_store import ObservedStore

FOLDER = "session/ses/scopes/agent/waiter/snapshots/"
LATEST = f"{FOLDER}snapshot_latest.json"
IDS = [f"01a1df16-9e31-704e-8a58-efa1ae681b{n:02}" for n in range(3)]
KEPT = [f"{FOLDER}immutable_history/snapshot_{each}.json" for each in IDS]


def encode_snapshot(*messages, at="2026-11-15T12:00:00Z", **state):
    """Return the bytes of a snapshot as Strands writes them."""
    content = [{"role": "user", "content": [{"text": each}]} for each in messages]
    data = {"messages": content, "state": state, "model_state": {}, "system_prompt": "Ja ☃"}
    tree = {"scope": "agent", "schema_version": "1.0", "created_at": at, "data": data}
    return json.dumps({**tree, "app_data": {}}, ensure_ascii=False).encode()


# ---------------------------------------------------------------------------------------- storage


@async_test
async def test_the_storage_behaves_like_those_of_strands_on_every_backend(new_state_store):
    async with new_state_store() as store:
        ours, theirs = HoldfastStorage(store), InMemoryStorage()
        assert isinstance(ours, Storage)
        for storage in (ours, theirs):
            assert await storage.read(LATEST) is None
            await storage.delete(LATEST)
            await storage.write(KEPT[0], encode_snapshot("one"))
            assert await storage.read(LATEST) is None
            await storage.write(LATEST, encode_snapshot("one", "two", guests=2))
            await storage.write(KEPT[1], encode_snapshot("one", "two", "three"))
            await storage.write("context/ses//stash/1", b"\x00\xff")
            await storage.write(LATEST.replace("waiter", "cook"), encode_snapshot("soup"))
        for key in (LATEST, *KEPT, "context/ses/stash/1"):
            assert await ours.read(key) == await theirs.read(key)
        for prefix in ("", "session/", "session/s", "session/ses/scopes/agent/wai", FOLDER, "con"):
            assert await ours.list(prefix) == await theirs.list(prefix), prefix
        again = HoldfastStorage(store)
        assert await again.read(LATEST) == encode_snapshot("one", "two", guests=2)
        for storage in (ours, theirs):
            await storage.delete(KEPT[1])
            await storage.delete(LATEST)
            await storage.delete("context/ses/stash/1")
        assert await again.list("") == await theirs.list("")
        assert await again.read(LATEST) is None


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)
SNAPSHOTS = st.one_of(
    st.binary(max_size=20),
    JSON.map(lambda value: json.dumps(value).encode()),
    st.builds(
        lambda messages, state, spaces, ascii_: json.dumps(
            {"created_at": "x", "data": {"state": state, "messages": messages, "m": spaces}},
            ensure_ascii=ascii_,
            separators=(",", ":") if spaces else None,
        ).encode("utf-8", "replace"),
        st.lists(JSON, max_size=4) | JSON,
        st.dictionaries(st.text(max_size=3), JSON, max_size=3) | JSON,
        st.booleans(),
        st.booleans(),
    ),
)
KEYS = st.sampled_from([LATEST, *KEPT, "context/a", "session/other", LATEST.replace("ses/", "s/")])
ACTS = st.lists(st.tuples(KEYS, SNAPSHOTS | st.none(), st.booleans()), max_size=8)


@given(ACTS)
def test_reads_return_what_was_written_byte_for_byte(acts):
    async def compare():
        store = MemoryStateStore()
        ours, theirs = HoldfastStorage(store), InMemoryStorage()
        for key, data, is_reopened in acts:
            for storage in (ours, theirs):
                if data is None:
                    await storage.delete(key)
                else:
                    await storage.write(key, data)
            if is_reopened:
                ours = HoldfastStorage(store)
            for each in (LATEST, *KEPT, key):
                assert await ours.read(each) == await theirs.read(each)
            assert await ours.list("") == await theirs.list("")

    run_async(compare())


async def expect_round_trips(storage, *snapshots):
    """Write snapshots one after the other, and expect each to be read as it was written."""
    for data in snapshots:
        await storage.write(LATEST, data)
        assert await storage.read(LATEST) == data


@async_test
async def test_a_changed_order_of_keys_is_kept():
    storage = HoldfastStorage(MemoryStateStore())
    one = encode_snapshot("x", plan={"a": 1, "b": 2}, z=1, y=2)
    other = encode_snapshot("x", plan={"b": 2, "a": 1}, z=1, y=2)
    turned = encode_snapshot("x", plan={"a": 1, "b": 2}, y=2, z=1)
    await expect_round_trips(storage, one, other, one, turned, other)


@async_test
async def test_a_growing_conversation_writes_only_new_messages():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    words = [f"message number {n} of a long talk" for n in range(500)]
    await storage.write(LATEST, encode_snapshot(*words))
    before = {key async for key in store.list()}
    await storage.write(
        LATEST, encode_snapshot(*words, "one", "two", "three", at="2026-11-15T13:00:00Z")
    )
    added = [key async for key in store.list() if key not in before]
    (segment,) = added
    assert len((await store.get(segment)).value) < 2500


@async_test
async def test_a_conversation_that_is_cut_at_its_start_writes_only_new_messages():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    words = [f"message number {n} of a long talk" for n in range(500)]
    for start in range(0, 60, 3):
        data = encode_snapshot(*words[start : start + 100])
        before = {key async for key in store.list() if "/log/" in key}
        await storage.write(LATEST, data)
        assert await HoldfastStorage(store).read(LATEST) == data
        added = [key async for key in store.list() if "/log/" in key and key not in before]
        (segment,) = added
        assert start == 0 or len((await store.get(segment)).value) < 2500
    edited = encode_snapshot("something else", *words[58:157])
    await storage.write(LATEST, edited)
    assert await HoldfastStorage(store).read(LATEST) == edited


@async_test
async def test_a_save_of_an_open_session_is_one_write():
    store = ObservedStore()
    storage = HoldfastStorage(store)
    words = [f"message number {n}" for n in range(30)]
    for count in range(1, 30):
        await storage.write(LATEST, encode_snapshot(*words[max(0, count - 20) : count], step=count))
        assert count == 1 or store.calls == ["put_many"]
        await storage.set_status("ses", "waiter", "running")
        store.forget()


@async_test
async def test_a_list_with_the_text_of_the_messages_is_not_taken_for_them():
    storage = HoldfastStorage(MemoryStateStore())
    for count in (1, 2, 3, 2):
        messages = [{"role": "user", "content": [{"text": str(n)}]} for n in range(count)]
        for data in (
            {"state": {"messages": messages}, "messages": messages},
            {"state": {"messages": messages}, "messages": []},
            {"plan": {"messages": messages}, "messages": messages[:1]},
            {"messages": messages, "state": {"messages": messages}},
        ):
            snapshot = json.dumps({"scope": "agent", "data": data}).encode()
            await storage.write(LATEST, snapshot)
            assert await storage.read(LATEST) == snapshot
            document = await storage.document("ses", "waiter")
            assert document.state.messages == data["messages"]


@async_test
async def test_an_edited_message_is_replaced():
    storage = HoldfastStorage(MemoryStateStore())
    texts = ("a b c", "a b c d", "a B c d e", "B c d e f", "B c d e F", "B c", "", "x")
    await expect_round_trips(storage, *[encode_snapshot(*text.split()) for text in texts])


@async_test
async def test_values_that_json_does_not_have_are_replaced():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(LATEST, encode_snapshot("one"))
    async with Session.open(store, agent_id="waiter", session_id="ses") as session:
        session.set("since", dt.datetime(2026, 11, 15, tzinfo=dt.UTC))
    with pytest.raises(StorageError, match="not JSON serializable"):
        await storage.read(LATEST)
    await storage.write(LATEST, encode_snapshot("one", "two"))
    assert await storage.read(LATEST) == encode_snapshot("one", "two")
    await storage.write(LATEST, encode_snapshot())
    async with Session.open(store, agent_id="waiter", session_id="ses") as session:
        session.add_message("user", b"bytes")
    await storage.write(LATEST, encode_snapshot())
    assert await storage.read(LATEST) == encode_snapshot()


@async_test
async def test_bytes_that_another_process_replaced_are_written_again():
    store = MemoryStateStore()
    one, other = HoldfastStorage(store), HoldfastStorage(store)
    for storage, word in ((one, "a"), (other, "b"), (one, "a"), (one, "c"), (other, "b")):
        await storage.write(LATEST, encode_snapshot(word))
        assert await HoldfastStorage(store).read(LATEST) == encode_snapshot(word)


@pytest.mark.parametrize("key", ["", "/", "a/../b", "a\\b"])
@async_test
async def test_keys_that_strands_rejects_are_rejected(key):
    for storage in (HoldfastStorage(MemoryStateStore()), InMemoryStorage()):
        with pytest.raises(StorageError):
            await storage.write(key, b"")


def test_the_storage_takes_a_state_store():
    with pytest.raises(TypeError, match="open_state_store"):
        HoldfastStorage("memory:")


@pytest.mark.parametrize(("kind", "is_done"), WAYS)
@async_test
async def test_a_failed_write_leaves_the_old_or_the_new_bytes(kind, is_done):
    disk = MemoryStateStore()
    faulty = FaultyStateStore(disk)
    storage = HoldfastStorage(faulty)
    await storage.write(LATEST, encode_snapshot("old"))
    faulty.plan(Fault(1, kind, is_done))
    with pytest.raises((StorageError, *RAISED)):
        await storage.write(LATEST, encode_snapshot("new"))
    wanted = encode_snapshot("new") if is_done else encode_snapshot("old")
    assert await HoldfastStorage(disk).read(LATEST) == wanted
    if kind != "crash":
        assert await storage.read(LATEST) == wanted


@async_test
async def test_damage_is_a_storage_error_that_names_the_key():
    store = MemoryStateStore()
    await HoldfastStorage(store).write(LATEST, encode_snapshot("one"))
    (segment,) = [key async for key in store.list() if "/log/" in key]
    await store.put(segment, b'{"damaged": true}')
    with pytest.raises(StorageError, match=f"read.*{segment}"):
        await HoldfastStorage(store).read(LATEST)


def test_threads_may_share_a_storage():
    storage = HoldfastStorage(MemoryStateStore())

    def work(number):
        for turn in range(5):
            data = encode_snapshot(*(["x"] * turn), who=number)
            asyncio.run(storage.write(LATEST.replace("waiter", f"w{number % 2}"), data))

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(asyncio.run(storage.list("session/ses/"))) == 2


@async_test
async def test_a_storage_is_searched_by_keywords():
    storage = HoldfastStorage(MemoryStateStore())
    await storage.write("notes/menu", b"soup of the day")
    await storage.write("notes/wine", b"red or white")
    assert [found.key for found in await storage.search("soup")] == ["notes/menu"]


# ----------------------------------------------------------------------------- other writers


@async_test
async def test_the_last_of_concurrent_writers_counts(tmp_path):
    async with open_state_store(f"sqlite:///{tmp_path}/state.db") as store:
        storages = [HoldfastStorage(store) for _ in range(4)]

        async def work(number):
            for turn in range(4):
                key = KEPT[0].replace("b00", f"{number}{turn:02}")
                await storages[number].write(key, encode_snapshot(*"abc"[:turn], n=number))
            await storages[number].write(LATEST, encode_snapshot("z", n=number))

        await asyncio.gather(*map(work, range(4)))
        assert await storages[0].read(LATEST) in [
            encode_snapshot("z", n=number) for number in range(4)
        ]
        assert len(await storages[0].list(FOLDER)) == 17
        session = await Session.open(store, agent_id="waiter", session_id="ses")
        assert (await session.verify()).ok


@async_test
async def test_a_session_that_another_process_deleted_starts_again():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(LATEST, encode_snapshot("old"))
    await SnapshotArchive(store).delete_session(session_id="ses")
    assert await storage.read(LATEST) is None
    await storage.write(KEPT[0], encode_snapshot("new"))
    assert await HoldfastStorage(store).list("") == [KEPT[0]]


@async_test
async def test_the_latest_is_found_after_keyframes_and_among_many_sessions(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 1)
    storage = HoldfastStorage(store := MemoryStateStore())
    for number in range(10):
        folder = FOLDER.replace("/ses/", f"/ses{number}/")
        await storage.write(f"{folder}snapshot_latest.json", encode_snapshot("one", n=number))
        await storage.write(
            f"{folder}immutable_history/snapshot_{IDS[0]}.json", encode_snapshot("1", "2")
        )
    for number in range(10):
        key = LATEST.replace("/ses/", f"/ses{number}/")
        for each in (storage, HoldfastStorage(store)):
            assert await each.read(key) == encode_snapshot("one", n=number)
    assert len(await storage.list("session/")) == 20


@async_test
async def test_a_checkpoint_after_a_restore_does_not_change_the_latest():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    await storage.write(KEPT[0], encode_snapshot("one"))
    await storage.write(LATEST, encode_snapshot("one", "two"))
    session = await Session.open(store, agent_id="waiter", session_id="ses")
    await session.restore(IDS[0])
    await storage.write(KEPT[1], encode_snapshot("one", "three"))
    assert await storage.read(LATEST) == encode_snapshot("one")
    await storage.delete(KEPT[1])
    assert await HoldfastStorage(store).read(LATEST) == encode_snapshot("one")
