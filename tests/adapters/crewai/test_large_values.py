"""Images in the state of a flow are stored once."""

from __future__ import annotations

import pytest

pytest.importorskip("crewai", reason="runs in make test-crewai")

from holdfast import Session
from holdfast.adapters.crewai import HoldfastFlowPersistence
from holdfast.blobs import contents as contents_module
from support.async_tests import run_async
from support.images import DATA_URL, SAVES, TEXT, check_stored_once
from support.observed_store import ObservedStore


def test_an_image_is_stored_once_and_comes_back(monkeypatch):
    monkeypatch.setattr(contents_module, "CACHE_BYTES", 0)
    store = ObservedStore()
    persistence = HoldfastFlowPersistence(store)
    message = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": DATA_URL}}]}
    state = {"id": "flow-1", "messages": [message], "report": {"text": TEXT}}
    for number in range(SAVES):
        state["n"] = number
        persistence.save_state("flow-1", f"step {number}", state)
    check_stored_once(store, DATA_URL, TEXT)
    assert HoldfastFlowPersistence(store).load_state("flow-1") == state

    async def restore():
        session = await Session.open(store, agent_id="flow", session_id="flow-1", must_exist=True)
        await session.restore(session.log.head.seq - 2)
        await session.fork("flow-2")

    run_async(restore())
    for name in ("flow-1", "flow-2"):
        found = HoldfastFlowPersistence(store).load_state(name)
        assert found["messages"] == [message]
        assert found["report"] == {"text": TEXT}
        assert found["n"] < SAVES - 1
