"""Conversations of agents in Holdfast, with the real package and a scripted model."""

from __future__ import annotations

import asyncio
import logging

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    Agent,
    AgentSession,
    Content,
    InMemoryHistoryProvider,
    Message,
)
from hypothesis import given
from hypothesis import strategies as st

from adapters.agent_framework.workflows import Parrot, exact
from holdfast import IntegrityError, Session, UnsupportedValueError, open_state_store
from holdfast.adapters.agent_framework import HoldfastHistoryProvider
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.observed_store import ObservedStore
from support.subprocesses import read_python

SECOND_PROCESS = """
import asyncio, sys
from agent_framework import Message
from holdfast import open_state_store
from holdfast.adapters.agent_framework import HoldfastHistoryProvider

async def main():
    async with HoldfastHistoryProvider(open_state_store(sys.argv[1])) as provider:
        for number in range(10):
            await provider.save_messages("shared", [Message("user", [f"{sys.argv[2]} {number}"])])

asyncio.run(main())
"""


def texts(messages):
    return [each.text for each in messages]


@async_test
async def test_a_conversation_continues_in_another_process_on_every_backend(new_state_store):
    logging.getLogger("agent_framework").setLevel(logging.ERROR)
    for count in (1, 3):
        async with HoldfastHistoryProvider(new_state_store(), agent_id="waiter") as provider:
            agent = Agent(client=Parrot(), name="waiter", context_providers=[provider])
            session = AgentSession(session_id="table 7")
            answer = await agent.run(f"Hello {count}", session=session)
            assert answer.text == f"{count} messages"
            assert session.state == {"holdfast": {}}
    async with new_state_store() as store:
        found = await Session.open(store, agent_id="waiter", session_id="table 7", must_exist=True)
        assert [each["role"] for each in found.messages] == ["user", "assistant"] * 2
        assert found.messages[0] == Message("user", ["Hello 1"]).to_dict()
        assert found.status == "completed"
        assert (await found.verify()).ok


@async_test
async def test_new_messages_are_one_entry_each():
    store = ObservedStore()
    provider = HoldfastHistoryProvider(store)
    await provider.save_messages("s", [Message("user", ["x" * 500]) for _ in range(100)])
    store.forget()
    await provider.save_messages("s", [Message("user", ["one"]), Message("assistant", ["two"])])
    assert store.bytes_written < 2500
    session = await Session.open(store, agent_id="agent", session_id="s")
    assert session.message_count == 102
    store.forget()
    await provider.save_messages("s", [])
    assert store.calls == []


@async_test
async def test_it_is_rolled_back_and_forked_as_a_session():
    store = MemoryStateStore()
    provider = HoldfastHistoryProvider(store)
    await provider.save_messages("s", [Message("user", ["a"]), Message("assistant", ["b"])])
    async with await Session.open(store, agent_id="agent", session_id="s") as session:
        saved = await session.save()
        await provider.save_messages("s", [Message("user", ["c"])])
        await session.refresh()
        await session.restore(saved.snapshot_id)
        await session.fork("t")
    assert texts(await provider.get_messages("s")) == ["a", "b"]
    await provider.save_messages("t", [Message("user", ["d"])])
    assert texts(await provider.get_messages("t")) == ["a", "b", "d"]
    assert texts(await provider.get_messages("s")) == ["a", "b"]
    assert provider.location("s") == session.location
    assert await provider.get_messages(None) == []


@async_test
async def test_two_processes_on_one_session_lose_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    await asyncio.gather(
        *(asyncio.to_thread(read_python, SECOND_PROCESS, url, name) for name in ("a", "b"))
    )
    async with HoldfastHistoryProvider(open_state_store(url)) as provider:
        found = texts(await provider.get_messages("shared"))
    for name in ("a", "b"):
        assert [each for each in found if each[0] == name] == [f"{name} {n}" for n in range(10)]


CONTENTS = st.sampled_from(
    [
        Content.from_text("hello"),
        Content.from_function_call("c", "f", arguments='{"a": 1}'),
        Content.from_function_result("c", result="r"),
        Content.from_uri("https://example.org/a.png", media_type="image/png"),
        Content.from_error(message="bad"),
        Content.from_usage({"input_token_count": 1}),
    ]
)
MESSAGES = st.builds(
    lambda role, contents, id_: Message(role, contents, message_id=id_),
    st.sampled_from(["user", "assistant", "tool"]),
    st.lists(CONTENTS, max_size=2),
    st.sampled_from([None, None, "m1", "m2"]),
)


@given(st.lists(st.lists(MESSAGES, max_size=4), max_size=6), st.booleans())
def test_it_stores_what_the_frameworks_provider_stores(batches, replay):
    async def compare():
        expected, state = InMemoryHistoryProvider(), {}
        provider = HoldfastHistoryProvider(MemoryStateStore())
        for batch in batches:
            if replay:  # some callers hand over the whole conversation
                batch = [*await expected.get_messages("s", state=state), *batch]
            await expected.save_messages("s", batch, state=state)
            await provider.save_messages("s", batch)
            wanted = await expected.get_messages("s", state=state)
            assert exact(await provider.get_messages("s")) == exact(wanted)

    run_async(compare())


@async_test
async def test_messages_excluded_by_compaction_are_skipped_if_wanted():
    store = MemoryStateStore()
    messages = [Message("user", ["a"], additional_properties={"_excluded": True})]
    messages.append(Message("user", ["b"]))
    await HoldfastHistoryProvider(store).save_messages("s", messages)
    assert texts(await HoldfastHistoryProvider(store).get_messages("s")) == ["a", "b"]
    skipping = HoldfastHistoryProvider(store, skip_excluded=True)
    assert texts(await skipping.get_messages("s")) == ["b"]


@async_test
async def test_a_message_that_is_not_json_is_refused_and_nothing_is_added():
    provider = HoldfastHistoryProvider(MemoryStateStore())
    odd = Message("user", ["b"], additional_properties={"x": [object()]})
    with pytest.raises(UnsupportedValueError) as caught:
        await provider.save_messages("s", [Message("user", ["a"]), odd])
    assert caught.value.path == "$.messages[1].additional_properties.x[0]"
    keyed = Message("user", ["b"], additional_properties={"x": {1: 2}})
    with pytest.raises(UnsupportedValueError, match="must be str, got 1"):
        await provider.save_messages("s", [keyed])
    assert await provider.get_messages("s") == []


@async_test
async def test_messages_of_other_tools_are_read_and_damaged_ones_are_told():
    store = MemoryStateStore()
    provider = HoldfastHistoryProvider(store)
    async with await Session.open(store, agent_id="agent", session_id="s") as session:
        session.add_message("user", "Hello")
    assert texts(await provider.get_messages("s")) == ["Hello"]
    for odd in ({"role": 1, "contents": 5}, {"odd": 1}, {"content": "no role"}):
        async with await Session.open(store, agent_id="agent", session_id="s") as session:
            session.append_message(odd)
        with pytest.raises(IntegrityError, match="entry 1 of the conversation is not a message"):
            await provider.get_messages("s")
        async with await Session.open(store, agent_id="agent", session_id="s") as session:
            session.pop_message()


@pytest.mark.parametrize(
    ("message", "status"),
    [
        (Message("user", ["hi"]), "running"),
        (Message("assistant", ["hi"]), "completed"),
        (Message("assistant", [Content.from_function_call("c", "f")]), "running"),
        (Message("tool", [Content.from_function_result("c", result="x")]), "running"),
        (
            Message(
                "assistant",
                [
                    Content.from_function_approval_request(
                        "r", Content.from_function_call("c", "f", arguments="{}")
                    )
                ],
            ),
            "waiting",
        ),
    ],
)
@async_test
async def test_the_status_follows_the_last_message(message, status):
    store = MemoryStateStore()
    await HoldfastHistoryProvider(store).save_messages("s", [message])
    assert (await Session.open(store, agent_id="agent", session_id="s")).status == status
