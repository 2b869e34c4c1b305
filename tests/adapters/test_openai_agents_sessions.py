"""Our sessions behave like those of the SDK: every test runs with both."""

from __future__ import annotations

import asyncio
import inspect
import threading

import pytest

pytest.importorskip("agents")

from agents import Agent, RunConfig, Runner, SQLiteSession
from agents.extensions.memory.advanced_sqlite_session import AdvancedSQLiteSession
from agents.memory import Session as SdkSession
from agents.memory import SessionSettings, session_settings

from adapters.scripted_model import ScriptedModel
from adapters.test_openai_agents import ITEMS, QUIET, make_waiter
from holdfast import StateStoreError, open_state_store
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.stores.local import pause
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async

KINDS = ["SQLiteSession", "AdvancedSQLiteSession", "HoldfastSession"]
FOUR = [{"role": "user", "content": str(number)} for number in range(4)]


@pytest.fixture(params=KINDS)
def new_session(request, tmp_path):
    """Return a function that opens a session of one class, in one database."""
    path = tmp_path / "sessions.db"
    theirs = []
    store = open_state_store(f"sqlite:///{path}") if request.param == "HoldfastSession" else None

    def make(session_id="ses", **options):
        if store is not None:
            return HoldfastSession(session_id, store, agent_id="waiter", **options)
        if request.param == "SQLiteSession":
            theirs.append(SQLiteSession(session_id, path, **options))
        else:
            theirs.append(
                AdvancedSQLiteSession(
                    session_id=session_id, db_path=path, create_tables=True, **options
                )
            )
        return theirs[-1]

    yield make
    for session in theirs:
        session.close()
    if store is not None:
        run_async(store.close())


class TestSession:
    """Items, limits, settings and runs."""

    @async_test
    async def test_it_is_a_session(self, new_session):
        session = new_session("some id")
        assert isinstance(session, SdkSession)
        assert session.session_id == "some id"
        assert session.session_settings == SessionSettings(limit=None)

    @async_test
    async def test_a_new_session_is_empty(self, new_session):
        session = new_session()
        assert await session.get_items() == await session.get_items(limit=3) == []
        assert await session.pop_item() is None
        await session.clear_session()
        await session.add_items([])
        assert await session.get_items() == []

    @async_test
    async def test_items_come_back_in_order_and_unchanged(self, new_session):
        session = new_session()
        given = [dict(item) for item in ITEMS]
        await session.add_items(given)
        await session.add_items(ITEMS[:1])
        assert await session.get_items() == [*ITEMS, ITEMS[0]]
        assert given == ITEMS
        (await session.get_items())[0]["content"] = "changed"
        assert await new_session().get_items() == [*ITEMS, ITEMS[0]]

    @pytest.mark.parametrize("limit", [-5, -1, 0, 1, 2, 3, 4, 5, 2_147_483_647])
    @async_test
    async def test_a_limit_selects_the_last_items_and_a_negative_one_all(self, new_session, limit):
        given = FOUR if limit < 0 else FOUR[-limit:] if limit else []
        session = new_session()
        await session.add_items(FOUR)
        assert await session.get_items(limit) == await session.get_items(limit=limit) == given
        session.session_settings = SessionSettings(limit=limit)
        assert await session.get_items() == given
        assert await session.get_items(2) == FOUR[-2:]
        assert await new_session(session_settings={"limit": limit}).get_items() == given

    @pytest.mark.parametrize(
        ("settings", "limit"),
        [
            (None, None),
            ({}, None),
            ({"limit": None}, None),
            ({"limit": 3}, 3),
            ({"limit": "3"}, 3),
            (SessionSettings(limit=3), 3),
        ],
    )
    def test_settings_may_be_an_object_or_a_dict(self, new_session, settings, limit):
        session = new_session(session_settings=settings)
        assert session.session_settings == SessionSettings(limit=limit)
        if isinstance(settings, SessionSettings):
            assert session.session_settings is settings

    @pytest.mark.parametrize("settings", ["x", 5, [("limit", 1)], {"limt": 3}, {"limit": "many"}])
    def test_invalid_settings_are_rejected_at_once(self, new_session, settings):
        with pytest.raises((TypeError, ValueError)):
            new_session(session_settings=settings)

    @pytest.mark.parametrize("settings", [{"limit": 2}, SessionSettings(limit=2)])
    @async_test
    async def test_a_run_reads_as_many_items_as_the_settings_allow(self, new_session, settings):
        await new_session().add_items(FOUR)
        agent = make_waiter("Welcome", "Again", "Once more")
        session = new_session(session_settings=settings)
        await Runner.run(agent, "Hello", session=session, run_config=QUIET)
        assert [item["content"] for item in agent.model.asked[0]] == ["2", "3", "Hello"]
        one = RunConfig(tracing_disabled=True, session_settings=SessionSettings(limit=1))
        await Runner.run(agent, "You?", session=session, run_config=one)
        assert [item["role"] for item in agent.model.asked[1]] == ["assistant", "user"]
        assert len(await new_session().get_items()) == 8

    @async_test
    async def test_settings_may_be_removed(self, new_session):
        session = new_session(session_settings={"limit": 1})
        session.session_settings = None
        await session.add_items(FOUR)
        assert await session.get_items() == FOUR
        await Runner.run(make_waiter("Hi"), "Hello", session=session, run_config=QUIET)

    @async_test
    async def test_items_are_popped_from_the_end_and_cleared(self, new_session):
        session = new_session()
        await session.add_items(FOUR)
        assert await session.pop_item() == FOUR[3]
        assert await new_session().pop_item() == FOUR[2]
        await session.add_items(FOUR[3:])
        assert await session.get_items() == [*FOUR[:2], FOUR[3]]
        await session.clear_session()
        assert await session.get_items() == await new_session().get_items() == []
        assert await session.pop_item() is None
        await session.add_items(FOUR[:1])
        assert await session.get_items() == FOUR[:1]

    @async_test
    async def test_an_item_that_fails_validation_is_not_popped(self, new_session):
        session = new_session()
        await session.add_items(FOUR)

        def refuse(item):
            raise LookupError(item["content"])

        for _ in range(2):
            with pytest.raises(LookupError, match="3"):
                await session._pop_item_with_validation(refuse)
        assert await session.get_items() == await new_session().get_items() == FOUR
        seen = []
        assert await session._pop_item_with_validation(seen.append) == FOUR[3]
        assert seen == FOUR[3:]
        assert await session.get_items() == FOUR[:3]

    @async_test
    async def test_sessions_with_different_ids_are_independent(self, new_session):
        one, other = new_session("one"), new_session("other")
        await one.add_items(FOUR)
        await other.add_items(FOUR[:1])
        await one.clear_session()
        assert await other.get_items() == FOUR[:1]

    @async_test
    async def test_tasks_may_share_a_session(self, new_session):
        session = new_session()
        await asyncio.gather(*(session.add_items([item]) for item in FOUR * 3))
        assert len(await session.get_items()) == 12
        popped = await asyncio.gather(*(session.pop_item() for _ in range(15)))
        assert len([item for item in popped if item is not None]) == 12
        assert await session.get_items() == []

    @async_test
    async def test_a_cancelled_write_is_finished_before_the_cancellation_is_raised(
        self, new_session
    ):
        session = new_session()
        await session.add_items(FOUR)
        for _ in range(10):
            run = asyncio.create_task(session.add_items(FOUR))
            for _ in range(2):
                await asyncio.sleep(0)
            run.cancel()
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run
            before = await new_session().get_items()
            await asyncio.sleep(0.02)
            assert await new_session().get_items() == before

    @async_test
    async def test_a_failed_run_leaves_the_message_of_the_user(self, new_session):
        session = new_session()
        with pytest.raises(IndexError):
            await Runner.run(make_waiter(), "Hello", session=session, run_config=QUIET)
        assert await session.get_items() == [{"role": "user", "content": "Hello"}]
        await Runner.run(make_waiter("Hi"), "Again", session=session, run_config=QUIET)
        assert len(await session.get_items()) == 3

    @async_test
    async def test_runs_with_tools_and_handoffs_continue_in_another_object(self, new_session):
        call = ("tables", "call_1", '{"day": "monday"}')
        await Runner.run(
            make_waiter(call, "Two"), "A table?", session=new_session(), run_config=QUIET
        )
        cook = Agent(name="cook", model=ScriptedModel("Soup"))
        host = Agent(
            name="host",
            model=ScriptedModel(("transfer_to_cook", "call_2", "{}")),
            handoffs=[cook],
        )
        await Runner.run(host, "And to eat?", session=new_session(), run_config=QUIET)
        kinds = [item.get("type", item.get("role")) for item in await new_session().get_items()]
        turn = ["user", "function_call", "function_call_output", "message"]
        assert kinds == turn * 2


# ---------------------------------------------------------------------------------------- ours


def test_settings_that_are_assigned_later_are_normalized():
    session = HoldfastSession("ses", MemoryStateStore())
    session.session_settings = {"limit": 5}
    assert session.session_settings == SessionSettings(limit=5)
    with pytest.raises(TypeError):
        session.session_settings = 5


def test_settings_are_normalized_with_an_sdk_that_has_no_function_for_it(monkeypatch):
    monkeypatch.delattr(session_settings, "coerce_session_settings")
    for settings in ({"limit": 5}, SessionSettings(limit=5)):
        session = HoldfastSession("ses", MemoryStateStore(), session_settings=settings)
        assert session.session_settings == SessionSettings(limit=5)
    with pytest.raises(TypeError, match="must be a SessionSettings or a dict, got 5"):
        HoldfastSession("ses", MemoryStateStore(), session_settings=5)


@pytest.mark.parametrize("is_inline", [True, False])
@async_test
async def test_a_started_write_is_finished_before_the_cancellation_is_raised(is_inline):
    began = threading.Event()

    class Slow(MemoryStateStore):
        runs_inline = is_inline

        async def _put_many(self, puts, conditions=()):
            began.set()
            await pause(0.05)
            return await super()._put_many(puts, conditions)

    store = Slow()
    session = HoldfastSession("ses", store)
    run = asyncio.create_task(session.add_items(FOUR))
    await asyncio.to_thread(began.wait, 5)
    for _ in range(3):
        run.cancel()
        await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await session.get_items() == FOUR
    await store.close()
    with pytest.raises(StateStoreError):
        await session.add_items(FOUR)


@async_test
async def test_a_fork_has_the_same_settings():
    session = HoldfastSession("ses", MemoryStateStore(), session_settings={"limit": 2})
    await session.add_items(FOUR)
    assert await (await session.fork("other")).get_items() == FOUR[-2:]


def test_methods_have_the_parameters_of_the_sdk():
    for name in ("get_items", "add_items", "pop_item", "clear_session"):
        ours, theirs = (
            inspect.signature(getattr(kind, name)) for kind in (HoldfastSession, SQLiteSession)
        )
        assert list(ours.parameters) == list(theirs.parameters)
