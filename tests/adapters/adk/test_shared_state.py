"""State of users and apps: no lost updates, and both or neither after a crash."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from adapters.adk.scripted_agent import IDS, S1, state_event, text_event
from holdfast import Session
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.adapters.adk.shared_state import PENDING, Origin, SharedState
from holdfast.adapters.shared_session import SessionPool
from holdfast.errors import IntegrityError, StateStoreError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import SharedMemory


class DyingStore(SharedMemory):
    """Fails after some writes, as for a process that dies: later calls fail too."""

    def __init__(self, content, writes):
        super().__init__(content)
        self.left = writes

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise StateStoreError("the process is dead")

    async def put(self, key, value, **conditions):
        self._count()
        return await super().put(key, value, **conditions)

    async def put_many(self, puts, **conditions):
        self._count()
        return await super().put_many(puts, **conditions)


@async_test
async def test_sessions_of_a_user_lose_no_updates():
    content = MemoryStateStore()

    async def write(name):
        service = HoldfastSessionService(SharedMemory(content))
        session = await service.create_session(**IDS, session_id=name)
        for number in range(5):
            event = state_event(
                **{f"user__{name}": number, f"app__{name}": number, "user__x": name}
            )
            await service.append_event(session, event)

    await asyncio.gather(*(write(f"s{number}") for number in range(4)))
    service = HoldfastSessionService(SharedMemory(content))
    state = (await service.get_session(**IDS, session_id="s0")).state
    assert {key: value for key, value in state.items() if key != "user:x"} == {
        f"{scope}:s{number}": 4 for scope in ("user", "app") for number in range(4)
    }
    for user in (None, "ana"):
        where = service.state_location("shop", user)
        session = await Session.open(
            content, agent_id=where.scope_id, session_id=where.session_id, must_exist=True
        )
        assert PENDING not in session.snapshot().namespaces()


@async_test
async def test_changes_of_a_slow_writer_do_not_replace_later_ones():
    pool = SessionPool(MemoryStateStore())
    shared, service = SharedState(pool), HoldfastSessionService(pool.state_store)
    where = service.state_location(**IDS)
    keys = []
    for value in (1, 2):
        session = await service.create_session(**IDS, session_id=f"s{value}")
        location = service.location(**IDS, session_id=session.id)
        origin = Origin(location.session_id, 0, f"e{value}")
        keys.append((await shared.prepare(where, origin, {"x": value}), session))
    for value, (_, session) in enumerate(keys, 1):
        await service.append_event(session, text_event(id=f"e{value}"))
    for key, _ in reversed(keys):
        assert await service.get_user_state(**IDS) == {"x": 2}
        await shared.apply(where, key)
    assert await service.get_user_state(**IDS) == {"x": 2}


@async_test
async def test_after_a_crash_both_changes_are_visible_or_neither():
    seen = set()
    for writes in range(40):
        content = MemoryStateStore()
        service = HoldfastSessionService(SharedMemory(content))
        await service.create_session(**S1, state={"user:n": 0, "app:n": 0, "n": 0})
        dying = HoldfastSessionService(DyingStore(content, writes))
        session = await dying.get_session(**S1)
        acknowledged = False
        try:
            await dying.append_event(session, text_event(state={"user:n": 1, "app:n": 1, "n": 1}))
            acknowledged = True
        except StateStoreError:
            pass
        survivor = HoldfastSessionService(SharedMemory(content))
        found = await survivor.get_session(**S1)
        values = [found.state[key] for key in ("user:n", "app:n", "n")]
        assert values in ([0, 0, 0], [1, 1, 1])
        assert len(found.events) == values[0]
        assert not acknowledged or values[0] == 1
        assert await survivor.get_user_state(**IDS) == {"n": values[0]}
        # The next writer cleans up.
        await survivor.append_event(found, text_event(state={"user:m": 2, "app:m": 2}))
        again = await survivor.create_session(**IDS, session_id="s2")
        assert again.state == {"user:n": values[0], "app:n": values[0], "user:m": 2, "app:m": 2}
        seen.add((values[0], acknowledged))
        if dying.state_store.left > 0:
            break
    assert seen == {(0, False), (1, True)} or seen == {(0, False), (1, False), (1, True)}


@async_test
async def test_a_crash_while_a_session_is_created_leaves_both_or_neither():
    for writes in range(40):
        content = MemoryStateStore()
        dying = HoldfastSessionService(DyingStore(content, writes))
        with suppress(StateStoreError):
            await dying.create_session(**S1, state={"user:n": 1, "app:n": 1})
        survivor = HoldfastSessionService(SharedMemory(content))
        found = await survivor.get_session(**S1)
        assert await survivor.get_user_state(**IDS) == ({} if found is None else {"n": 1})
        if found is None:
            await survivor.create_session(**S1, state={"user:n": 2})
            assert await survivor.get_user_state(**IDS) == {"n": 2}
        await survivor.delete_session(**S1)
        assert await survivor.get_user_state(**IDS) == ({"n": 2} if found is None else {"n": 1})
        if dying.state_store.left > 0:
            return
    raise AssertionError("the creation never ended")


@async_test
async def test_a_damaged_pending_change_is_reported():
    content = MemoryStateStore()
    service = HoldfastSessionService(content)
    await service.create_session(**S1, state={"user:n": 1})
    async with Session.open(content, agent_id="shop:state", session_id="shop:ana") as session:
        session.record("x", None, changes={"set": [(PENDING, "k", {"mark": 1})], "delete": []})
    with pytest.raises(IntegrityError, match="'k' in namespace 'adk/pending' is not a change"):
        await service.get_user_state(**IDS)


@async_test
async def test_restoring_a_session_leaves_the_state_of_its_user():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    opened = await service.open(**S1)
    saved = await opened.save()
    await service.append_event(session, text_event(state={"user:n": 1, "k": 1}))
    await opened.reload()
    await opened.restore(saved.snapshot_id)
    found = await service.get_session(**S1)
    assert (found.state, found.events) == ({"user:n": 1}, [])
