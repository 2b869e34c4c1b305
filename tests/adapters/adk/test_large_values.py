"""Images in the events and the state of an ADK session are stored once."""

from __future__ import annotations

from google.adk.events import Event, EventActions
from google.genai import types

from adapters.adk.scripted_agent import IDS, S1, text_event
from holdfast import Session
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.blobs import contents as contents_module
from support.async_tests import async_test
from support.images import IMAGE, SAVES, TEXT
from support.observed_store import ObservedStore


@async_test
async def test_an_image_is_stored_once_and_comes_back(monkeypatch):
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 0)
    store = ObservedStore()
    service = HoldfastSessionService(store)
    session = await service.create_session(**S1)
    parts = [types.Part(inline_data=types.Blob(mime_type="image/png", data=IMAGE))]
    parts.append(
        types.Part(function_response=types.FunctionResponse(name="f", response={"result": TEXT}))
    )
    state = {"report": TEXT, "user:profile": TEXT}
    event = Event(
        author="user",
        invocation_id="inv",
        content=types.Content(role="user", parts=parts),
        actions=EventActions(state_delta=state),
    )
    await service.append_event(session, event)
    for number in range(SAVES):
        await service.append_event(session, text_event(f"{number}", state={"n": number}))
    blobs = store.keys_with("/blobs/")
    # The user's state is another session, with blobs of its own.
    size = len(IMAGE) * 4 / 3 + 2 * len(TEXT.encode())
    assert sum(len(store.content[key]) for key in blobs) <= 1.01 * size
    assert store.bytes <= 1.05 * size + 300_000
    again = HoldfastSessionService(store)
    found = await again.get_session(**S1)
    assert found == session
    assert found.events[0].content.parts == parts
    assert (found.state["report"], found.state["user:profile"]) == (TEXT, TEXT)
    assert await again.get_user_state(**IDS) == {"profile": TEXT}
    here, there = (again.location(**IDS, session_id=name) for name in ("s1", "s2"))
    opened = await Session.open(store, agent_id=here.scope_id, session_id=here.session_id)
    saved = await opened.save()
    await again.append_event(found, text_event("later"))
    await opened.refresh()
    await opened.restore(saved.snapshot_id)
    await opened.fork(there.session_id)
    for name in ("s1", "s2"):
        restored = await HoldfastSessionService(store).get_session(**IDS, session_id=name)
        assert restored.events == session.events
        assert restored.state["report"] == TEXT
