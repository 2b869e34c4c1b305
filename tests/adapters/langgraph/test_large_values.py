"""Images and large results of tools in the messages of a graph are stored once."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.graph import MessagesState
from pydantic import BaseModel

from adapters.langgraph.conftest import open_savers
from adapters.langgraph.graphs import Steps, at, build_steps, chain
from holdfast import ConflictError, IntegrityError, Session
from holdfast.adapters.langgraph import HoldfastSaver, HoldfastStore, lifecycle
from holdfast.blobs import contents as contents_module
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.backends import make_opener
from support.images import BASE64, DATA_URL, IMAGE, SAVES, TEXT, check_stored_once
from support.observed_store import ObservedStore

PARTS = [
    {"type": "text", "text": "What is this?"},
    {"type": "image_url", "image_url": {"url": DATA_URL}},
    {"type": "image", "source_type": "base64", "data": BASE64, "mime_type": "image/png"},
]
RAW = TEXT.encode()


@pytest.fixture
def no_cache(monkeypatch):
    """Keep no content in memory, so that each value is read when it is needed."""
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 0)


def model(state):
    return {"messages": [AIMessage("a tool", id=f"a{len(state['messages'])}")]}


def tool(state):
    last = f"t{len(state['messages'])}"
    return {"messages": [ToolMessage(TEXT, tool_call_id="1", id=last, artifact={"raw": RAW})]}


def build_talk(saver):
    """Return a graph whose tool returns a large text and bytes."""
    return chain(MessagesState, model, tool).compile(checkpointer=saver)


def ask(number):
    return {"messages": [HumanMessage(PARTS if number == 0 else f"{number}?", id=f"u{number}")]}


def check_messages(graph, config):
    """Check the large parts of a conversation; return the messages."""
    found = graph.get_state(config).values["messages"]
    assert found[0] == HumanMessage(PARTS, id="u0")
    assert found[2].content == TEXT
    assert found[2].artifact == {"raw": RAW}
    return found


def test_an_image_is_stored_once_however_many_steps_follow():
    store = ObservedStore()
    graph = build_talk(HoldfastSaver(store))
    for number in range(SAVES):
        graph.invoke(ask(number), at())
    check_stored_once(store, DATA_URL, BASE64, TEXT)
    messages = check_messages(graph, at())
    again = build_talk(HoldfastSaver(store))
    assert check_messages(again, at()) == messages
    history = list(again.get_state_history(at(), limit=9))
    assert check_messages(again, history[8].config) == messages[:-6]
    again.invoke(ask(SAVES), at())
    check_stored_once(store, DATA_URL, BASE64, TEXT)


@pytest.mark.parametrize("backend", ["sqlite", "postgresql", "redis"])
def test_blocking_and_async_calls_read_them_on_other_backends(backend, request, no_cache):
    with open_savers(make_opener(backend, request)) as new_saver:
        build_talk(new_saver()).invoke(ask(1), at())
        graph = build_talk(new_saver())
        messages = graph.get_state(at()).values["messages"]
        assert (messages[2].content, messages[2].artifact) == (TEXT, {"raw": RAW})
        state = run_async(read_state(new_saver()))
        assert state.values["messages"] == messages
        graph.update_state(at(), {"messages": [AIMessage("more", id="z")]})
        again = build_talk(new_saver()).get_state(at())
        assert again.values["messages"] == [*messages, AIMessage("more", id="z")]


@async_test
async def test_async_calls_do_not_block_for_the_current_checkpoint(monkeypatch):
    store = ObservedStore()
    await build_talk(HoldfastSaver(store)).ainvoke(ask(1), at())
    saver = HoldfastSaver(store)

    def fail(_, work):
        work.close()
        raise AssertionError("a large value was read in the event loop")

    monkeypatch.setattr(contents_module, "run_blocking", fail)
    state = await read_state(saver)
    assert state.values["messages"][2].content == TEXT


async def read_state(saver):
    return await build_talk(saver).aget_state(at())


def test_restored_copied_and_rolled_back_threads_have_them():
    store = ObservedStore()
    saver = HoldfastSaver(store)
    graph = build_talk(saver)
    graph.invoke(ask(0), at())
    then = dt.datetime.now(dt.UTC)
    before = check_messages(graph, at())
    graph.invoke(ask(1), at())
    graph.update_state(at(), {"messages": [HumanMessage("no image", id="u0")]})
    (result,) = saver.rollback_threads(["t"], to=then)
    assert result.outcome == "rolled_back"
    assert check_messages(build_talk(HoldfastSaver(store)), at()) == before
    saver.copy_thread("t", "copy")
    saver.delete_thread("t")
    copy = build_talk(HoldfastSaver(store))
    assert check_messages(copy, at("copy")) == before
    assert len(list(copy.get_state_history(at("copy")))) >= 8
    session = run_async(open_thread(store, "copy"))
    assert run_async(session.verify()).damage == []
    fork = run_async(session.fork("fork"))
    assert fork.messages[0]["content"] == PARTS
    assert check_messages(copy, at("fork")) == before


async def open_thread(store, thread_id):
    return await Session.open(store, agent_id="langgraph", session_id=thread_id, must_exist=True)


class Scan(BaseModel):
    """An object that LangGraph's serializer encodes as a whole."""

    pixels: bytes


def test_objects_and_pending_writes_have_them(no_cache):
    store = ObservedStore()

    def draw(state):
        return {"log": [Scan(pixels=IMAGE), {"raw": IMAGE}]}

    def fail(state):
        raise RuntimeError("stop")

    types = [(Scan.__module__, "Scan")]
    graph = chain(Steps, draw, fail).compile(checkpointer=HoldfastSaver(store, allowed_types=types))
    with pytest.raises(RuntimeError):
        graph.invoke({"log": []}, at())
    again = chain(Steps, draw, fail).compile(checkpointer=HoldfastSaver(store, allowed_types=types))
    state = again.get_state(at())
    assert state.values["log"] == [Scan(pixels=IMAGE), {"raw": IMAGE}]
    # The object is one blob with its encoding, the other value one with the image itself.
    assert store.bytes < 2.1 * len(IMAGE)


@async_test
async def test_writes_to_a_checkpoint_that_is_not_current_have_them():
    store = ObservedStore()
    saver = HoldfastSaver(store)
    config = at(checkpoint_ns="")
    old = await saver.aput(config, empty_checkpoint(), {"step": 0}, {})
    await saver.aput(old, {**empty_checkpoint(), "id": "2"}, {"step": 1}, {})
    await saver.aput_writes(old, [("log", {"image": IMAGE, "text": TEXT})], "task")
    for each in (saver, HoldfastSaver(store)):
        found = await each.aget_tuple(old)
        assert found.pending_writes == [("task", "log", {"image": IMAGE, "text": TEXT})]
    check_stored_once(store, IMAGE, TEXT)


@async_test
async def test_writes_before_their_checkpoint_have_them():
    store = ObservedStore()
    checkpoint = empty_checkpoint()
    config = at(checkpoint_ns="", checkpoint_id=checkpoint["id"])
    await HoldfastSaver(store).aput_writes(config, [("log", [IMAGE])], "task")
    saver = HoldfastSaver(store)
    await saver.aput(at(checkpoint_ns=""), checkpoint, {"step": 0}, {})
    for each in (saver, HoldfastSaver(store)):
        assert (await each.aget_tuple(config)).pending_writes == [("task", "log", [IMAGE])]
    check_stored_once(store, IMAGE)


def test_a_missing_image_is_an_error_that_names_it_and_other_checkpoints_load():
    store = ObservedStore()
    graph = build_steps(HoldfastSaver(store))
    graph.update_state(at(), {"log": ["small"]}, as_node="one")
    small = graph.get_state(at()).config
    graph.update_state(at(), {"log": ["other"]}, as_node="one")
    graph.update_state(at(), {"log": [IMAGE]}, as_node="one")
    for key in store.keys_with("/blobs/"):
        run_async(store.delete(key))
    again = build_steps(HoldfastSaver(store))
    with pytest.raises(IntegrityError, match="checkpoint .* is damaged: blob [0-9a-f]{64} in "):
        again.get_state(at())
    assert again.get_state(small).values == {"log": ["small"]}


def test_memories_may_be_large_and_have_a_history(no_cache):
    store = ObservedStore()
    memory = HoldfastStore(store)
    user = ("users", "7")
    for number in range(SAVES):
        memory.put(user, "a", {"image": IMAGE, "n": number})
    memory.put(user, "b", {"text": TEXT})
    memory.delete(user, "a")
    check_stored_once(store, IMAGE, TEXT)
    again = HoldfastStore(store)
    assert again.get(user, "b").value == {"text": TEXT}
    versions = again.history(user, "a")
    assert [each.value for each in versions[-2:]] == [{"image": IMAGE, "n": SAVES - 1}, None]
    assert again.get_at(user, "a", versions[0].seq).value == {"image": IMAGE, "n": 0}
    assert again.restore(user, "a", versions[3].seq).value == {"image": IMAGE, "n": 3}
    assert [each.value["n"] for each in again.search(user) if each.key == "a"] == [3]
    assert HoldfastStore(store).get(user, "a").value == {"image": IMAGE, "n": 3}
    check_stored_once(store, IMAGE, TEXT)


@async_test
async def test_a_copy_of_a_thread_that_is_pruned_meanwhile_is_refused(monkeypatch):
    store = MemoryStateStore()
    saver = HoldfastSaver(store)
    graph = build_steps(saver)
    await graph.aupdate_state(at(), {"log": [IMAGE]}, as_node="one")
    copy_entries = lifecycle.copy_entries

    async def count_sweep(*arguments):
        session = await open_thread(store, "t")
        manifest = await session.archive.load_manifest(location=session.location)
        swept = replace(manifest, blob_sweeps=manifest.blob_sweeps + 1)
        await store.put(session.location.manifest_key, swept.encode())
        return await copy_entries(*arguments)

    monkeypatch.setattr(lifecycle, "copy_entries", count_sweep)
    with pytest.raises(ConflictError, match="was pruned while it was copied; retry"):
        await saver.acopy_thread("t", "copy")
    monkeypatch.undo()
    await saver.acopy_thread("t", "copy")
    found = await build_steps(HoldfastSaver(store)).aget_state(at("copy"))
    assert found.values == {"log": [IMAGE]}


def test_pruned_and_deleted_threads_leave_no_images():
    store = ObservedStore()
    saver = HoldfastSaver(store)
    graph = build_talk(saver)
    graph.invoke(ask(0), at())
    graph.update_state(at(), {"messages": [RemoveMessage("u0")]})
    kept = graph.get_state(at()).values["messages"]
    graph.update_state(at(), {"messages": [AIMessage("more", id="z")]})
    saver.prune(["t"])
    check_stored_once(store, TEXT)
    found = build_talk(HoldfastSaver(store)).get_state(at()).values["messages"]
    assert found == [*kept, AIMessage("more", id="z")]
    saver.delete_thread("t")
    assert store.keys_with("/blobs/") == []
