"""Every method of the session service."""

from __future__ import annotations

import copy
import math

import pytest
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

from adapters.adk.scripted_agent import IDS, S1, state_event, text_event, texts
from holdfast import Catalog, Session
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.errors import UnsupportedValueError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import ObservedStore


@async_test
async def test_a_session_survives_its_process(new_service):
    async with new_service() as service:
        created = await service.create_session(**S1, state={"plan": [1], "user:lang": "de"})
        assert (created.id, created.state) == ("s1", {"plan": [1], "user:lang": "de"})
        await service.append_event(created, text_event("hi", state={"plan": [1, 2], "app:n": 1}))
        await service.append_event(created, text_event("hello", "waiter"))
    async with new_service() as service:
        found = await service.get_session(**S1)
        assert found == created
        assert found.state == {"plan": [1, 2], "user:lang": "de", "app:n": 1}
        assert texts(found) == ["hi", "hello"]
        assert found.last_update_time == found.events[-1].timestamp
        await service.append_event(found, text_event("again"))
        assert await service.get_user_state(**IDS) == {"lang": "de"}
        await service.create_session(**IDS, session_id="s0")
        listed = (await service.list_sessions(**IDS)).sessions
        assert [each.id for each in listed] == ["s1", "s0"]


@async_test
async def test_sessions_are_listed_the_last_active_last():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        for user, name in (("ana", "s1"), ("ana", "s2"), ("bob", "s1")):
            await service.create_session(app_name="shop", user_id=user, session_id=name)
        await service.create_session(app_name="other", user_id="ana", session_id="s1")
        first = await service.get_session(**S1)
        await service.append_event(first, text_event("hi", state={"user:a": 1}))
        listed = (await service.list_sessions(**IDS)).sessions
        assert [each.id for each in listed] == ["s2", "s1"]
        assert listed[-1].last_update_time == first.last_update_time
        assert not any(each.events or each.state for each in listed)
        everybody = (await service.list_sessions(app_name="shop")).sessions
        names = [(each.user_id, each.id) for each in everybody]
        assert names == [("ana", "s2"), ("bob", "s1"), ("ana", "s1")]
        assert (await service.list_sessions(app_name="none")).sessions == []


@async_test
async def test_a_deleted_session_is_gone_and_the_others_stay(new_service):
    async with new_service() as service:
        mine = await service.create_session(**S1, state={"user:a": 1})
        await service.create_session(app_name="other", user_id="ana", session_id="s1")
        await service.delete_session(**S1)
        await service.delete_session(**S1)
        assert await service.get_session(**S1) is None
        with pytest.raises(SessionNotFoundError, match="create_session"):
            await service.append_event(mine, text_event())
        assert await service.get_session(app_name="other", user_id="ana", session_id="s1")
        assert await service.get_user_state(**IDS) == {"a": 1}
        again = await service.create_session(**S1)
        assert again.events == []
        assert again.state == {"user:a": 1}


@async_test
async def test_a_deletion_leaves_sessions_of_other_agents():
    service = HoldfastSessionService(MemoryStateStore())
    await service.create_session(**S1)
    other = {"agent_id": "other", "session_id": service.location(**S1).session_id}
    async with Session.open(service.state_store, **other) as session:
        session.set("k", 1)
    await service.delete_session(**S1)
    assert await service.get_session(**S1) is None
    kept = await Session.open(service.state_store, **other, must_exist=True)
    assert kept.get("k") == 1


@async_test
async def test_ids_that_cannot_be_stored():
    service = HoldfastSessionService(MemoryStateStore())
    for ids in ({**S1, "session_id": "x" * 300}, {**S1, "user_id": "\ud800"}):
        with pytest.raises(ValueError, match="session_id (must have 1 to 256|has a lone)"):
            await service.create_session(**ids)
        assert await service.get_session(**ids) is None
        await service.delete_session(**ids)


@async_test
async def test_some_of_the_events_are_returned():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        session = await service.create_session(**S1)
        for number in range(5):
            await service.append_event(session, text_event(str(number), timestamp=100.0 + number))

        async def read(**config):
            found = await service.get_session(**S1, config=GetSessionConfig(**config))
            assert found.last_update_time == 104.0
            return texts(found)

        assert await read() == ["0", "1", "2", "3", "4"]
        assert await read(num_recent_events=2) == ["3", "4"]
        assert await read(num_recent_events=0) == []
        assert await read(after_timestamp=102.0) == ["2", "3", "4"]
        assert await read(after_timestamp=102.0, num_recent_events=2) == ["3", "4"]
        assert await read(after_timestamp=200.0) == []
        empty = await service.get_session(**S1, config=GetSessionConfig(num_recent_events=0))
        await service.append_event(empty, text_event("5"))
        assert len((await service.get_session(**S1)).events) == 6


@async_test
async def test_ids_are_stripped_and_generated():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        created = await service.create_session(**IDS, session_id="  s1 ")
        assert created.id == "s1"
        assert await service.get_session(**IDS, session_id=" s1")
        with pytest.raises(AlreadyExistsError, match="get_session"):
            await service.create_session(**S1, state={"user:a": 1})
        assert await service.get_user_state(**IDS) == {}
        generated = [
            (await service.create_session(**IDS, session_id=each)).id for each in (None, " ")
        ]
        assert len({*generated, "s1"}) == 3
        assert await service.get_session(**IDS, session_id=" ") is None
        await service.delete_session(**IDS, session_id=" ")
        await service.delete_session(**IDS, session_id=" s1")
        assert await service.get_session(**S1) is None


@async_test
async def test_partial_events_and_temporary_state_are_not_stored():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        session = await service.create_session(**S1, state={"temp:a": 1})
        assert session.state == {}
        await service.append_event(session, text_event("par", "waiter", partial=True))
        await service.append_event(session, state_event(temp__b=2, c=3))
        assert session.state == {"temp:b": 2, "c": 3}
        found = await service.get_session(**S1)
        assert found.state == {"c": 3}
        assert [each.actions.state_delta for each in found.events] == [{"c": 3}]
        document = await (await service.open(**S1)).export()
        assert "temp:" not in repr(document.snapshot.keys) + repr(document.state.messages)


@async_test
async def test_events_are_messages_in_adk_json():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        session = await service.create_session(**S1)
        call = types.FunctionCall(id="c1", name="look", args={"q": None})
        blob = types.Blob(mime_type="image/png", data=b"\xff\x00")
        event = Event(
            author="waiter",
            content=types.Content(
                role="model", parts=[types.Part(function_call=call), types.Part(inline_data=blob)]
            ),
            long_running_tool_ids={"c1"},
        )
        await service.append_event(session, event)
        stored = await service.open(**S1)
        (message,) = stored.messages
        assert message["content"]["parts"][0] == {
            "functionCall": {"id": "c1", "name": "look", "args": {"q": None}}
        }
        assert message["author"] == "waiter"
        assert stored.status == "waiting"
        assert (await service.get_session(**S1)).events == [event]


@async_test
async def test_the_status_follows_the_events():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        session = await service.create_session(**S1)

        async def status():
            return (await service.open(**S1)).status

        assert await status() == "pending"
        await service.append_event(session, text_event("hi"))
        assert await status() == "running"
        await service.append_event(session, text_event("hello", "waiter"))
        assert await status() == "completed"
        await service.append_event(session, state_event(a=1))
        assert await status() == "completed"
        await service.append_event(session, Event(author="waiter", error_code="SAFETY"))
        assert await status() == "failed"


@async_test
async def test_values_of_the_state_keep_their_types_and_models_become_json():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        session = await service.create_session(**S1)
        blob = types.FunctionCall(name="look")
        await service.append_event(session, state_event(a={1, 2}, b=b"\xff", c=blob, d=None))
        found = (await service.get_session(**S1)).state
        assert found["a"] == {1, 2}
        assert (found["b"], found["d"]) == (b"\xff", None)
        assert found["c"]["name"] == "look"
        with pytest.raises(UnsupportedValueError, match=r"\$\.state\.f"):
            await service.create_session(**IDS, state={"f": lambda: 1})
        assert len((await service.list_sessions(**IDS)).sessions) == 1


@async_test
async def test_events_keep_numbers_that_are_not_finite():
    service = HoldfastSessionService(MemoryStateStore())
    session = await service.create_session(**S1)
    event = text_event(state={"k": [None, (math.inf, {"low": -math.inf}), {1: math.nan}]})
    response = types.FunctionResponse(name="f", response={"far": math.inf, "none": None})
    event.content.parts.append(types.Part(function_response=response))
    await service.append_event(session, event)
    found = (await service.get_session(**S1)).events[0]
    assert repr(found.actions.state_delta) == "{'k': [None, [inf, {'low': -inf}], {'1': nan}]}"
    assert found.content == event.content


@async_test
async def test_ids_cannot_collide():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        names = [("a", "b", "c"), ("a:b", "c", "d"), ("a", "b:c", "d"), ("a", "b", "c:d")]
        names += [("a", "b%3Ac", "d"), ("a", "%", "é/.."), ("a", "", "x")]
        for app, user, name in names:
            await service.create_session(
                app_name=app, user_id=user, session_id=name, state={"user:me": [app, user]}
            )
        assert len({service.location(*each) for each in names}) == len(names)
        for app, user, name in names:
            found = await service.get_session(app_name=app, user_id=user, session_id=name)
            assert found.state == {"user:me": [app, user]}
            listed = (await service.list_sessions(app_name=app, user_id=user)).sessions
            assert (user, name) in [(each.user_id, each.id) for each in listed]
        assert len((await service.list_sessions(app_name="a")).sessions) == len(names) - 1


@async_test
async def test_the_ids_are_readable():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        await service.create_session(**S1, state={"user:a": 1, "app:b": 2})
        catalog = Catalog(service.state_store)
        assert (await catalog.latest_session("shop")).session_id == "shop:ana:s1"
        shared = (await catalog.sessions("shop:state")).sessions
        assert {each.session_id for each in shared} == {"shop", "shop:ana"}
        assert {*await catalog.agents()} == {"shop", "shop:state"}
        assert service.state_location("shop").session_id == "shop"
        assert service.state_location("shop", "ana").session_id == "shop:ana"
        with pytest.raises(TypeError, match="user_id must be a str"):
            await service.get_session(app_name="shop", user_id=7, session_id="s1")


@async_test
async def test_a_long_session_is_listed_without_its_events():
    store = ObservedStore()
    async with HoldfastSessionService(store) as service:
        session = await service.create_session(**S1)
        for number in range(30):
            await service.append_event(session, text_event("x" * 1000 + str(number)))
        store.forget()
        (listed,) = (await HoldfastSessionService(store).list_sessions(**IDS)).sessions
        assert listed.last_update_time == session.last_update_time
        assert len([key for key in store.read if "/log/" in key]) == 1
        assert not [key for key in store.read if "/keyframes/" in key]


@async_test
async def test_lists_can_have_the_state():
    async with HoldfastSessionService(MemoryStateStore(), state_in_lists=True) as service:
        session = await service.create_session(**S1, state={"a": 1, "user:b": 2})
        await service.append_event(session, text_event("hi"))
        (listed,) = (await service.list_sessions(**IDS)).sessions
        assert listed.state == {"a": 1, "user:b": 2}
        assert listed.events == []


@async_test
async def test_an_appended_event_writes_one_message():
    async with HoldfastSessionService(MemoryStateStore()) as service:
        session = await service.create_session(**S1)
        for number in range(3):
            before = copy.deepcopy(session)
            await service.append_event(session, text_event(str(number)))
            assert len(session.events) == len(before.events) + 1
        opened = await Session.open(
            service.state_store, agent_id="shop", session_id="shop:ana:s1", must_exist=True
        )
        kinds = [each.type async for each in opened.events]
        assert kinds.count("message.appended") == 3
