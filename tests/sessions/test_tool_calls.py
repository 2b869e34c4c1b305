"""Tool calls without results are found in messages of every format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Session, Store, UnfinishedCall
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.stores.memory import MemoryStateStore
from holdfast.values.binary_encoding import decode
from holdfast.values.references import keep_references
from support.async_tests import async_test
from support.conversations import open_session, reopen_session
from support.observed_store import ObservedStore


def chat_call(*calls):
    """Return a call and its result as in OpenAI's chat completions."""
    made = [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": "{}"}}
        for call_id, tool in calls
    ]
    return [{"role": "assistant", "content": None, "tool_calls": made}]


def chat_result(*call_ids):
    return [{"role": "tool", "tool_call_id": call_id, "content": "42"} for call_id in call_ids]


def plain_call(*calls):
    """Return the same without the function around the name, as in some frameworks."""
    made = tuple({"id": call_id, "name": tool, "args": {}} for call_id, tool in calls)
    return [{"role": "assistant", "tool_calls": made}]


def item_call(*calls):
    """Return a call and its result as items of OpenAI's responses."""
    return [
        {
            "type": "function_call",
            "id": f"fc_{call_id}",
            "call_id": call_id,
            "name": tool,
            "arguments": "{}",
        }
        for call_id, tool in calls
    ]


def item_result(*call_ids):
    return [
        {"type": "function_call_output", "call_id": call_id, "output": "42"} for call_id in call_ids
    ]


def anthropic_call(*calls):
    """Return a call and its result as Anthropic's parts."""
    parts = [
        {"type": "tool_use", "id": call_id, "name": tool, "input": {}} for call_id, tool in calls
    ]
    return [{"role": "assistant", "content": [{"type": "text", "text": "let me see"}, *parts]}]


def anthropic_result(*call_ids):
    parts = [{"type": "tool_result", "tool_use_id": call_id} for call_id in call_ids]
    return [{"role": "user", "content": parts}]


def bedrock_call(*calls):
    """Return a call and its result as Bedrock's parts, which Strands uses too."""
    parts = [
        {"toolUse": {"toolUseId": call_id, "name": tool, "input": {}}} for call_id, tool in calls
    ]
    return [{"role": "assistant", "content": [{"text": "let me see"}, *parts]}]


def bedrock_result(*call_ids):
    parts = [{"toolResult": {"toolUseId": call_id, "status": "success"}} for call_id in call_ids]
    return [{"role": "user", "content": parts}]


def gemini_call(*calls):
    """Return a call and its result as Gemini's parts."""
    parts = [{"functionCall": {"id": call_id, "name": tool, "args": {}}} for call_id, tool in calls]
    return [{"role": "model", "parts": parts}]


def gemini_result(*call_ids):
    parts = [{"functionResponse": {"id": call_id, "response": {}}} for call_id in call_ids]
    return [{"role": "user", "parts": parts}]


def claude_code_call(*calls):
    """Return a call and its result as entries of Claude Code, around Anthropic's messages."""
    return [{"type": "assistant", "uuid": "u1", "message": each} for each in anthropic_call(*calls)]


def claude_code_result(*call_ids):
    return [{"type": "user", "uuid": "u2", "message": each} for each in anthropic_result(*call_ids)]


def adk_call(*calls):
    """Return a call and its result as events of ADK, around Gemini's messages."""
    return [{"author": "agent", "content": each} for each in gemini_call(*calls)]


def adk_result(*call_ids):
    return [{"author": "agent", "content": each} for each in gemini_result(*call_ids)]


def pydantic_ai_call(*calls):
    """Return a call and its result as messages of Pydantic AI."""
    parts = [
        {"part_kind": "tool-call", "tool_call_id": call_id, "tool_name": tool, "args": {}}
        for call_id, tool in calls
    ]
    return [{"kind": "response", "parts": [{"part_kind": "text", "content": "hm"}, *parts]}]


def pydantic_ai_result(*call_ids):
    parts = [
        {"part_kind": kind, "tool_call_id": call_id, "content": "42"}
        for call_id, kind in zip(call_ids, ("tool-return", "retry-prompt") * 9, strict=False)
    ]
    return [{"kind": "request", "parts": parts}]


def agent_framework_call(*calls):
    """Return a call and its result as messages of Microsoft's Agent Framework."""
    parts = [
        {"type": "function_call", "call_id": call_id, "name": tool, "arguments": "{}"}
        for call_id, tool in calls
    ]
    return [{"type": "message", "role": "assistant", "contents": parts}]


def agent_framework_result(*call_ids):
    parts = [{"type": "function_result", "call_id": each, "result": "42"} for each in call_ids]
    return [{"type": "message", "role": "tool", "contents": parts}]


def custom_call(*calls):
    """Return a call and its result as items of a tool with free text."""
    return [
        {"type": "custom_tool_call", "call_id": call_id, "name": tool, "input": "{}"}
        for call_id, tool in calls
    ]


def custom_result(*call_ids):
    return [{"type": "custom_tool_call_output", "call_id": each, "output": ""} for each in call_ids]


def returned_result(*call_ids):
    """Return results in one message, as Letta does."""
    returns = [{"tool_call_id": each, "status": "success"} for each in call_ids]
    first = call_ids[0] if call_ids else None
    return [{"role": "tool", "content": "x", "tool_call_id": first, "tool_returns": returns}]


def listed_result(*call_ids):
    """Return results in one message, as Grampus does."""
    results = [{"tool_call_id": each, "output": 42} for each in call_ids]
    return [{"role": "tool", "content": "x", "tool_results": results}]


SHAPES = {
    "OpenAI chat": (chat_call, chat_result),
    "without a function": (plain_call, chat_result),
    "OpenAI responses": (item_call, item_result),
    "OpenAI custom tools": (custom_call, custom_result),
    "Letta": (chat_call, returned_result),
    "Grampus": (plain_call, listed_result),
    "Anthropic": (anthropic_call, anthropic_result),
    "Bedrock": (bedrock_call, bedrock_result),
    "Gemini": (gemini_call, gemini_result),
    "Claude Code": (claude_code_call, claude_code_result),
    "ADK": (adk_call, adk_result),
    "Pydantic AI": (pydantic_ai_call, pydantic_ai_result),
    "Agent Framework": (agent_framework_call, agent_framework_result),
}
shapes = pytest.mark.parametrize(("call", "result"), SHAPES.values(), ids=SHAPES)


def add(session, messages):
    for message in messages:
        session.append_message(message)


def list_unfinished(session):
    return [call.call_id for call in session.unfinished]


@shapes
def test_a_call_is_unfinished_until_it_has_a_result(session, call, result):
    session.add_message("user", "what is it?")
    assert session.unfinished == []
    add(session, call(("c1", "search")))
    (found,) = session.unfinished
    assert found == UnfinishedCall("000000000001", "c1", "search")
    assert found.arguments in ({}, "{}")  # as the message has them
    assert str(found) == "the call c1 of search in message 000000000001 has no result"
    add(session, result("c1"))
    assert session.unfinished == []
    session.add_message("assistant", "it is 42")
    assert session.unfinished == []


@shapes
def test_each_of_several_calls_needs_its_own_result(session, call, result):
    add(session, call(("c1", "search"), ("c2", "search"), ("c3", "read")))
    assert list_unfinished(session) == ["c1", "c2", "c3"]
    assert [found.tool for found in session.unfinished] == ["search", "search", "read"]
    add(session, result("c2"))
    assert list_unfinished(session) == ["c1", "c3"]
    add(session, call(("c4", "read")))
    assert list_unfinished(session) == ["c1", "c3", "c4"]
    add(session, result("c3", "c1", "c4"))
    assert session.unfinished == []


@shapes
def test_rollbacks_remove_and_restore_calls_and_results(session, call, result):
    begun = session.snapshot()
    add(session, call(("c1", "search")))
    called = session.snapshot()
    add(session, result("c1"))
    finished = session.snapshot()
    assert session.unfinished == []
    session.rollback(called)
    assert list_unfinished(session) == ["c1"]
    session.rollback(finished)
    assert session.unfinished == []
    session.rollback(begun)
    assert session.unfinished == []
    session.rollback(called)
    session.pop_message()
    assert session.unfinished == []


@shapes
@async_test
async def test_unfinished_calls_are_durable_and_marked_in_snapshots(call, result):
    session = await open_session(MemoryStateStore())
    first = await session.save()
    add(session, call(("c1", "search")))
    open_ = await session.save()
    assert open_.unfinished
    again = await reopen_session(session)
    assert list_unfinished(again) == ["c1"]
    assert (await again.last_finished()).snapshot_id == first.snapshot_id
    add(again, result("c1"))
    last = await again.save()
    assert not last.unfinished
    found = await again.last_finished()
    assert (found.snapshot_id, found.unfinished) == (last.snapshot_id, False)
    await session.reload()
    assert session.unfinished == []


@async_test
async def test_last_finished_is_none_if_every_snapshot_has_unfinished_calls():
    session = await open_session(MemoryStateStore())
    assert await session.last_finished() is None
    add(session, chat_call(("c1", "search")))
    await session.save()
    await session.save()
    assert await session.last_finished() is None


@async_test
async def test_a_crash_during_a_turn_is_undone_with_last_finished():
    session = await open_session(MemoryStateStore())
    session.add_message("user", "what is it?")
    await session.save()
    add(session, anthropic_call(("c1", "search")))
    await session.save()
    resumed = await reopen_session(session)
    assert resumed.unfinished
    await resumed.restore((await resumed.last_finished()).snapshot_id)
    assert resumed.unfinished == []
    assert len(resumed.messages) == 1


def test_tools_that_the_provider_runs_are_calls(session):
    for kind, answer in [
        ("server_tool_use", "web_search_tool_result"),
        ("mcp_tool_use", "mcp_tool_result"),
    ]:
        part = {"type": kind, "id": kind, "name": "web_search"}
        session.add_message("assistant", [part])
        assert list_unfinished(session) == [kind]
        session.add_message("assistant", [{"type": answer, "tool_use_id": kind}])
        assert session.unfinished == []


def test_formats_may_be_mixed_in_one_conversation(session):
    for number, (call, result) in enumerate(SHAPES.values()):
        add(session, call((f"c{number}", "search")))
        assert list_unfinished(session) == [f"c{number}"]
        add(session, result(f"c{number}"))
        assert session.unfinished == []


def test_a_call_without_an_id_is_matched_by_its_name(session):
    call = {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]}
    result = {"role": "user", "parts": [{"functionResponse": {"name": "weather"}}]}
    session.append_message(call)
    assert session.unfinished == [UnfinishedCall("000000000000", "", "weather")]
    session.append_message(result)
    assert session.unfinished == []


def test_each_call_without_an_id_needs_its_own_result(session):
    call = {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]}
    result = {"role": "user", "parts": [{"functionResponse": {"name": "weather"}}]}
    for message in (call, result, call):
        session.append_message(message)
    assert [found.message for found in session.unfinished] == ["000000000002"]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": "tool_use"},
        {"role": "assistant", "content": ["tool_use", 7, None]},
        {"role": "assistant", "content": [{"type": ["tool_use"]}]},
        {"role": "assistant", "tool_calls": None},
        {"role": "assistant", "tool_calls": "none"},
        {"role": "assistant", "tool_calls": ["none", 3]},
        {"role": "assistant", "content": [{"toolUse": "a text"}, {"functionCall": None}]},
        {"role": "tool", "tool_call_id": None, "content": "x"},
        {"type": "reasoning", "summary": []},
    ],
)
def test_other_messages_are_not_calls(session, message):
    session.append_message(message)
    assert session.unfinished == []


def test_a_call_may_have_any_id(session):
    session.append_message({"tool_calls": [{"id": 7, "function": {"name": None}}]})
    session.append_message({"type": "function_call", "id": "only", "name": "search"})
    assert session.unfinished == [
        UnfinishedCall("000000000000", "7", ""),
        UnfinishedCall("000000000001", "only", "search"),
    ]
    session.append_message({"role": "tool", "tool_call_id": 7})
    assert list_unfinished(session) == ["only"]


def test_messages_that_are_not_dicts_are_ignored(session):
    session.record("x", changes={"set": [("messages", "000000000000", "a text")], "delete": []})
    assert session.unfinished == []


# ------------------------------------------------------------------------------ incremental index

CALL_IDS = st.sampled_from(["c1", "c2", "c3"])
MESSAGES = st.one_of(
    st.builds(
        lambda shape, call_ids: SHAPES[shape][0](*((each, "tool") for each in call_ids))[0],
        st.sampled_from(sorted(SHAPES)),
        st.lists(CALL_IDS, min_size=1, max_size=2),
    ),
    st.builds(
        lambda shape, call_ids: SHAPES[shape][1](*call_ids)[0],
        st.sampled_from(sorted(SHAPES)),
        st.lists(CALL_IDS, min_size=1, max_size=2),
    ),
    st.just({"role": "user", "content": "hello"}),
)
STEPS = st.one_of(
    st.tuples(st.just("set"), st.integers(0, 5), MESSAGES),
    st.tuples(st.just("delete"), st.integers(0, 5)),
    st.tuples(st.just("elsewhere"), st.integers(0, 5)),
    st.tuples(st.just("mark")),
    st.tuples(st.just("back"), st.integers(0, 5)),
)


@given(st.lists(STEPS, max_size=20))
def test_an_incremental_index_equals_a_full_one(steps):
    store, ledger = Store(), ToolCallIndex()
    late: ToolCallIndex | None = None
    marks = [store.snapshot()]
    for what, *rest in steps:
        if what == "set":
            store.set("messages", f"{rest[0]:012}", rest[1])
        elif what == "delete":
            store.delete("messages", f"{rest[0]:012}")
        elif what == "elsewhere":
            key = f"{rest[0]:012}"
            if not store.delete("state", key):
                store.set("state", key, chat_call(("c1", "tool"))[0])
        elif what == "mark":
            marks.append(store.snapshot())
        else:
            store.restore(marks[rest[0] % len(marks)])
        now = store.snapshot()
        if late is not None:
            assert late.unfinished(now) == ToolCallIndex().unfinished(now)
        elif not ToolCallIndex().unfinished(now):
            late = ToolCallIndex()
            late.start_finished(now)
        assert ledger.unfinished(now) == ToolCallIndex().unfinished(now)
        assert ledger.unfinished(now) == ToolCallIndex().unfinished(now)


@async_test
async def test_the_first_save_after_opening_does_not_read_the_conversation(monkeypatch):
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(20):
        session.add_message("assistant", "", tool_calls=[{"id": f"c{number}", "name": "search"}])
        session.add_message("tool", "found", tool_call_id=f"c{number}")
    await session.save()
    decoded = []
    monkeypatch.setattr(
        "holdfast.snapshots.tool_calls.decode", lambda data: decoded.append(data) or decode(data)
    )
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for text in ("hello", "again"):
        session.add_message("user", text)
        assert not (await session.save()).unfinished
    assert decoded == []
    session.add_message("assistant", "", tool_calls=[{"id": "c99", "name": "search"}])
    assert (await session.save()).unfinished
    assert len(decoded) == 41


@async_test
async def test_saving_does_not_read_large_parts_and_unfinished_has_large_arguments():
    store = ObservedStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    image = {"type": "image", "source": {"media_type": "image/png", "data": "x" * 100_000}}
    arguments = {"path": "a.txt", "text": "y" * 100_000}
    call = {"type": "tool_use", "id": "c1", "name": "write", "input": arguments}
    session.add_message("user", [image])
    session.add_message("assistant", [call])
    assert (await session.save()).unfinished
    (found,) = session.unfinished
    assert found.arguments == arguments

    with keep_references():
        session = await Session.open(store, agent_id="bot", session_id="ses")
    store.forget()
    session.add_message("user", "and?")
    assert (await session.save()).unfinished
    assert [key for key in store.read if "/blobs/" in key] == []
    (found,) = session.unfinished
    assert found.arguments == arguments
    assert len({key for key in store.read if "/blobs/" in key}) == 1

    for key in store.keys_with("/blobs/"):
        await store.delete(key)
    session = await Session.open(store, agent_id="bot", session_id="ses")
    session.add_message("user", "still there?")
    assert (await session.save()).unfinished
