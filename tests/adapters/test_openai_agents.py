"""Sessions of the OpenAI Agents SDK, with the real package and a scripted model."""

from __future__ import annotations

import asyncio
import json

import pytest

pytest.importorskip("agents")

from agents import Agent, RunConfig, Runner, SQLiteSession, function_tool
from agents.memory import Session as SdkSession
from agents.memory import SessionSettings

from adapters.scripted_model import ScriptedModel
from holdfast import (
    Catalog,
    ConflictError,
    NotFoundError,
    Session,
    SnapshotManager,
    StateStoreError,
    UnsupportedValueError,
    open_state_store,
)
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.faults import RAISED, WAYS, Fault, FaultyStateStore
from support.observed_store import ObservedStore
from support.subprocesses import run_python

QUIET = RunConfig(tracing_disabled=True)
ITEMS = [
    {"role": "user", "content": "Is there a table?"},
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"},
    {"type": "function_call", "call_id": "call_1", "name": "tables", "arguments": '{"day": "mo"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Ja ☃"}]},
    {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"n": [1.5, None]}},
]


@function_tool
def tables(day: str) -> str:
    """Free tables."""
    return f"two on {day}"


def make_waiter(*answers):
    return Agent(name="waiter", model=ScriptedModel(*answers), tools=[tables])


async def list_contents(session):
    return [item.get("content", item.get("type")) for item in await session.get_items()]


# --------------------------------------------------------------------------------------- protocol


@async_test
async def test_items_are_stored_like_in_the_sdk_sessions_on_every_backend(new_state_store):
    async with new_state_store() as store:
        ours, theirs = HoldfastSession("ses", store, agent_id="waiter"), SQLiteSession("ses")
        assert isinstance(ours, SdkSession)
        for session in (ours, theirs):
            assert await session.pop_item() is None
            await session.clear_session()
            await session.add_items([])
            await session.add_items(ITEMS)
        assert await ours.get_items() == await theirs.get_items() == ITEMS
        for limit in (0, 1, 3, 99):
            assert await ours.get_items(limit) == await theirs.get_items(limit)
        assert await ours.pop_item() == await theirs.pop_item() == ITEMS[-1]
        again = HoldfastSession("ses", store, agent_id="waiter")
        assert await again.get_items() == ITEMS[:-1]
        await again.clear_session()
        assert await ours.get_items() == []
        assert (await ours.verify()).ok
        theirs.close()


@async_test
async def test_adding_three_items_writes_three_entries():
    store = MemoryStateStore()
    session = HoldfastSession("ses", store)
    for _ in range(100):
        await session.add_items(ITEMS)
    before = {key async for key in store.list()}
    await session.add_items([{"role": "user", "content": f"number {n}"} for n in range(3)])
    added = [key async for key in store.list() if key not in before]
    (segment,) = added
    assert "/log/" in segment
    entry = await store.get(segment)
    assert len(entry.value) < 2000
    assert entry.value.count(b"number") == 3


@async_test
async def test_a_turn_is_one_read_and_one_write():
    store = ObservedStore()
    session = HoldfastSession("ses", store)
    for _ in range(3):
        store.forget()
        await session.get_items()
        assert store.calls == ["get_many"]
        await session.add_items(ITEMS)
        assert store.calls == ["get_many", "put_many"]


@async_test
async def test_the_limit_of_a_call_overrides_that_of_the_settings():
    session = HoldfastSession("ses", MemoryStateStore(), session_settings=SessionSettings(limit=2))
    await session.add_items(ITEMS)
    assert await session.get_items() == ITEMS[-2:]
    assert await session.get_items(3) == ITEMS[-3:]
    assert await session.get_items(-1) == ITEMS
    assert await session.get_items(0) == []


@async_test
async def test_an_unsupported_item_is_rejected_with_all_items_of_the_call():
    session = HoldfastSession("ses", MemoryStateStore())
    await session.add_items(ITEMS[:1])
    with pytest.raises(UnsupportedValueError, match=r"\$\.messages\[2\]\.content"):
        await session.add_items([ITEMS[1], {"role": "user", "content": object()}])
    with pytest.raises(TypeError, match="message must be a dict"):
        await session.add_items([ITEMS[1], "text"])
    assert await session.get_items() == ITEMS[:1]
    await session.add_items(ITEMS[1:2])
    assert await session.get_items() == ITEMS[:2]


@pytest.mark.parametrize("name", ["../../etc", "a/b c%2F", "名前☃", "x" * 256])
@async_test
async def test_an_id_may_have_any_characters(name):
    store = MemoryStateStore()
    await HoldfastSession(name, store, agent_id=name).add_items(ITEMS)
    assert await HoldfastSession(name, store, agent_id=name).get_items() == ITEMS
    assert await Catalog(store).agents() == [name]


def test_an_invalid_store_or_id_is_rejected_at_once():
    with pytest.raises(TypeError, match="open_state_store"):
        HoldfastSession("ses", "memory:")
    with pytest.raises(ValueError, match="session_id must have 1 to 256 characters"):
        HoldfastSession("", MemoryStateStore())


def test_a_session_continues_in_another_event_loop():
    session = HoldfastSession("ses", MemoryStateStore())
    for number in range(3):
        asyncio.run(session.add_items(ITEMS))
        assert len(asyncio.run(session.get_items())) == len(ITEMS) * (number + 1)


# ----------------------------------------------------------------------------- other writers


@async_test
async def test_concurrent_runners_lose_no_items(new_state_store):
    async with new_state_store() as store:
        runners = [HoldfastSession("ses", store, agent_id="waiter") for _ in range(4)]

        async def run(number):
            for turn in range(3):
                pair = [f"{number}.{turn}.{part}" for part in ("q", "a")]
                await runners[number].add_items([{"role": "user", "content": c} for c in pair])

        await asyncio.gather(*map(run, range(4)))
        found = await list_contents(runners[0])
        assert len(found) == 24
        for number in range(4):
            own = [each for each in found if each.startswith(f"{number}.")]
            assert own == [f"{number}.{turn}.{part}" for turn in range(3) for part in ("q", "a")]
        for place in range(0, 24, 2):  # items of one call stay together
            assert found[place][:-1] == found[place + 1][:-1]


@async_test
async def test_concurrent_pops_return_different_items():
    store = MemoryStateStore()
    one = HoldfastSession("ses", store)
    await one.add_items([{"role": "user", "content": str(n)} for n in range(8)])
    others = [HoldfastSession("ses", store) for _ in range(8)]
    popped = await asyncio.gather(*(each.pop_item() for each in others))
    assert sorted(item["content"] for item in popped) == [str(n) for n in range(8)]
    assert await one.get_items() == []


@async_test
async def test_values_can_be_set_by_a_session_that_is_open_at_the_same_time():
    store = MemoryStateStore()
    ours = HoldfastSession("ses", store, agent_id="waiter")
    await ours.add_items(ITEMS[:1])
    async with Session.open(store, agent_id="waiter", session_id="ses") as beside:
        beside.set("guests", 2)
        beside.status = "running"
    await ours.add_items(ITEMS[1:])
    document = await ours.export()
    assert document.state.values == {"guests": 2}
    assert document.state.status == "running"
    assert document.state.messages == ITEMS


@pytest.mark.parametrize("is_read", [True, False])
@async_test
async def test_a_session_that_another_process_deleted_starts_empty(is_read):
    store = MemoryStateStore()
    ours = HoldfastSession("ses", store)
    await ours.add_items(ITEMS)
    session = await Session.open(store, agent_id="agent", session_id="ses")
    await session.archive.delete_session(session_id="ses")
    if is_read:
        assert await ours.get_items() == []
    await ours.add_items(ITEMS[:1])
    assert await HoldfastSession("ses", store).get_items() == ITEMS[:1]


@pytest.mark.parametrize(("kind", "done"), WAYS)
@async_test
async def test_a_failed_write_leaves_all_items_or_none(kind, done):
    disk = MemoryStateStore()
    faulty = FaultyStateStore(disk)
    session = HoldfastSession("ses", faulty)
    await session.add_items(ITEMS[:1])
    faulty.plan(Fault(1, kind, done))
    with pytest.raises(RAISED):
        await session.add_items(ITEMS[1:])
    left = ITEMS if done else ITEMS[:1]
    assert await HoldfastSession("ses", disk).get_items() == left
    if kind != "crash":  # the same object continues as well
        assert await session.get_items() == left
        await session.add_items(ITEMS[:1])
        assert await session.get_items() == [*left, ITEMS[0]]


@async_test
async def test_reads_raise_if_the_store_fails():
    store = MemoryStateStore()
    session = HoldfastSession("ses", store, agent_id="waiter")
    assert repr(session) == "<HoldfastSession ses of waiter>"
    await session.add_items(ITEMS)
    await store.close()
    with pytest.raises(StateStoreError, match="closed"):
        await session.get_items()


# -------------------------------------------------------------------------------------- snapshots


@async_test
async def test_a_run_can_be_rolled_back():
    session = HoldfastSession("ses", MemoryStateStore(), agent_id="waiter")
    await Runner.run(make_waiter("Welcome"), "Hello", session=session, run_config=QUIET)
    mark = await session.snapshot()
    call = ("tables", "call_1", '{"day": "monday"}')
    await Runner.run(make_waiter(call, "Two"), "A table?", session=session, run_config=QUIET)
    assert len(await session.get_items()) == 6
    await session.rollback(mark)
    assert len(await session.get_items()) == 2

    agent = make_waiter("We are closed")
    await Runner.run(agent, "And on sunday?", session=session, run_config=QUIET)
    (asked,) = agent.model.asked
    assert [item["content"] for item in asked if item["role"] == "user"] == [
        "Hello",
        "And on sunday?",
    ]
    types = [event.type for event in (await session.export()).events]
    assert types.count("state.restored") == 1


@async_test
async def test_a_rollback_removes_items_of_other_writers_too():
    store = MemoryStateStore()
    ours, theirs = HoldfastSession("ses", store), HoldfastSession("ses", store)
    await ours.add_items(ITEMS[:1])
    mark = await ours.snapshot()
    await theirs.add_items(ITEMS[1:])
    await ours.rollback(mark)
    assert await theirs.get_items() == ITEMS[:1]


@async_test
async def test_a_session_is_saved_restored_and_forked_on_every_backend(new_state_store):
    async with new_state_store() as store:
        session = HoldfastSession("ses", store, agent_id="waiter")
        await session.add_items(ITEMS[:2])
        saved = await session.save(tags={"reason": "before the tool"})
        await session.add_items(ITEMS[2:])

        fork = await session.fork("ses_2", at=saved.snapshot_id)
        assert (fork.session_id, fork.agent_id) == ("ses_2", "waiter")
        assert await fork.get_items() == ITEMS[:2]
        await fork.add_items(ITEMS[4:5])
        whole = await session.fork(agent_id="cook")
        assert await whole.get_items() == ITEMS
        assert whole.agent_id == "cook"
        with pytest.raises(ConflictError, match="fork to another session id"):
            await session.fork("ses_2")

        await session.restore(saved.snapshot_id)
        assert await session.get_items() == ITEMS[:2]
        assert await fork.get_items() == [*ITEMS[:2], ITEMS[4]]
        with pytest.raises(NotFoundError, match="has no snapshot"):
            await session.restore("unknown")
        assert await session.get_items() == ITEMS[:2]


@async_test
async def test_a_session_is_exported_imported_and_compared():
    store, other = MemoryStateStore(), MemoryStateStore()
    session = HoldfastSession("ses", store, agent_id="waiter")
    with pytest.raises(NotFoundError):
        await session.export()
    await session.add_items(ITEMS)
    document = await session.export(tags={"env": "test"})
    result = await SnapshotManager(other).import_session(document, session_id="copy")
    assert result.messages_restored == len(ITEMS)
    copy = HoldfastSession("copy", other, agent_id="waiter")
    assert await copy.get_items() == ITEMS
    await copy.add_items(ITEMS[:1])
    diff = (await copy.export()).snapshot.diff(document.snapshot)
    assert diff == {"added": [("messages", "000000000006")], "removed": [], "changed": []}


# -------------------------------------------------------------------------------- after a crash

CRASHING = """
import asyncio, os, sys
from agents import Agent, Runner, RunConfig, function_tool
import holdfast
from adapters.scripted_model import ScriptedModel
from holdfast.adapters.openai_agents import HoldfastSession

@function_tool
def tables(day: str) -> str:
    os._exit(137)

async def main():
    async with holdfast.open_state_store(sys.argv[1]) as store:
        session = HoldfastSession("ses", store, agent_id="waiter")
        quiet = RunConfig(tracing_disabled=True)
        agent = Agent(name="w", model=ScriptedModel("Welcome"))
        await Runner.run(agent, "Hello", session=session, run_config=quiet)
        call = ("tables", "call_1", '{"day": "monday"}')
        agent = Agent(name="w", model=ScriptedModel(call), tools=[tables])
        await Runner.run(agent, "A table?", session=session, run_config=quiet)

asyncio.run(main())
"""


def test_a_new_process_continues_after_a_crash(tmp_path):
    url = f"sqlite:///{tmp_path / 'state'}"
    ended = run_python(CRASHING, url)
    assert ended.returncode == 137, ended.stderr

    async def resume():
        async with open_state_store(url) as store:
            session = HoldfastSession("ses", store, agent_id="waiter")
            before = await session.get_items()
            assert before[0] == {"role": "user", "content": "Hello"}
            assert {"role": "user", "content": "A table?"} in before
            agent = make_waiter(("tables", "call_2", '{"day": "monday"}'), "Two on monday")
            result = await Runner.run(agent, "Are you there?", session=session, run_config=QUIET)
            assert result.final_output == "Two on monday"
            assert (await session.get_items())[: len(before)] == before
            assert (await session.verify()).ok
            json.dumps(agent.model.asked)

    asyncio.run(resume())


@async_test
async def test_a_session_opens_the_store_of_a_url(tmp_path):
    url = f"sqlite:///{tmp_path}/agents.db"
    session = HoldfastSession.from_url("ses_1", url, agent_id="waiter")
    await session.add_items([{"role": "user", "content": "Hello"}])
    await session.aclose()
    again = HoldfastSession.from_url("ses_1", url, agent_id="waiter")
    assert await again.get_items() == [{"role": "user", "content": "Hello"}]
    await again.aclose()
