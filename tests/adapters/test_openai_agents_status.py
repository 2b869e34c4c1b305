"""The status of a session follows the runs of the OpenAI Agents SDK."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("agents")

from agents import Agent, MaxTurnsExceeded, Runner, function_tool
from openai.types.responses import Response, ResponseCompletedEvent

from adapters.scripted_model import ScriptedModel
from adapters.test_openai_agents import ITEMS, QUIET, make_waiter, tables
from holdfast import Session, StateStoreError
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.adapters.openai_agents.run_status import infer_items_status
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test

CALL = ("tables", "call_1", '{"day": "monday"}')
PAY = ("pay", "call_2", '{"amount": 5}')


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay, after a person agreed."""
    return f"paid {amount}"


class WatchingModel(ScriptedModel):
    """Records the status of the session at each call."""

    def __init__(self, store, *answers):
        super().__init__(*answers)
        self.store = store
        self.seen = []

    async def get_response(self, *rest, **more):
        self.seen.append(await read_status(self.store))
        return await super().get_response(*rest, **more)


class StreamingModel(WatchingModel):
    """Returns its answers as a stream."""

    async def stream_response(self, *rest, **more):
        answer = await self.get_response(*rest, **more)
        response = Response(
            id="resp",
            created_at=0,
            model="scripted",
            object="response",
            output=answer.output,
            parallel_tool_calls=False,
            tool_choice="none",
            tools=[],
        )
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=0, response=response
        )


async def read_status(store):
    """Return the committed status."""
    return (await Session.open(store, agent_id="waiter", session_id="ses")).status


def open_session(store):
    """Return one of our sessions."""
    return HoldfastSession("ses", store, agent_id="waiter")


@async_test
async def test_a_run_is_running_and_then_completed(new_state_store):
    async with new_state_store() as store:
        session = open_session(store)
        for _ in range(2):
            model = WatchingModel(store, CALL, "Two")
            agent = Agent(name="waiter", model=model, tools=[tables])
            await Runner.run(agent, "A table?", session=session, run_config=QUIET)
            assert model.seen == ["running", "running"]
            assert await read_status(store) == "completed"
        document = await session.export()
        assert document.state.status == "completed"
        changed = [event for event in document.events if event.type == "status.changed"]
        assert len(changed) == 4
        assert (await session.verify()).ok


@async_test
async def test_a_run_that_needs_an_approval_waits_and_continues():
    store = MemoryStateStore()
    session = open_session(store)
    agent = Agent(name="waiter", model=ScriptedModel(PAY, "Paid"), tools=[pay])
    result = await Runner.run(agent, "Pay", session=session, run_config=QUIET)
    assert await read_status(store) == "waiting"
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = await Runner.run(agent, state, session=session, run_config=QUIET)
    assert result.final_output == "Paid"
    assert await read_status(store) == "completed"


@async_test
async def test_a_streamed_run_has_the_same_statuses():
    store = MemoryStateStore()
    session = open_session(store)
    model = StreamingModel(store, CALL, PAY, "Paid")
    agent = Agent(name="waiter", model=model, tools=[tables, pay])
    result = Runner.run_streamed(agent, "Pay", session=session, run_config=QUIET)
    assert [event async for event in result.stream_events()]
    assert await read_status(store) == "waiting"
    state = result.to_state()
    state.approve(result.interruptions[0])
    result = Runner.run_streamed(agent, state, session=session, run_config=QUIET)
    assert [event async for event in result.stream_events()]
    assert await read_status(store) == "completed"
    assert model.seen == ["running"] * 3


@async_test
async def test_a_tracked_run_that_waits_keeps_waiting():
    store = MemoryStateStore()
    session = open_session(store)
    agent = Agent(name="waiter", model=ScriptedModel(PAY), tools=[pay])
    async with session.track_run():
        await Runner.run(agent, "Pay", session=session, run_config=QUIET)
    assert await read_status(store) == "waiting"


@async_test
async def test_a_tracked_run_that_raises_is_failed():
    store = MemoryStateStore()
    session = open_session(store)
    with pytest.raises(IndexError):
        async with session.track_run():
            await Runner.run(make_waiter(), "Hello", session=session, run_config=QUIET)
    assert await read_status(store) == "failed"
    with pytest.raises(MaxTurnsExceeded):
        async with session.track_run():
            await Runner.run(
                make_waiter(CALL, CALL), "Hello", session=session, run_config=QUIET, max_turns=1
            )
    assert await read_status(store) == "failed"
    async with session.track_run():
        await Runner.run(make_waiter("Hi"), "Hello", session=session, run_config=QUIET)
    assert await read_status(store) == "completed"


@async_test
async def test_a_tracked_run_that_is_cancelled_has_the_status_cancelled():
    store = MemoryStateStore()
    session = open_session(store)
    asked = asyncio.Event()

    class Slow(ScriptedModel):
        async def get_response(self, *rest, **more):
            asked.set()
            await asyncio.sleep(60)

    async def work():
        async with session.track_run():
            agent = Agent(name="waiter", model=Slow())
            await Runner.run(agent, "Hello", session=session, run_config=QUIET)

    run = asyncio.create_task(work())
    await asked.wait()
    assert await read_status(store) == "running"
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await read_status(store) == "cancelled"


@async_test
async def test_a_tracked_run_that_ends_with_a_tool_is_completed():
    store = MemoryStateStore()
    session = open_session(store)
    agent = make_waiter(CALL)
    agent.tool_use_behavior = "stop_on_first_tool"
    async with session.track_run():
        await Runner.run(agent, "Hello", session=session, run_config=QUIET)
    assert await read_status(store) == "completed"


@async_test
async def test_a_failure_of_the_store_does_not_hide_that_of_the_run():
    store = MemoryStateStore()
    session = open_session(store)
    with pytest.raises(RuntimeError, match="the run") as raised:
        async with session.track_run():
            await store.close()
            raise RuntimeError("the run failed")
    assert "failed could not be committed" in raised.value.__notes__[0]
    with pytest.raises(StateStoreError):
        async with session.track_run():
            pass


@async_test
async def test_a_status_can_be_set():
    store = MemoryStateStore()
    session = open_session(store)
    await session.add_items(ITEMS[:1])
    await session.set_status("cancelled")
    assert await read_status(store) == "cancelled"
    segments = [key async for key in store.list() if "/log/" in key]
    await session.set_status("cancelled")
    assert [key async for key in store.list() if "/log/" in key] == segments
    with pytest.raises(ValueError, match="'done'"):
        await session.set_status("done")


@async_test
async def test_a_cleared_conversation_is_pending():
    store = MemoryStateStore()
    session = open_session(store)
    await session.add_items(ITEMS[:1])
    await session.clear_session()
    assert await read_status(store) == "pending"


@async_test
async def test_concurrent_status_changes_all_succeed():
    store = MemoryStateStore()
    answers = [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]
    await asyncio.gather(
        *(open_session(store).add_items([item]) for item in answers for _ in range(4))
    )
    assert len(await open_session(store).get_items()) == 8
    assert await read_status(store) in ("running", "completed")


USER = {"role": "user", "content": "?"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text"}]}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": []}


def make_call(kind="function_call", call_id="c"):
    return {"type": kind, "call_id": call_id}


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([USER], "running"),
        ([{"role": "developer", "content": "Be kind"}], "running"),
        ([{"role": "assistant", "content": "Hello"}], "completed"),
        ([ANSWER], "completed"),
        ([REASONING, ANSWER], "completed"),
        ([ANSWER, REASONING], "running"),
        ([make_call()], "waiting"),
        ([ANSWER, make_call()], "waiting"),
        ([make_call(), make_call("function_call_output")], "running"),
        ([make_call(), make_call(call_id="d"), make_call("function_call_output", "d")], "waiting"),
        ([make_call("shell_call"), make_call("shell_call_output")], "running"),
        ([make_call("computer_call")], "waiting"),
        ([{"type": "web_search_call", "id": "ws"}], "running"),
        ([{"type": "web_search_call", "id": "ws"}, ANSWER], "completed"),
        ([{"type": "mcp_approval_request", "id": "m"}], "waiting"),
        ([{"type": "mcp_approval_response", "approval_request_id": "m"}], "running"),
        ([{"type": "compaction", "id": "x"}], "completed"),
        ([{"__enc__": 1, "payload": "x"}], None),
    ],
)
def test_the_status_is_inferred_from_items(items, expected):
    assert infer_items_status(items, lambda: False) == expected


def test_an_output_for_an_earlier_call_waits_for_the_other_calls():
    output = [make_call("function_call_output")]
    assert infer_items_status(output, lambda: True) == "waiting"
    assert infer_items_status(output, lambda: False) == "running"
    assert infer_items_status([*output, ANSWER], lambda: True) == "completed"
