"""The server over streamable HTTP: real clients, tokens and limits."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
from contextlib import asynccontextmanager
from types import SimpleNamespace

import httpx
import pytest
from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from starlette.applications import Starlette
from starlette.routing import Mount

import holdfast
from holdfast.mcp_server import Access
from holdfast.mcp_server.access import AccessError
from holdfast.mcp_server.http import create_mcp_app, make_access_reader
from holdfast.server import Limits
from support.async_tests import async_test
from support.http_server import serve_app
from support.mcp_clients import COMMAND, Agent, program_environment
from support.rest_api import ANN_ONLY, READER, TOKENS, WRITER

HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


def make_request(tool="list_checkpoints", **arguments):
    """Return the body of a call."""
    params = {"name": tool, "arguments": {"agent": "ann", **arguments}}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server with tokens."""
    url = f"sqlite:///{tmp_path_factory.mktemp('mcp')}/state.db"

    def make_app():
        store = holdfast.open_state_store(url)
        origins = ["https://agents.example.com"]
        return create_mcp_app(store, tokens=TOKENS, cors_origins=origins, owns_store=True)

    with serve_app(make_app) as running:
        yield f"{running.url}/mcp"


@pytest.fixture(scope="module")
def open_server():
    """A server without tokens, for this machine."""
    store = holdfast.open_state_store("memory:")
    limits = Limits(seconds=5)
    with serve_app(lambda: create_mcp_app(store, limits=limits, owns_store=True)) as running:
        yield f"{running.url}/mcp"


@asynccontextmanager
async def connect(url, token, mode="auto"):
    """Connect a real client with a token."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        create_mcp_http_client(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield Agent(client)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
@async_test
async def test_all_tools_and_resources(server, mode):
    async with connect(server, WRITER, mode) as agent:
        first = await agent.call(
            "save_checkpoint", agent="bob", session=mode, values={"n": 1}, expected_seq=0
        )
        await agent.call(
            "save_checkpoint",
            agent="bob",
            session=mode,
            messages=[{"role": "user", "content": "Hello"}],
            expected_seq=first["seq"],
        )
        assert (
            len((await agent.call("list_checkpoints", agent="bob", session=mode))["checkpoints"])
            == 2
        )
        assert (await agent.call("diff", agent="bob", session=mode, from_=first["snapshot"]))[
            "added"
        ]
        assert (await agent.call("search", agent="bob", query="hello"))["matches"]
        fork = await agent.call("fork", agent="bob", session=mode, new_session=f"{mode} fork")
        assert fork["message_count"] == 1
        restored = await agent.call("restore", agent="bob", session=mode, to=first["snapshot"])
        assert restored["message_count"] == 0
        assert (await agent.read(restored["uri"]))["values"] == {"n": 1}
        names = [each.name for each in (await agent.client.list_resources()).resources]
        assert f"bob/{mode}" in names


@async_test
async def test_reading_tokens_read_and_do_not_write(server):
    async with connect(server, WRITER) as agent:
        saved = await agent.call("save_checkpoint", agent="ann", session="s", values={"n": 1})
    async with connect(server, READER) as agent:
        names = [tool.name for tool in (await agent.client.list_tools()).tools]
        assert names == ["list_checkpoints", "diff", "search"]
        assert (await agent.call("list_checkpoints", agent="ann", session="s"))["checkpoints"]
        assert (await agent.read(saved["uri"]))["values"] == {"n": 1}
        for tool, more in (("save_checkpoint", {}), ("restore", {"to": 1}), ("fork", {})):
            error = await agent.fail(tool, agent="ann", session="s", **more)
            assert f"{tool} is not allowed: token" in error
            assert error.endswith("is read-only; use a token with write scope")
        listed = await agent.call("list_checkpoints", agent="ann", session="s")
        assert listed["head_seq"] == saved["seq"]


@async_test
async def test_tokens_for_some_agents_cover_no_others(server):
    async with connect(server, WRITER) as agent:
        for name in ("ann", "bob"):
            await agent.call("save_checkpoint", agent=name, session=f"only {name}")
    async with connect(server, ANN_ONLY) as agent:
        await agent.call("save_checkpoint", agent="ann", session="only ann")
        error = await agent.fail("list_checkpoints", agent="bob")
        assert "does not cover agent 'bob'; use ann" in error
        names = [each.name for each in (await agent.client.list_resources()).resources]
        assert all(name.startswith("ann/") for name in names)
        assert names


@pytest.mark.parametrize("header", [None, "Bearer wrong-wrong-wrong-wrong", f"Basic {WRITER}"])
def test_requests_without_a_valid_token_are_refused(server, header):
    headers = HEADERS if header is None else HEADERS | {"authorization": header}
    response = httpx.post(server, headers=headers, json=make_request())
    assert response.status_code == 401
    assert response.headers["www-authenticate"].startswith("Bearer")
    assert response.json()["detail"] == "a valid token is required"


@async_test
async def test_client_with_a_wrong_token_fails(server):
    with pytest.raises(BaseException) as caught:
        async with connect(server, "wrong-wrong-wrong-wrong", "legacy") as agent:
            await agent.client.list_tools()
    assert "Traceback" not in str(caught.value)


def test_every_request_stands_alone(server):
    """There is no session in the server: a call needs no handshake, and any process answers it."""
    headers = HEADERS | {"authorization": f"Bearer {WRITER}"}
    body = make_request("save_checkpoint", session="alone")
    response = httpx.post(server, headers=headers, json=body)
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    assert "mcp-session-id" not in response.headers
    assert response.json()["result"]["structuredContent"]["session"] == "alone"


def test_invalid_requests_are_refused(server):
    headers = HEADERS | {"authorization": f"Bearer {WRITER}"}
    for method in ("GET", "DELETE", "PUT"):
        assert httpx.request(method, server, headers=headers).status_code == 405
    assert httpx.post(f"{server}/other", headers=headers, json={}).status_code == 404
    large = httpx.post(server, headers=headers, content=b"x" * (1 << 20) + b"x")
    assert large.status_code == 413
    for content in (b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000):
        response = httpx.post(server, headers=headers, content=content)
        assert 400 <= response.status_code < 500, content[:10]
        assert "Traceback" not in response.text


def test_pages_of_other_origins_are_refused(server):
    headers = HEADERS | {"authorization": f"Bearer {WRITER}"}
    body = make_request()
    evil = httpx.post(server, headers=headers | {"origin": "https://evil.example"}, json=body)
    assert evil.status_code == 403
    allowed = {"origin": "https://agents.example.com"}
    response = httpx.post(server, headers=headers | allowed, json=body)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == allowed["origin"]
    preflight = {**allowed, "access-control-request-method": "POST"}
    assert httpx.options(server, headers=preflight).status_code == 200


def test_without_tokens_only_this_machine_is_served(open_server):
    body = make_request("save_checkpoint", session="local")
    assert httpx.post(open_server, headers=HEADERS, json=body).status_code == 200
    for header in ({"host": "evil.example"}, {"x-forwarded-for": "203.0.113.7"}):
        response = httpx.post(open_server, headers=HEADERS | header, json=body)
        assert response.status_code == 401
        assert "answers local requests only" in response.json()["detail"]


@async_test
async def test_concurrent_clients_lose_nothing(open_server):
    async with connect(open_server, None) as one, connect(open_server, None) as two:

        async def save_many(agent, name):
            for n in range(15):
                message = {"role": name, "content": n}
                await agent.call("save_checkpoint", agent="a", session="s", messages=[message])

        await asyncio.gather(save_many(one, "one"), save_many(two, "two"))
        tree = await one.read("holdfast://agents/a/sessions/s")
        for name in ("one", "two"):
            mine = [each["message"] for each in tree["messages"]]
            assert [each["content"] for each in mine if each["role"] == name] == list(range(15))


@async_test
async def test_the_app_can_be_mounted():
    mcp_app = create_mcp_app(holdfast.open_state_store("memory:"), owns_store=True)
    app = Starlette(routes=[Mount("/holdfast", mcp_app)])
    transport = httpx.ASGITransport(app=app, client=("127.0.0.1", 1234))
    async with (
        mcp_app.router.lifespan_context(mcp_app),
        httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http,
    ):
        body = make_request("save_checkpoint", session="mounted")
        response = await http.post("/holdfast/mcp", headers=HEADERS, json=body)
        assert response.json()["result"]["structuredContent"]["session"] == "mounted"
        assert (await http.post("/mcp", headers=HEADERS, json=body)).status_code == 404


def test_the_program_serves_until_it_is_stopped(tmp_path):
    command = [*COMMAND, "--http", "--port", "0", "--store", f"sqlite:///{tmp_path}/state.db"]
    environment = program_environment() | {"HOLDFAST_TOKEN": WRITER}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            url = re.search(r"MCP server at (\S+/mcp);", process.stderr.readline())[1]
            headers = HEADERS | {"authorization": f"Bearer {WRITER}"}
            body = make_request("save_checkpoint", session="s")
            assert httpx.post(url, headers=headers, json=body).status_code == 200
            assert httpx.post(url, headers=HEADERS, json=body).status_code == 401
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0
            log = process.stderr.read()
            assert "POST /mcp 200" in log
            assert "Traceback" not in log
            assert WRITER not in log
        finally:
            process.kill()


def test_the_server_limits_what_tokens_allow():
    authority = SimpleNamespace(scope="write", agents=frozenset(["ann", "bob"]), name="t")
    request = SimpleNamespace(scope={"holdfast.authority": authority})
    read = make_access_reader(Access(agents=frozenset(["bob", "eve"])))
    access = read(SimpleNamespace(request=request))
    assert (access.can_write, access.agents) == (True, {"bob"})
    closed = make_access_reader(Access(can_write=False))(SimpleNamespace(request=request))
    assert (closed.can_write, closed.agents) == (False, {"ann", "bob"})
    with pytest.raises(AccessError, match="no token"):
        read(SimpleNamespace(request=None))


def test_responses_have_security_headers(open_server):
    response = httpx.post(open_server, headers=HEADERS, json=make_request())
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert json.loads(response.text)["id"] == 1
