"""A session that another writer continued is refused by position, not by clock."""

from __future__ import annotations

import asyncio
import copy

import pytest
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.sessions import Session as AdkSession

from adapters.adk.scripted_agent import IDS, S1, state_event, text_event, texts
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.errors import StateStoreError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import SharedMemory
from support.subprocesses import run_python


@async_test
async def test_one_of_two_writers_gets_adks_error():
    content = MemoryStateStore()
    first = HoldfastSessionService(SharedMemory(content))
    second = HoldfastSessionService(SharedMemory(content))
    mine = await first.create_session(**S1)
    theirs = await second.get_session(**S1)
    # The same time: a clock would see no difference.
    await first.append_event(mine, text_event("mine", timestamp=theirs.last_update_time))
    for event in (text_event("theirs"), text_event("theirs", state={"user:a": 1})):
        with pytest.raises(StaleSessionError, match="reload it with get_session"):
            await second.append_event(theirs, event)
    assert theirs.events == []
    assert await second.get_user_state(**IDS) == {}
    fresh = await second.get_session(**S1)
    await second.append_event(fresh, text_event("theirs"))
    await first.append_event(fresh, text_event("more"))  # a session from another service
    assert texts(await first.get_session(**S1)) == ["mine", "theirs", "more"]


@async_test
async def test_the_position_survives_copies():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    for copied in (copy.deepcopy, AdkSession.model_copy, lambda each: each.model_copy(deep=True)):
        stale = copy.deepcopy(session)
        session = copied(session)
        await service.append_event(session, text_event())
        with pytest.raises(StaleSessionError):
            await service.append_event(stale, text_event())


@async_test
async def test_a_session_without_a_position_is_compared_by_its_last_event():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    await service.append_event(session, text_event("one"))
    sent = AdkSession.model_validate_json(session.model_dump_json())
    await service.append_event(sent, text_event("two"))
    with pytest.raises(StaleSessionError):
        await service.append_event(
            AdkSession(id="s1", app_name="shop", user_id="ana"), text_event("three")
        )
    listed = (await service.list_sessions(**IDS)).sessions[0]
    with pytest.raises(StaleSessionError):
        await service.append_event(listed, text_event("three"))


@async_test
async def test_a_session_that_was_created_again_is_not_continued():
    service = HoldfastSessionService(MemoryStateStore())
    old = await service.create_session(**S1)
    await service.delete_session(**S1)
    await service.create_session(**S1)
    with pytest.raises(StaleSessionError):
        await service.append_event(old, text_event())


@async_test
async def test_an_event_is_stored_once():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    before = copy.deepcopy(session)
    event = text_event("one", state={"user:n": 1, "k": 2})
    await service.append_event(session, event)
    await service.append_event(session, event)  # repeated by the caller
    await service.append_event(before, event)  # repeated after an error
    assert len(before.events) == len(session.events) == 1
    assert before.state == session.state == {"user:n": 1, "k": 2}
    await service.append_event(before, text_event("two"))
    await service.append_event(before, event)
    assert texts(before) == texts(await service.get_session(**S1)) == ["one", "two"]
    other = text_event("another with the same id", id=event.id)
    await service.append_event(before, other)
    assert len((await service.get_session(**S1)).events) == 3


class LostResponse(SharedMemory):
    """Writes, and then fails as if the response was lost."""

    lost = 0

    async def _lose(self, result):
        if self.lost:
            self.lost -= 1
            raise StateStoreError("connection lost", unknown=True)
        return result

    async def put(self, key, value, **conditions):
        return await self._lose(await super().put(key, value, **conditions))

    async def put_many(self, puts, **conditions):
        return await self._lose(await super().put_many(puts, **conditions))


@async_test
async def test_a_call_with_an_unknown_outcome_can_be_repeated():
    content = MemoryStateStore()
    store = LostResponse(content)
    service = HoldfastSessionService(store)
    session = await service.create_session(**S1)
    event = text_event("once", state={"k": 1})
    store.lost = 1
    try:
        await service.append_event(session, event)
    except StateStoreError:
        await service.append_event(session, event)
    await service.append_event(session, text_event("then"))
    found = await HoldfastSessionService(SharedMemory(content)).get_session(**S1)
    assert texts(found) == texts(session) == ["once", "then"]


@async_test
async def test_values_and_events_beside_do_not_make_a_session_stale():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    async with await service.open(**S1) as beside:
        beside.set("note", "kept")
        beside.record("tool.called", {"tool": "x"})
    await service.append_event(session, state_event(a=1))
    assert (await service.get_session(**S1)).state == {"note": "kept", "a": 1}


WRITERS = """
import asyncio, os, sys
from google.adk.errors._stale_session_error import StaleSessionError
from adapters.adk.scripted_agent import S1, text_event
from holdfast.adapters.adk import HoldfastSessionService

async def main(url, name):
    async with HoldfastSessionService.from_url(url) as service:
        for number in range(5):
            while True:
                session = await service.get_session(**S1)
                event = text_event(f"{name}{number}", state={"user:" + name: number + 1})
                try:
                    await service.append_event(session, event)
                    break
                except StaleSessionError:
                    pass

url, *names = sys.argv[1:]
for name in names:
    if os.fork() == 0:
        asyncio.run(main(url, name))
        os._exit(0)
sys.exit(any(os.wait()[1] for _ in names))
"""


def test_two_processes_lose_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"

    async def main():
        async with HoldfastSessionService.from_url(url) as service:
            await service.create_session(**S1)
            done = await asyncio.to_thread(run_python, WRITERS, url, "a", "b")
            assert done.returncode == 0, done.stderr
            found = await service.get_session(**S1)
            for name in ("a", "b"):
                mine = [text for text in texts(found) if text.startswith(name)]
                assert mine == [f"{name}{number}" for number in range(5)]
            assert found.state == {"user:a": 5, "user:b": 5}

    asyncio.run(main())
