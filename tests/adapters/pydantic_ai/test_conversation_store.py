"""Conversations of Pydantic AI, with the real package and a scripted model."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, UserPromptPart

from adapters.pydantic_ai.conversations import MESSAGES, add_with_retries, make_agent
from holdfast import ConflictError, Session, UnsupportedValueError
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import SharedMemory
from support.observed_store import ObservedStore
from support.subprocesses import run_python


def request(text):
    return ModelRequest(parts=[UserPromptPart(text)])


async def save_texts(store, name, *texts, **options):
    """Add messages to a conversation; return it."""
    found = await store.load(name) or Conversation(conversation_id=name)
    found.messages += [request(text) for text in texts]
    await store.save(found, **options)
    return found


def texts_of(entries):
    return [each.message.parts[0].content for each in entries]


# --------------------------------------------------------------------------------------- basics


@async_test
async def test_conversations_are_stored_as_by_pydantic_ai_on_every_backend(new_state_store):
    async with new_state_store() as state_store:
        ours, theirs = HoldfastConversationStore(state_store), InMemoryConversationStore()
        names = [[], []]
        for store, seen in zip((ours, theirs), names, strict=True):
            assert await store.load("c/1") is None
            assert await store.list_conversations() == []
            await store.save(Conversation(conversation_id="c/1", messages=MESSAGES[:2]), scope="u")
            found = await store.load("c/1")
            found.messages += MESSAGES[2:]
            await store.save(found)
            await store.fork("c/1", at=3, new_conversation_id="c2")
            await store.branch("c/1", at=1, expected_revision=found.revision)
            seen += [each.conversation_id for each in await store.list_conversations(scope="u")]
            await store.delete("c/1")
            assert [e.conversation_id for e in await store.list_conversations()] == ["c2"]
        assert names == [["c/1", "c2"]] * 2
        another = HoldfastConversationStore(state_store)
        mine, yours = await another.load("c2"), await theirs.load("c2")
        assert mine.messages == yours.messages == MESSAGES[:3]
        assert await another.load("c/1") is None
        entries = await another.load_entries("c2")
        assert await HoldfastConversationStore(state_store).read_entry(entries[1].id) == entries[1]
        session = await Session.open(
            state_store, agent_id="pydantic-ai", session_id="c2", must_exist=True
        )
        assert (await session.verify()).ok
        assert len(session.messages) == 3


@async_test
async def test_messages_of_every_kind_come_back_equal():
    store = HoldfastConversationStore(MemoryStateStore())
    await store.save(Conversation(conversation_id="c", messages=list(MESSAGES)))
    assert (await store.load("c")).messages == MESSAGES


@async_test
async def test_an_agent_continues_its_conversation_in_another_store():
    content = MemoryStateStore()
    agent = make_agent()
    for words in ("hello", "free tables?", "bye"):
        store = HoldfastConversationStore(SharedMemory(content), agent_id="waiter")
        found = await store.load("ses") or Conversation(conversation_id="ses")
        result = await agent.run(words, conversation=found)
        await store.save(result, scope="guest")
    loaded = await store.load("ses")
    assert loaded == result.conversation
    assert loaded.usage.requests == 4
    assert loaded.usage.tool_calls == 1
    session = await Session.open(content, agent_id="waiter", session_id="ses", must_exist=True)
    assert session.status == "completed"
    assert [each["kind"] for each in session.messages] == ["request", "response"] * 4
    assert session.state["conversation"]["scope"] == "guest"
    assert session.state["conversation"]["usage"]["requests"] == 4


@async_test
async def test_a_paused_run_waits_and_continues_after_a_restart():
    content = MemoryStateStore()
    agent = make_agent()
    store = HoldfastConversationStore(content)
    result = await agent.run("book it", conversation=Conversation(conversation_id="c"))
    await store.save(result)
    assert (await Session.open(content, agent_id="pydantic-ai", session_id="c")).status == "waiting"

    again = HoldfastConversationStore(SharedMemory(content))
    found = await again.load("c")
    asked = found.deferred_tool_requests
    assert [call.tool_name for call in asked.approvals] == ["book"]
    results = asked.build_results(approve_all=True)
    done = await agent.run(deferred_tool_results=results, conversation=found)
    await again.save(done)
    assert done.output == "3: booked monday"
    assert (await again.load("c")).deferred_tool_requests is None
    session = await Session.open(content, agent_id="pydantic-ai", session_id="c")
    assert session.status == "completed"


@async_test
async def test_a_value_without_json_form_is_refused_and_nothing_is_stored():
    store = HoldfastConversationStore(MemoryStateStore())
    odd = ModelResponse(parts=[TextPart("x")], metadata={"odd": object()})
    with pytest.raises(UnsupportedValueError, match=r"cannot be stored"):
        await store.save(Conversation(conversation_id="c", messages=[request("a"), odd]))
    assert await store.load("c") is None


# --------------------------------------------------------------------------------- what it costs


@async_test
async def test_a_save_writes_the_new_messages_only_and_a_load_reads_them_once():
    content = ObservedStore()
    store = HoldfastConversationStore(content)
    for number in range(40):
        await save_texts(store, "c", f"{number}:" + "x" * 1000)
    content.forget()
    found = await store.load("c")
    assert len(found.messages) == 40
    assert len(content.calls) <= 6
    content.forget()
    found.messages.append(request("y"))
    await store.save(found)
    segments = [key for key in content.written if "/log/" in key]
    entries = [key for key in content.written if "/entries/" in key]
    assert len(segments) == len(entries) == 1
    assert content.bytes_written < 5000


@async_test
async def test_listings_read_no_histories():
    content = ObservedStore()
    store = HoldfastConversationStore(content)
    for number in range(40):
        scope = f"user-{number % 2}"
        await save_texts(store, f"c{number:02}", "secret " * 100, scope=scope)
        await save_texts(store, f"c{number:02}", "more")
    store = HoldfastConversationStore(content)
    content.forget()
    found = await store.list_conversations(scope="user-1")
    assert [each.conversation_id for each in found] == [f"c{n:02}" for n in range(39, 0, -2)]
    segments = [key for key in content.read if "/log/" in key]
    assert len(segments) == len(set(segments)) == 40
    assert not any(b"secret" in content.content[key] for key in segments)
    assert not [key for key in content.read if "/keyframes/" in key]


@async_test
async def test_an_entry_is_found_without_reading_other_conversations():
    content = ObservedStore()
    store = HoldfastConversationStore(content)
    for number in range(30):
        await save_texts(store, f"c{number}", "a", "b", "c")
    (_, wanted, _) = await store.load_entries("c7")
    content.forget()
    assert await HoldfastConversationStore(content).read_entry(wanted.id) == wanted
    sessions = {key.split("/")[1] for key in content.read if key.startswith("sessions/")}
    assert sessions == {"c7"}
    content.forget()
    with pytest.raises(KeyError):
        await store.read_entry("01a1e462-9e60-75e0-adb0-22d29bcbc2cd")
    assert not [key for key in content.read if key.startswith("sessions/")]


@async_test
async def test_ids_of_any_form_are_found():
    store = HoldfastConversationStore(MemoryStateStore())
    ids = ["z", "a/b", "..", "é", "entry-number-2", "entry-number-1", "entry-number-3"]
    parents = [None, *ids]
    entries = [
        ConversationEntry(id=each, parent_id=parent, message=request(each))
        for each, parent in zip(ids, parents, strict=False)
    ]
    for number in range(20):
        await save_texts(store, f"other{number}", "x")
    record = ConversationRecord(conversation_id="c", head_id=ids[-1])
    await store.write_record(record, new_entries=entries, expected_revision=None)
    fresh = HoldfastConversationStore(store.state_store)
    assert [await fresh.read_entry(each) for each in ids] == entries
    await fresh.delete("c")
    for each in ids:
        with pytest.raises(KeyError):
            await fresh.read_entry(each)
    assert not [key async for key in store.state_store.list("pydantic_ai/") if "/c/" in key]


# -------------------------------------------------------------------------------------- conflicts


@async_test
async def test_of_many_concurrent_saves_of_one_revision_one_succeeds(new_state_store):
    async with new_state_store() as one, new_state_store() as other:
        stores = [HoldfastConversationStore(one), HoldfastConversationStore(other)]
        await save_texts(stores[0], "c", "a")
        copies = [await store.load("c") for store in stores for _ in range(2)]
        for number, each in enumerate(copies):
            each.messages.append(request(f"by {number}"))
        saves = [stores[n // 2].save(each) for n, each in enumerate(copies)]
        outcomes = await asyncio.gather(*saves, return_exceptions=True)
        (winner,) = [n for n, each in enumerate(outcomes) if isinstance(each, list)]
        assert all(isinstance(e, list | ConversationConflict) for e in outcomes)
        entries = await stores[0].load_entries("c")
        assert texts_of(entries) == ["a", f"by {winner}"]
        with pytest.raises(ConversationConflict):
            await stores[1].save(copies[winner - 1])


@async_test
async def test_an_entry_id_cannot_be_used_for_another_message():
    store = HoldfastConversationStore(MemoryStateStore())
    entry = ConversationEntry(id="e", parent_id=None, message=request("a"))
    record = ConversationRecord(conversation_id="c", head_id="e")
    await store.write_record(record, new_entries=[entry], expected_revision=None)
    await store.write_record(record, new_entries=[entry], expected_revision=record.revision)
    other = ConversationEntry(id="e", parent_id=None, message=request("b"))
    with pytest.raises(ConflictError, match="another message"):
        await store.write_record(record, new_entries=[other], expected_revision=record.revision)
    assert texts_of(await store.load_entries("c")) == ["a"]


PROGRAM = """
import asyncio, sys
from adapters.pydantic_ai.conversations import add_with_retries
from holdfast.adapters.pydantic_ai import HoldfastConversationStore

async def main():
    async with HoldfastConversationStore.from_url(sys.argv[1]) as store:
        await add_with_retries(store, "c", "b", 10)

asyncio.run(main())
"""


@async_test
async def test_processes_that_load_again_after_a_conflict_lose_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    async with HoldfastConversationStore.from_url(url) as store:
        await save_texts(store, "c", "first")
        process = asyncio.create_task(asyncio.to_thread(run_python, PROGRAM, url))
        while len(await store.load_entries("c")) == 1 and not process.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)  # until the other process has started
        await add_with_retries(store, "c", "a", 10)
        assert (await process).returncode == 0, (await process).stderr
        found = texts_of(await store.load_entries("c"))
        assert found[0] == "first"
        for name in "ab":
            mine = [text for text in found if text.startswith(name)]
            assert mine == [f"{name}{number}" for number in range(10)]
        assert len(found) == 21
