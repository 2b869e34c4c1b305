"""The storage for Strands' snapshot sessions, with the real package and a scripted model."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("strands")

from hypothesis import given
from hypothesis import strategies as st
from strands.multiagent import GraphBuilder
from strands.session import SnapshotSessionManager
from strands.storage import InMemoryStorage, Storage
from strands.types.exceptions import StorageError

from adapters.scripted_strands import waiter
from faults import RAISED, WAYS, Fault, FaultyStateStore
from holdfast import (
    BlockingSession,
    Catalog,
    NotFoundError,
    Session,
    SnapshotManager,
    open_state_store,
)
from holdfast.adapters.strands import HoldfastStorage
from holdfast.stores.memory import MemoryStateStore
from loops import done, in_loop

FOLDER = "session/ses/scopes/agent/waiter/snapshots/"
LATEST = f"{FOLDER}snapshot_latest.json"
IDS = [f"01a1df16-9e31-704e-8a58-efa1ae681b{n:02}" for n in range(3)]
KEPT = [f"{FOLDER}immutable_history/snapshot_{each}.json" for each in IDS]
CALL = ("tables", "call_1", {"day": "monday"})


def blob(*messages, at="2026-11-15T12:00:00Z", **state):
    """The bytes of a snapshot as Strands writes them."""
    content = [{"role": "user", "content": [{"text": each}]} for each in messages]
    data = {"messages": content, "state": state, "model_state": {}, "system_prompt": "Ja ☃"}
    tree = {"scope": "agent", "schema_version": "1.0", "created_at": at, "data": data}
    return json.dumps({**tree, "app_data": {}}, ensure_ascii=False).encode()


def always(**_):
    return True


def texts(agent):
    return [part["text"] for each in agent.messages for part in each["content"] if "text" in part]


# ----------------------------------------------------------------------------------- the storage


@in_loop
async def test_it_does_what_the_storages_of_strands_do_on_every_backend(new_state_store):
    async with new_state_store() as store:
        ours, theirs = HoldfastStorage(store), InMemoryStorage()
        assert isinstance(ours, Storage)
        for storage in (ours, theirs):
            assert await storage.read(LATEST) is None
            await storage.delete(LATEST)
            await storage.write(KEPT[0], blob("one"))
            assert await storage.read(LATEST) is None
            await storage.write(LATEST, blob("one", "two", guests=2))
            await storage.write(KEPT[1], blob("one", "two", "three"))
            await storage.write("context/ses//stash/1", b"\x00\xff")
            await storage.write(LATEST.replace("waiter", "cook"), blob("soup"))
        for key in (LATEST, *KEPT, "context/ses/stash/1"):
            assert await ours.read(key) == await theirs.read(key)
        for prefix in ("", "session/", "session/s", "session/ses/scopes/agent/wai", FOLDER, "con"):
            assert await ours.list(prefix) == await theirs.list(prefix), prefix
        again = HoldfastStorage(store)
        assert await again.read(LATEST) == blob("one", "two", guests=2)
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
def test_whatever_is_written_comes_back_byte_for_byte(acts):
    async def compare():
        store = MemoryStateStore()
        ours, theirs = HoldfastStorage(store), InMemoryStorage()
        for key, data, begins_anew in acts:
            for storage in (ours, theirs):
                if data is None:
                    await storage.delete(key)
                else:
                    await storage.write(key, data)
            if begins_anew:
                ours = HoldfastStorage(store)
            for each in (LATEST, *KEPT, key):
                assert await ours.read(each) == await theirs.read(each)
            assert await ours.list("") == await theirs.list("")

    done(compare())


@in_loop
async def test_the_order_of_keys_is_kept_where_nothing_else_changes():
    storage = HoldfastStorage(MemoryStateStore())
    one = blob("x", plan={"a": 1, "b": 2}, z=1, y=2)
    other = blob("x", plan={"b": 2, "a": 1}, z=1, y=2)
    turned = blob("x", plan={"a": 1, "b": 2}, y=2, z=1)
    for data in (one, other, one, turned, other):
        await storage.write(LATEST, data)
        assert await storage.read(LATEST) == data


@in_loop
async def test_a_conversation_that_grows_writes_what_is_new():
    store = MemoryStateStore()
    storage = HoldfastStorage(store)
    words = [f"message number {n} of a long talk" for n in range(500)]
    await storage.write(LATEST, blob(*words))
    before = {key async for key in store.list()}
    await storage.write(LATEST, blob(*words, "one", "two", "three", at="2026-11-15T13:00:00Z"))
    added = [key async for key in store.list() if key not in before]
    (segment,) = added
    assert len((await store.get(segment)).value) < 2500


@pytest.mark.parametrize("key", ["", "/", "a/../b", "a\\b"])
@in_loop
async def test_a_key_that_strands_refuses_is_refused(key):
    for storage in (HoldfastStorage(MemoryStateStore()), InMemoryStorage()):
        with pytest.raises(StorageError):
            await storage.write(key, b"")


def test_what_is_no_store_is_refused():
    with pytest.raises(TypeError, match="open_state_store"):
        HoldfastStorage("memory:")


@pytest.mark.parametrize(("kind", "is_done"), WAYS)
@in_loop
async def test_a_write_that_fails_leaves_the_old_bytes_or_the_new(kind, is_done):
    disk = MemoryStateStore()
    faulty = FaultyStateStore(disk)
    storage = HoldfastStorage(faulty)
    await storage.write(LATEST, blob("old"))
    faulty.plan(Fault(1, kind, is_done))
    with pytest.raises((StorageError, *RAISED)):
        await storage.write(LATEST, blob("new"))
    wanted = blob("new") if is_done else blob("old")
    assert await HoldfastStorage(disk).read(LATEST) == wanted
    if kind != "crash":
        assert await storage.read(LATEST) == wanted


@in_loop
async def test_damage_is_told_as_a_storage_error_with_what_is_damaged():
    store = MemoryStateStore()
    await HoldfastStorage(store).write(LATEST, blob("one"))
    (segment,) = [key async for key in store.list() if "/log/" in key]
    await store.put(segment, b'{"damaged": true}')
    with pytest.raises(StorageError, match="read.*log/000000000001"):
        await HoldfastStorage(store).read(LATEST)


def test_threads_may_share_it():
    storage = HoldfastStorage(MemoryStateStore())

    def work(number):
        for turn in range(5):
            data = blob(*(["x"] * turn), who=number)
            asyncio.run(storage.write(LATEST.replace("waiter", f"w{number % 2}"), data))

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(asyncio.run(storage.list("session/ses/"))) == 2


@in_loop
async def test_it_is_searched_by_words_as_any_storage_of_strands():
    storage = HoldfastStorage(MemoryStateStore())
    await storage.write("notes/menu", b"soup of the day")
    await storage.write("notes/wine", b"red or white")
    assert [found.key for found in await storage.search("soup")] == ["notes/menu"]


# ------------------------------------------------------------------------------------- an agent


def test_an_agent_resumes_on_every_backend(new_state_store):
    store = new_state_store()
    agent = waiter(HoldfastStorage(store), CALL, "Two tables", snapshot_trigger=always)
    agent.state.set("guests", 2)
    agent("A table?")
    resumed = waiter(HoldfastStorage(store), "You are welcome")
    assert resumed.messages == agent.messages
    assert resumed.state.get() == {"guests": 2}
    resumed("Thanks")
    assert texts(waiter(HoldfastStorage(store))) == [
        "A table?",
        "Two tables",
        "Thanks",
        "You are welcome",
    ]
    done(store.close())


@in_loop
async def test_it_is_a_session_of_holdfast():
    store = MemoryStateStore()
    agent = waiter(HoldfastStorage(store), CALL, "Two tables")
    agent.state.set("guests", 2)
    await agent.invoke_async("A table?")
    assert await Catalog(store).agents() == ["waiter"]
    session = await Session.open(store, agent_id="waiter", session_id="ses", must_exist=True)
    assert session.messages == agent.messages
    assert session.state == {"guests": 2}
    assert session.unfinished == []
    assert (await session.verify()).ok


@in_loop
async def test_its_document_has_messages_and_values():
    storage = HoldfastStorage(MemoryStateStore())
    agent = waiter(storage, "Welcome", CALL, "Two", snapshot_trigger=always)
    agent.state.set("guests", 2)
    await agent.invoke_async("Hello")
    (first,) = await agent._session_manager.list_snapshot_ids(agent)
    await agent.invoke_async("A table?")
    now = await storage.document("ses", "waiter")
    then = await storage.document("ses", "waiter", snapshot_id=first)
    assert now.state.messages == agent.messages
    assert (len(then.state.messages), then.state.values) == (2, {"guests": 2})
    assert now.events[0].type == "session.started"
    with pytest.raises(NotFoundError):
        await storage.document("ses", "cook")


@in_loop
async def test_strands_travels_back_in_time_through_its_own_history():
    storage = HoldfastStorage(MemoryStateStore())
    agent = waiter(storage, "one", "two", "three", snapshot_trigger=always)
    manager = agent._session_manager
    for word in ("1", "2", "3"):
        await agent.invoke_async(word)
    ids = await manager.list_snapshot_ids(agent)
    assert len(ids) == 3
    assert await manager.list_snapshot_ids(agent, limit=1, start_after=ids[0]) == ids[1:2]
    assert await manager.restore_snapshot(agent, snapshot_id=ids[0])
    assert texts(agent) == ["1", "one"]
    assert await manager.restore_snapshot(agent)
    assert texts(agent) == ["1", "one", "2", "two", "3", "three"]


@in_loop
async def test_a_checkpoint_alone_does_not_move_the_latest():
    storage = HoldfastStorage(MemoryStateStore())
    agent = waiter(storage, "one", "two", save_latest_on="trigger")
    await agent.invoke_async("1")
    checkpoint = await agent._session_manager.save_snapshot(agent, is_latest=False)
    assert texts(waiter(storage)) == []
    await agent._session_manager.save_snapshot(agent, is_latest=True)
    await agent.invoke_async("2")
    later = await agent._session_manager.save_snapshot(agent, is_latest=False)
    assert texts(waiter(storage)) == ["1", "one"]
    assert await agent._session_manager.list_snapshot_ids(agent) == [checkpoint, later]


def test_a_restore_by_holdfast_is_where_the_agent_resumes():
    store = MemoryStateStore()
    agent = waiter(HoldfastStorage(store), "one", "two", snapshot_trigger=always)
    agent("1")
    agent("2")
    (first, _) = done(agent._session_manager.list_snapshot_ids(agent))
    session = BlockingSession.open(store, agent_id="waiter", session_id="ses")
    session.restore(first)
    resumed = waiter(HoldfastStorage(store), "other")
    assert texts(resumed) == ["1", "one"]
    resumed("3")
    assert texts(waiter(HoldfastStorage(store))) == ["1", "one", "3", "other"]
    saved = session.save()
    assert done(HoldfastStorage(store).read(KEPT[0].replace(IDS[0], saved.snapshot_id)))
    assert session.verify().ok


def test_a_fork_at_a_checkpoint_is_another_session_of_strands():
    store = MemoryStateStore()
    agent = waiter(HoldfastStorage(store), "one", "two", snapshot_trigger=always)
    agent("1")
    agent("2")
    (first, _) = done(agent._session_manager.list_snapshot_ids(agent))
    session = BlockingSession.open(store, agent_id="waiter", session_id="ses")
    session.fork("ses_2", at=first)
    fork = waiter(HoldfastStorage(store), "three", session_id="ses_2")
    assert texts(fork) == ["1", "one"]
    fork("3")
    assert texts(waiter(HoldfastStorage(store), session_id="ses_2")) == ["1", "one", "3", "three"]
    assert texts(waiter(HoldfastStorage(store))) == ["1", "one", "2", "two"]


@in_loop
async def test_a_document_of_any_moment_is_imported_elsewhere_and_resumed():
    here, there = MemoryStateStore(), MemoryStateStore()
    agent = waiter(HoldfastStorage(here), "one", "two", snapshot_trigger=always)
    await agent.invoke_async("1")
    await agent.invoke_async("2")
    (first, _) = await agent._session_manager.list_snapshot_ids(agent)
    now = await HoldfastStorage(here).document("ses", "waiter")
    then = await HoldfastStorage(here).document("ses", "waiter", snapshot_id=first)
    manager = SnapshotManager(there)
    await manager.import_session(manager.from_dict(now.to_dict()), session_id="now")
    await manager.import_session(manager.from_dict(then.to_dict()), session_id="then")
    storage = HoldfastStorage(there)
    assert texts(waiter(storage, session_id="now")) == ["1", "one", "2", "two"]
    assert texts(waiter(storage, session_id="then")) == ["1", "one"]
    added = now.snapshot.diff(then.snapshot)["added"]
    assert added == [("messages", "000000000002"), ("messages", "000000000003")]


@in_loop
async def test_a_deleted_session_leaves_nothing_behind_and_others_alone():
    store = MemoryStateStore()
    other = await Session.open(store, agent_id="other", session_id="apart")
    other.set("x", 1)
    await other.commit()
    before = [key async for key in store.list()]
    storage = HoldfastStorage(store)
    agent = waiter(storage, "one", "two", snapshot_trigger=always)
    await agent.invoke_async("1")
    await agent.invoke_async("2")
    await storage.write("context/ses/1", b"stash")
    await SnapshotSessionManager("ses", storage=storage).delete_session()
    assert [key async for key in store.list()] == before
    assert texts(waiter(storage)) == []


@in_loop
async def test_what_another_agent_has_in_the_session_stays_when_strands_deletes_it():
    store = MemoryStateStore()
    other = await Session.open(store, agent_id="other", session_id="ses")
    other.record("noted", changes={"set": [("notes", "n", 1)], "delete": []})
    await other.commit()
    storage = HoldfastStorage(store)
    await waiter(storage, "one").invoke_async("1")
    await SnapshotSessionManager("ses", storage=storage).delete_session()
    assert await storage.list("") == []
    await other.reload()
    assert other.snapshot().get("notes", "n") == 1


@in_loop
async def test_an_orchestrator_resumes_as_a_session_of_several_agents():
    store = MemoryStateStore()

    def graph(*answers):
        node = waiter(None, *answers)
        node._session_manager = None
        builder = GraphBuilder()
        builder.add_node(node, "cook")
        builder.set_graph_id("kitchen")
        builder.set_max_node_executions(5)
        manager = SnapshotSessionManager("ses", storage=HoldfastStorage(store))
        builder.set_session_manager(manager)
        return builder.build()

    await graph("soup").invoke_async("What is there?")
    (key,) = await HoldfastStorage(store).list("session/ses/scopes/multiAgent/")
    assert key.endswith("/snapshots/snapshot_latest.json")
    (location,) = await Catalog(store).locations("ses")
    assert location.scope == "multi_agent"
    await graph("soup").invoke_async("Again")


# -------------------------------------------------------------------------------- after a crash

CRASHING = """
import asyncio, os, sys
import holdfast
from adapters.scripted_strands import waiter
from holdfast.adapters.strands import HoldfastStorage

storage = HoldfastStorage(holdfast.open_state_store(sys.argv[1]))
agent = waiter(storage, "Welcome", save_latest_on="message")
agent.state.set("guests", 2)
agent("Hello")
agent.model.stream = lambda *rest, **more: os._exit(137)
agent("A table?")
"""


@pytest.mark.parametrize("scheme", ["sqlite:///", "file://"])
def test_a_new_process_goes_on_where_a_dead_one_stopped(tmp_path, scheme):
    url = f"{scheme}{tmp_path / 'state'}"
    ended = subprocess.run(
        [sys.executable, "-c", CRASHING, url],
        env={"PYTHONPATH": ":".join([str(Path(__file__).parent.parent), *sys.path]), "PATH": ""},
        check=False,
        capture_output=True,
    )
    assert ended.returncode == 137, ended.stderr.decode()
    store = open_state_store(url)
    agent = waiter(HoldfastStorage(store), "Two")
    assert texts(agent) == ["Hello", "Welcome", "A table?"]
    assert agent.state.get() == {"guests": 2}
    agent("Are you there?")
    assert done(SnapshotManager(store).export_session("waiter")).state.messages == agent.messages
    done(store.close())
