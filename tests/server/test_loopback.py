"""Pages of others: they may neither read nor write, whatever name they have for this machine."""

from __future__ import annotations

import httpx
import pytest
from fastapi.testclient import TestClient
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from holdfast.server import create_app
from holdfast.server.loopback import is_loopback
from support.async_tests import async_test
from support.rest_api import (
    READER,
    TOKENS,
    WRITER,
    S,
    bearer,
    client,
    client_of,
    filled,
    good,
    problem,
)
from support.running_server import Running

EVIL = "https://evil.example"
FRIEND = "https://agents.example.com"


# ------------------------------------------------------------------------- without tokens: here


@pytest.mark.parametrize(
    "address", ["203.0.113.7", "10.0.0.1", "192.168.1.2", "2001:db8::1", "0.0.0.0", "::", "x", ""]
)
@async_test
async def test_without_tokens_no_other_machine_is_answered(looking, address):
    api = looking(address=(address, 1234))
    for path in ("/agents", S, "/metrics"):
        tree = problem(await api.get(path), 401, "its own machine", kind="unauthorized")
        assert "--token" in tree["hint"]
    problem(await api.delete(S), 401)
    good(await api.get("/health/live"))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
@async_test
async def test_without_tokens_this_machine_is_answered(looking, address):
    api = looking(address=(address, 1234))
    for host in ("127.0.0.1:8000", "localhost", "LocalHost:80", "[::1]:8000", "[::1]", "127.0.0.2"):
        good(await api.get("/agents", headers={"Host": host}))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8000",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "evil.example:127.0.0.1",
        "127.0.0.1@evil.example",
        "",
        ":",
        ":80",
        "[",
        "[::1",
        "::1",
        "0.0.0.0",
        "10.0.0.1",
        "localhost/evil",
        "localhost, evil.example",
        "\xff",
    ],
)
@async_test
async def test_a_name_of_somebody_else_for_this_machine_is_not_answered(looking, host):
    """A page of evil.example whose name leads here (DNS rebinding) has its own name as the host."""
    api = looking()
    headers = {"Host": host.encode("latin-1")}
    problem(await api.get("/agents", headers=headers), 401)
    problem(await api.post(f"{S}/snapshots", headers=headers), 401)
    assert (await api.get("/viewer/nothing", headers=headers)).status_code == 404


@pytest.mark.parametrize(
    "name",
    [
        "Forwarded",
        "Via",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto",
        "X-Forwarded-Port",
        "X-Real-IP",
        "X-Client-IP",
        "True-Client-IP",
        "CF-Connecting-IP",
        "CF-Ray",
        "Fly-Client-IP",
        "X-Amzn-Trace-Id",
        "X-Envoy-External-Address",
        "X-Original-Host",
    ],
)
@async_test
async def test_without_tokens_what_a_proxy_forwards_is_refused_whatever_it_says(looking, name):
    api = looking()
    for value in ("203.0.113.7", "127.0.0.1", "localhost", "unknown", "", "testclient"):
        answered = await api.get("/agents", headers={name: value})
        tree = problem(answered, 401, name.lower(), "a proxy forwarded it", kind="unauthorized")
        assert "--token" in tree["hint"]
    problem(await api.post(f"{S}/snapshots", headers={name: "127.0.0.1"}), 401)


@async_test
async def test_with_tokens_a_proxy_may_forward(store):
    api = client(store, address=("203.0.113.7", 1), tokens=TOKENS, token=READER)
    headers = {"X-Forwarded-For": "198.51.100.1", "Host": "agents.example.com", "Via": "1.1 proxy"}
    good(await api.get("/agents", headers=headers))


@async_test
async def test_without_tokens_a_request_without_an_address_is_refused(looking):
    """As it is on a Unix socket, where a proxy is in front."""
    problem(await looking(address=None).get("/agents"), 401, "an unknown address")


def test_without_tokens_what_nginx_forwards_by_default_is_refused(store):
    """It connects from loopback, sends its upstream as the host, and speaks HTTP/1.0."""
    with Running(store) as server:
        for more in (b"", b"User-Agent: curl/8.5.0\r\nAccept: */*\r\n"):
            asked = b"GET /agents HTTP/1.0\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n%s\r\n"
            answer = server.say(asked % (server.port, more))
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"HTTP/1.0" in answer
        assert httpx.get(f"{server.url}/agents").status_code == 200


# ---------------------------------------------------------------------- without tokens: in tests


def test_the_test_client_of_fastapi_works_as_it_comes(store):
    with TestClient(create_app(store)) as api:
        assert api.get("/agents").json() == {"agents": [], "next_cursor": None}
    with TestClient(create_app(store), base_url="http://localhost:8000") as api:
        assert api.get("/agents").status_code == 200


def test_the_test_client_is_refused_what_others_are(store):
    api = TestClient(create_app(store))
    for headers in (
        {"Host": "evil.example"},
        {"X-Forwarded-For": "testclient"},
        {"Via": "1.1 testserver"},
    ):
        assert api.get("/agents", headers=headers).status_code == 401
    assert (
        TestClient(create_app(store), client=("203.0.113.7", 1)).get("/agents").status_code == 401
    )


@async_test
async def test_nobody_outside_passes_for_the_test_client(store):
    """Also where uvicorn takes the client from a header, as it does by default."""
    app = create_app(store)
    for asked in (app, ProxyHeadersMiddleware(app, trusted_hosts="127.0.0.1")):
        for headers in (
            {"Host": "testserver"},
            {"Host": "testclient"},
            {"X-Forwarded-For": "testclient", "Host": "testserver"},
            {"X-Forwarded-For": "testclient"},
            {"Forwarded": "for=testclient"},
        ):
            problem(await client_of(asked).get("/agents", headers=headers), 401)


def test_names_of_this_machine():
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.255.0.1", "::1", "[::ffff:127.0.0.1]"):
        assert is_loopback(host)
    for host in ("", "0.0.0.0", "::", "128.0.0.1", "example.com", "127.1", "localhost.", "1"):
        assert not is_loopback(host)


# ----------------------------------------------------------------------- writes of other pages


@pytest.mark.parametrize(
    "origin",
    [
        EVIL,
        "null",
        "",
        "http://127.0.0.1:9999",
        "http://127.0.0.1.evil.example",
        "http://evil.example/127.0.0.1",
        "http://127.0.0.1@evil.example",
        "http://[",
        "127.0.0.1",
        "\xff",
    ],
)
@async_test
async def test_a_page_of_another_origin_writes_nothing(looking, origin):
    api = looking()
    headers = {"Origin": origin.encode("latin-1"), "Content-Type": "text/plain"}
    document = (await api.get(f"{S}/document")).content
    for method, path, body in (
        ("POST", f"{S}/snapshots", b""),
        ("POST", f"{S}/fork", b""),
        ("POST", "/agents/snapshot/restore?session_id=new", document),
        ("DELETE", S, b""),
    ):
        answered = await api.request(method, path, content=body, headers=headers)
        problem(answered, 403, "page", kind="forbidden")
        assert "access-control-allow-origin" not in answered.headers


@async_test
async def test_the_viewer_itself_writes(store, api):
    await filled(store)
    for host in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000"):
        headers = {"Host": host, "Origin": f"http://{host}"}
        good(await api.post(f"{S}/snapshots", headers=headers), 201)


# ------------------------------------------------------------------------------------------- CORS


@async_test
async def test_no_page_of_others_may_read_unless_it_was_asked_for(store, api):
    await filled(store)
    for path in ("/agents", S, "/nothing", "/", "/openapi.json"):
        answered = await api.get(path, headers={"Origin": EVIL})
        assert not [name for name in answered.headers if name.startswith("access-control")]
    asking = {"Origin": EVIL, "Access-Control-Request-Method": "POST"}
    answered = await api.options(f"{S}/fork", headers=asking)
    problem(answered, 405)
    assert not [name for name in answered.headers if name.startswith("access-control")]


@async_test
async def test_a_page_that_was_named_may_read_and_write_with_a_token(store):
    await filled(store)
    api = client(store, tokens=TOKENS, cors_origins=[FRIEND])
    asking = {
        "Origin": FRIEND,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type",
    }
    answered = await api.options(f"{S}/fork", headers=asking)
    assert answered.status_code == 200
    assert answered.headers["access-control-allow-origin"] == FRIEND
    friend = {"Origin": FRIEND}
    refused = await api.get("/agents", headers=friend)
    problem(refused, 401)
    assert refused.headers["access-control-allow-origin"] == FRIEND
    answered = await api.get("/agents", headers={**friend, **bearer(READER)})
    assert answered.headers["access-control-allow-origin"] == FRIEND
    assert "access-control-allow-credentials" not in answered.headers
    good(await api.post(f"{S}/fork", headers={**friend, **bearer(WRITER)}), 201)
    answered = await api.get("/agents", headers={"Origin": EVIL, **bearer(READER)})
    assert "access-control-allow-origin" not in answered.headers
    problem(await api.post(f"{S}/fork", headers={"Origin": EVIL, **bearer(WRITER)}), 403)
    answered = await api.options(f"{S}/fork", headers={**asking, "Origin": EVIL})
    assert answered.headers.get("access-control-allow-origin") != EVIL


@async_test
async def test_an_option_request_tells_nothing_without_a_token(store):
    await filled(store)
    for origins in ([], [FRIEND]):
        api = client(store, tokens=TOKENS, cors_origins=origins)
        answered = await api.options(f"{S}/state")
        assert answered.status_code in (401, 405)
        assert "Compare" not in answered.text


@pytest.mark.parametrize(
    "origin", ["*", "null", "agents.example.com", "https://a.example/", "ftp://x"]
)
def test_what_is_no_origin_is_refused(store, origin):
    with pytest.raises(ValueError, match="origin"):
        create_app(store, cors_origins=[origin])


def test_origins_are_a_list(store):
    with pytest.raises(TypeError, match="list of origins"):
        create_app(store, cors_origins=FRIEND)


# ------------------------------------------------------------------------------------------ pages


@async_test
async def test_the_pages_run_no_script_of_others_and_none_of_their_own_text(api):
    for path in ("/", "/docs"):
        answered = await api.get(path)
        assert answered.headers["content-type"] == "text/html; charset=utf-8"
        page = answered.text
        assert "http://" not in page.replace("http://www.w3.org", "")
        assert "https://" not in page
        assert "onclick" not in page
        assert "<script>" not in page
        assert "style=" not in page
        tag = answered.headers["etag"]
        again = await api.get(path, headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
    answered = await api.get("/viewer/app.js")
    assert answered.headers["content-type"] == "text/javascript; charset=utf-8"


@async_test
async def test_what_agents_said_is_never_sent_as_a_page(store, api):
    from holdfast import Session

    hostile = "<script>alert(1)</script>"
    async with Session.open(store, agent_id=hostile, session_id=hostile) as session:
        session.add_message("user", hostile)
    path = "%3Cscript%3Ealert(1)%3C%2Fscript%3E"
    for url in (
        "/agents",
        f"/agents/{path}/sessions/{path}/state",
        f"/agents/{path}/sessions/{path}/document",
        f"/agents/x{path}/sessions",
    ):
        answered = await api.get(url)
        assert "script" in answered.text
        assert answered.headers["content-type"] in ("application/json", "application/problem+json")
