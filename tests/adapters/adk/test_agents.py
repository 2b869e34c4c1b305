"""Agents of ADK: run, resume, roll back, fork, move, rewind."""

from __future__ import annotations

import pytest
from google.adk.errors._stale_session_error import StaleSessionError
from google.genai import types

from adapters.adk.scripted_agent import IDS, S1, ask, make_runner, text_event, texts
from holdfast import SnapshotManager
from holdfast.adapters.adk import HoldfastArtifactService, HoldfastSessionService
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.backends import SharedMemory


@async_test
async def test_an_agent_runs_and_continues_in_another_service():
    content = MemoryStateStore()
    service = HoldfastSessionService(SharedMemory(content))
    await service.create_session(**S1)
    assert await ask(make_runner(service), "Hello") == "You said: Hello"
    answer = await ask(make_runner(service), "Is there a table?")
    assert answer == "There are two tables on monday"
    later = HoldfastSessionService(SharedMemory(content))
    assert await ask(make_runner(later), "Any table?") == "There are two tables on monday"
    found = await later.get_session(**S1)
    assert len(found.events) == 2 + 4 + 4
    assert found.state["user:favourite_day"] == "monday"
    assert found.state["looked"] == 2
    opened = await later.open(**S1)
    assert opened.status == "completed"
    assert (await opened.verify()).ok


@async_test
async def test_a_session_is_restored_forked_exported_and_imported():
    service = HoldfastSessionService(MemoryStateStore())
    await service.create_session(**S1)
    runner = make_runner(service)
    await ask(runner, "one")
    saved = await (await service.open(**S1)).save(tags={"reason": "first"})
    stale = await service.get_session(**S1)
    await ask(runner, "two, a table")
    opened = await service.open(**S1)
    await opened.restore(saved.snapshot_id)
    assert texts(await service.get_session(**S1)) == ["one", "You said: one"]
    await ask(runner, "three")
    with pytest.raises(StaleSessionError):
        await service.append_event(stale, text_event())

    fork = await service.fork_session(**S1, new_session_id="what_if", at=saved.snapshot_id)
    assert (fork.id, len(fork.events)) == ("what_if", 2)
    await ask(runner, "four", "what_if")
    assert len((await service.get_session(**S1)).events) == 4
    generated = await service.fork_session(**S1)
    assert len(generated.events) == 4
    listed = {each.id for each in (await service.list_sessions(**IDS)).sessions}
    assert listed == {"s1", "what_if", generated.id}

    document = await (await service.open(**S1)).export()
    staging = HoldfastSessionService(MemoryStateStore())
    await SnapshotManager(staging.state_store).import_session(document)
    assert texts(await staging.get_session(**S1)) == texts(await service.get_session(**S1))
    assert await ask(make_runner(staging), "five") == "You said: five"
    with pytest.raises(NotFoundError):
        await staging.open(**IDS, session_id="none")


@async_test
async def test_a_rewind_of_adk_restores_state_and_artifacts():
    service = HoldfastSessionService(MemoryStateStore())
    artifacts = HoldfastArtifactService(service.state_store)
    runner = make_runner(service, artifacts)
    await service.create_session(**S1)
    await ask(runner, "Hello")
    await ask(runner, "Is there a table?")
    session = await service.get_session(**S1)
    assert session.state["looked"] == 1
    invocation = session.events[-1].invocation_id
    await artifacts.save_artifact(**S1, filename="a", artifact=types.Part(text="a"))
    await runner.rewind_async(
        user_id="ana", session_id="s1", rewind_before_invocation_id=invocation
    )
    found = await service.get_session(**S1)
    assert found.state["looked"] is None
    assert found.events[-1].actions.rewind_before_invocation_id == invocation


@async_test
async def test_unknown_fields_stay_stored_and_other_messages_are_reported():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    await service.append_event(session, text_event("one"))
    async with await service.open(**S1) as opened:
        newer = opened.messages[0]
        newer |= {"id": "e2", "futureField": {"a": 1}}
        newer["actions"]["futureAction"] = True
        newer["content"]["parts"][0]["futurePart"] = [1]
        opened.append_message(newer)
    found = await service.get_session(**S1)
    assert texts(found) == ["one", "one"]
    await service.append_event(found, text_event("two"))
    opened = await service.open(**S1)
    assert opened.messages[1] == newer
    opened.add_message("user", "not of ADK")
    await opened.commit()
    with pytest.raises(
        IntegrityError, match="message 000000000003 is not an event of ADK: content"
    ):
        await service.get_session(**S1)


@async_test
async def test_a_damaged_entry_of_a_session_is_reported():
    service = HoldfastSessionService(MemoryStateStore())
    await service.create_session(**S1)
    async with await service.open(**S1) as opened:
        opened.record("x", None, changes={"set": [("adk", "session", 7)], "delete": []})
    with pytest.raises(IntegrityError, match="'session' in namespace 'adk' is not"):
        await service.get_session(**S1)
