"""Images and large results of tools are stored once, whatever the framework does with them.

LangGraph, CrewAI and ADK have such tests of their own.
"""

from __future__ import annotations

import json

import pytest

from holdfast import Session
from holdfast.blobs import contents as contents_module
from support.async_tests import async_test
from support.conversations import reopen_session
from support.images import BASE64, DATA_URL, IMAGE, SAVES, TEXT, check_stored_once
from support.observed_store import ObservedStore


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    """Keep no content in memory, so that each value is read when it is needed."""
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 0)


async def open_location(state_store, location):
    """Open the session of an adapter."""
    return await Session.open(
        state_store,
        agent_id=location.scope_id,
        session_id=location.session_id,
        must_exist=True,
    )


@async_test
async def test_openai_agents():
    pytest.importorskip("agents")
    from holdfast.adapters.openai_agents import HoldfastSession

    store = ObservedStore()
    session = HoldfastSession("ses", store)
    first = [
        {"role": "user", "content": [{"type": "input_image", "image_url": DATA_URL}]},
        {"type": "function_call_output", "call_id": "c", "output": TEXT},
    ]
    await session.add_items(first)
    saved = await session.save()
    for number in range(SAVES):
        await session.add_items([{"role": "user", "content": f"{number}"}])
        await session.save()
    check_stored_once(store, DATA_URL, TEXT)
    again = HoldfastSession("ses", store)
    assert (await again.get_items())[:2] == first
    await again.clear_session()
    await again.restore(saved.snapshot_id)
    assert await again.get_items() == first
    fork = await again.fork("other")
    assert await HoldfastSession("other", store).get_items() == await fork.get_items() == first
    assert (await fork.verify()).ok


@async_test
async def test_strands():
    pytest.importorskip("strands")
    from holdfast.adapters.strands import HoldfastStorage

    store = ObservedStore()
    image = {"image": {"format": "png", "source": {"bytes": {"__bytes_encoded__": True}}}}
    image["image"]["source"]["bytes"]["data"] = BASE64
    messages = [{"role": "user", "content": [image, {"text": "What is this?"}]}]
    folder = "session/ses/scopes/agent/waiter/snapshots/"

    def encode():
        data = {"messages": messages, "state": {"report": TEXT}, "system_prompt": None}
        tree = {"scope": "agent", "schema_version": "1.0", "created_at": "2026-11-15T12:00:00Z"}
        return json.dumps({**tree, "data": data, "app_data": {}}, ensure_ascii=False).encode()

    storage = HoldfastStorage(store)
    ids = [f"01a1df16-9e31-704e-8a58-efa1ae681b{number:02}" for number in range(SAVES)]
    written = {}
    for each in ids:
        messages.append({"role": "assistant", "content": [{"text": each}]})
        latest = encode()
        await storage.write(f"{folder}snapshot_latest.json", latest)
        if each in (ids[0], ids[-2]):
            key = f"{folder}immutable_history/snapshot_{each}.json"
            written[key] = latest
            await storage.write(key, latest)
    check_stored_once(store, BASE64, TEXT)
    again = HoldfastStorage(store)
    assert await again.read(f"{folder}snapshot_latest.json") == latest
    for key, data in written.items():
        assert await again.read(key) == data
    await again.write(f"{folder}snapshot_latest.json", latest)
    check_stored_once(store, BASE64, TEXT)
    session = await Session.open(store, agent_id="waiter", session_id="ses", must_exist=True)
    await session.restore(ids[0])
    await session.fork("other")
    fork = HoldfastStorage(store)
    key = f"{folder}snapshot_latest.json"
    assert await fork.read(key.replace("/ses/", "/other/")) == next(iter(written.values()))


@async_test
async def test_strands_bytes_that_are_not_a_snapshot():
    pytest.importorskip("strands")
    from holdfast.adapters.strands import HoldfastStorage

    store = ObservedStore()
    storage = HoldfastStorage(store)
    key = "session/ses/scopes/agent/waiter/snapshots/snapshot_latest.json"
    for _ in range(3):
        await storage.write(key, IMAGE)
        await storage.write(key, b"other")
    await storage.write(key, IMAGE)
    assert await HoldfastStorage(store).read(key) == IMAGE
    check_stored_once(store, IMAGE)


@async_test
async def test_claude_agent():
    pytest.importorskip("claude_agent_sdk")
    from adapters.claude_agent.transcripts import KEY, PROJECT, make_assistant, make_user
    from holdfast.adapters.claude_agent import HoldfastSessionStore

    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    source = {"type": "base64", "media_type": "image/png", "data": BASE64}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": TEXT}
    entries = [make_user([{"type": "image", "source": source}]), make_user([result])]
    await adapter.append(KEY, entries)
    for number in range(SAVES):
        entries.append(make_assistant(f"{number}"))
        await adapter.append(KEY, entries[-1:])
    check_stored_once(store, BASE64, TEXT)
    again = HoldfastSessionStore(store)
    assert await again.load(KEY) == entries
    assert len(await again.list_sessions(PROJECT)) == 1
    session = await open_location(store, again.location(KEY))
    saved = await session.save()
    await again.append(KEY, [make_user("later")])
    await session.refresh()
    await session.restore(saved.snapshot_id)
    assert await HoldfastSessionStore(store).load(KEY) == entries
    other = {**KEY, "session_id": "7b0a4a52-7d5f-4e0e-9d0c-0d3b8f1a2c99"}
    await session.fork(other["session_id"])
    assert await HoldfastSessionStore(store).load(other) == entries


@async_test
async def test_pydantic_ai():
    pytest.importorskip("pydantic_ai")
    from pydantic_ai import BinaryContent
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.messages import ModelRequest, ToolReturnPart, UserPromptPart

    from holdfast.adapters.pydantic_ai import HoldfastConversationStore

    store = ObservedStore()
    adapter = HoldfastConversationStore(store)
    picture = BinaryContent(data=IMAGE, media_type="image/png")
    talk = Conversation(
        conversation_id="talk",
        messages=[
            ModelRequest(parts=[UserPromptPart(["What is this?", picture])]),
            ModelRequest(parts=[ToolReturnPart("draw", TEXT, "c1")]),
        ],
    )
    await adapter.save(talk)
    talk = await adapter.load("talk")
    session = await open_location(store, adapter.location("talk"))
    saved = await session.save()
    for number in range(SAVES):
        talk.messages.append(ModelRequest(parts=[UserPromptPart(f"{number}")]))
        await adapter.save(talk)
    check_stored_once(store, find_image_text(talk), TEXT)
    again = await HoldfastConversationStore(store).load("talk")
    assert again.messages == talk.messages
    await session.refresh()
    await session.restore(saved.snapshot_id)
    again = await HoldfastConversationStore(store).load("talk")
    assert again.messages == talk.messages[:2]
    await session.fork("other")
    assert (await HoldfastConversationStore(store).load("other")).messages == talk.messages[:2]
    assert len(await HoldfastConversationStore(store).list_conversations()) == 2


def find_image_text(talk):
    """Return the text of the image as Pydantic AI writes it into JSON."""
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    data = json.loads(ModelMessagesTypeAdapter.dump_json(talk.messages[:1]))
    return data[0]["parts"][0]["content"][1]["data"]


@async_test
async def test_a2a():
    pytest.importorskip("a2a")
    from a2a.types.a2a_pb2 import Message, Part, Role, Task, TaskArtifactUpdateEvent

    from adapters.a2a.tasks import ANYONE, MISSING, add_chunk, collect, make_task
    from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore

    store = ObservedStore()
    adapter = HoldfastTaskStore(store)
    picture = Part(raw=IMAGE, media_type="image/png")
    task = make_task(texts=())
    task.history.append(Message(message_id="m", role=Role.ROLE_USER, parts=[picture]))
    await adapter.save(task, event=task, prev_version=MISSING, context=ANYONE)
    session = await Session.open(store, agent_id="a2a", session_id="t1", must_exist=True)
    saved = await session.save()
    await add_chunk(adapter, await adapter.get("t1", ANYONE), TEXT)
    for number in range(SAVES):
        await add_chunk(adapter, await adapter.get("t1", ANYONE), f"{number}")
    check_stored_once(store, BASE64, TEXT)
    again = HoldfastTaskStore(store)
    found = (await again.get("t1", ANYONE)).task
    assert found.history == task.history
    assert [part.text for part in found.artifacts[0].parts][:2] == [TEXT, "0"]
    events = await collect(HoldfastTaskEventStream(again), "t1", MISSING, 3)
    first, second, _ = [each.event for each in events]
    assert isinstance(first, Task)
    assert first.history == task.history
    assert isinstance(second, TaskArtifactUpdateEvent)
    assert second.artifact.parts[0].text == TEXT
    await session.refresh()
    await session.restore(saved.snapshot_id)
    assert (await HoldfastTaskStore(store).get("t1", ANYONE)).task.history == task.history
    await session.fork("t2")
    assert (await HoldfastTaskStore(store).get("t2", ANYONE)).task.history == task.history


@async_test
async def test_agent_framework_checkpoints():
    pytest.importorskip("agent_framework")
    from agent_framework import Content, Message, WorkflowCheckpoint, WorkflowMessage

    from adapters.agent_framework.workflows import exact
    from holdfast.adapters.agent_framework import HoldfastCheckpointStorage

    store = ObservedStore()
    message = Message("user", [Content.from_uri(DATA_URL, media_type="image/png")])
    saved = [
        WorkflowCheckpoint(
            workflow_name="flow",
            graph_signature_hash="abc",
            checkpoint_id=f"c{number}",
            timestamp=f"2026-11-16T12:00:{number:02}+00:00",
            iteration_count=number,
            state={"image": IMAGE, "number": number, "report": (TEXT,)},
            messages={"a": [WorkflowMessage(message, "a")]},
        )
        for number in range(SAVES)
    ]
    storage = HoldfastCheckpointStorage(store)
    for each in saved:
        await storage.save(each)
    check_stored_once(store, DATA_URL, IMAGE, TEXT)
    again = HoldfastCheckpointStorage(store)
    assert exact(await again.load("c3")) == exact(saved[3])
    assert exact(await again.get_latest(workflow_name="flow")) == exact(saved[-1])
    session = await Session.open(
        store, agent_id="agent-framework", session_id="flow", must_exist=True
    )
    assert (await session.verify()).ok
    fork = await session.fork("other")
    again = await reopen_session(fork)
    assert again.snapshot().digest == session.snapshot().digest
    await again.restore(again.log.head.seq)
    assert (await again.verify()).ok
    assert IMAGE in [value for _, _, value in again.snapshot().items()]


@async_test
async def test_agent_framework_history():
    pytest.importorskip("agent_framework")
    from agent_framework import Content, Message

    from adapters.agent_framework.workflows import exact
    from holdfast.adapters.agent_framework import HoldfastHistoryProvider

    store = ObservedStore()
    provider = HoldfastHistoryProvider(store)
    messages = [
        Message("user", [Content.from_uri(DATA_URL, media_type="image/png")]),
        Message("tool", [Content.from_function_result("c", result=TEXT)]),
    ]
    await provider.save_messages("ses", messages)
    for number in range(SAVES):
        messages.append(Message("user", [f"{number}"]))
        await provider.save_messages("ses", messages[-1:])
    size = len(DATA_URL) + len(TEXT.encode())
    assert store.bytes <= 1.05 * size + 300_000
    again = HoldfastHistoryProvider(store)
    assert exact(await again.get_messages("ses")) == exact(messages)
    session = await Session.open(store, agent_id=again.agent_id, session_id="ses", must_exist=True)
    saved = await session.save()
    await again.save_messages("ses", [Message("user", ["later"])])
    await session.refresh()
    await session.restore(saved.snapshot_id)
    await session.fork("other")
    for name in ("ses", "other"):
        found = await HoldfastHistoryProvider(store).get_messages(name)
        assert exact(found) == exact(messages)
