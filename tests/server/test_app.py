"""The app: mounted in another one, behind rewritten paths, and closing its store."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from fastapi import FastAPI

import holdfast
from holdfast import Session, StateStoreError
from holdfast.server import create_app
from support.async_tests import async_test
from support.rest_api import (
    ODD,
    ODD_PATH,
    TOKENS,
    WRITER,
    auth_header,
    connect_app,
    expect_ok,
    expect_problem,
    fill_store,
)


@pytest.mark.parametrize("outside", ["", "/outer", "/gr\u00f6\u00dfe und %/mehr"])
@async_test
async def test_app_works_when_mounted_under_a_prefix(store, outside):
    async with Session.open(store, agent_id=ODD, session_id=ODD) as session:
        session.add_message("user", "hello")
    parent = FastAPI()
    parent.mount("/state", create_app(store, tokens=TOKENS))
    app = parent
    if outside:
        app = FastAPI()
        app.mount(outside, parent)
    api = connect_app(app, host="http://agents.example.com")
    below = f"{quote(outside)}/%73tate"
    for path in ("/", "/viewer/app.js", "/openapi.json", "/health/live", "/access"):
        assert (await api.get(below + path)).status_code == 200, path
    expect_problem(await api.get(f"{below}/agents"), 401)
    expect_problem(await api.get(f"{below}/viewer/nothing"), 404)
    writer = auth_header(WRITER)
    assert expect_ok(await api.get(f"{below}/agents", headers=writer))["agents"] == [
        {"agent_id": ODD}
    ]
    session = f"{below}/agents/{ODD_PATH}/sessions/{ODD_PATH}"
    assert expect_ok(await api.get(session, headers=writer))["session_id"] == ODD
    expect_ok(await api.post(f"{session}/fork", json={"session_id": "a/b"}, headers=writer), 201)
    expect_ok(await api.delete(f"{below}/agents/{ODD_PATH}/sessions/a%2Fb", headers=writer), 204)
    expect_problem(await api.get(f"{session}/nothing", headers=writer), 404)
    found = (await api.get(f"{below}/metrics", headers=writer)).text
    assert 'route="/agents/{agent_id}/sessions/{session_id}"' in found


@async_test
async def test_path_rewritten_by_an_outer_app_is_used(store):
    """Servers differ in how they report a path, and proxies and outer apps may shorten it."""
    await fill_store(store)
    inner = create_app(store)

    def connect_with(**changes):
        async def app(scope, receive, send):
            await inner({**scope, **changes}, receive, send)

        return connect_app(app)

    path = "/agents/research-bot/sessions"
    for api in (
        connect_with(path=path, raw_path=None),
        connect_with(path=path, raw_path=b"/elsewhere/agents"),
        connect_with(path=path, raw_path=b"/agents/research%2Dbot/sessions".replace(b"%2D", b"-")),
        connect_with(path=path, raw_path=path.encode(), root_path="/proxied"),
        connect_with(
            path=f"/proxied{path}", raw_path=f"/proxied{path}".encode(), root_path="/proxied"
        ),
    ):
        assert len(expect_ok(await api.get("/"))["sessions"]) == 1
    for odd in ("\udcff", "\u00e9", "a b", "%"):
        api = connect_with(path=f"/agents/{odd}/sessions", raw_path=None)
        assert (await api.get("/")).status_code == 404


@async_test
async def test_store_is_closed_with_the_app_that_owns_it(tmp_path):
    for owns in (False, True):
        store = holdfast.open_state_store(f"sqlite:///{tmp_path}/state.db")
        await fill_store(store) if not owns else None
        app = create_app(store, owns_store=owns)
        async with app.router.lifespan_context(app):
            expect_ok(await connect_app(app).get("/agents"))
        if owns:
            with pytest.raises(StateStoreError):
                await store.get("x")
        else:
            await store.get("x")
            await store.close()


def test_create_app_rejects_a_url():
    with pytest.raises(TypeError, match="open_state_store"):
        create_app("sqlite:///state.db")
