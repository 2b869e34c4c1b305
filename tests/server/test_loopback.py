"""A server without tokens serves local requests only."""

from __future__ import annotations

import httpx
import pytest
from fastapi.testclient import TestClient
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from holdfast.server import create_app
from holdfast.server.loopback import is_loopback
from support.async_tests import async_test
from support.http_server import LoggedServer
from support.rest_api import (
    READER,
    SES_1,
    TOKENS,
    connect,
    connect_app,
    expect_ok,
    expect_problem,
)

# --------------------------------------------------------------------------------- real clients


@pytest.mark.parametrize(
    "address", ["203.0.113.7", "10.0.0.1", "192.168.1.2", "2001:db8::1", "0.0.0.0", "::", "x", ""]
)
@async_test
async def test_remote_address_gets_401_without_tokens(connect_readonly, address):
    api = connect_readonly(address=(address, 1234))
    for path in ("/agents", SES_1, "/metrics"):
        tree = expect_problem(await api.get(path), 401, "local requests only", kind="unauthorized")
        assert "--token" in tree["hint"]
    expect_problem(await api.delete(SES_1), 401)
    expect_ok(await api.get("/health/live"))


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
@async_test
async def test_loopback_address_is_served_without_tokens(connect_readonly, address):
    api = connect_readonly(address=(address, 1234))
    for host in ("127.0.0.1:8000", "localhost", "LocalHost:80", "[::1]:8000", "[::1]", "127.0.0.2"):
        expect_ok(await api.get("/agents", headers={"Host": host}))


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
async def test_unknown_host_header_gets_401_without_tokens(connect_readonly, host):
    """In DNS rebinding, the page of evil.example sends its own name as the host."""
    api = connect_readonly()
    headers = {"Host": host.encode("latin-1")}
    expect_problem(await api.get("/agents", headers=headers), 401)
    expect_problem(await api.post(f"{SES_1}/snapshots", headers=headers), 401)
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
async def test_forwarding_header_gets_401_without_tokens(connect_readonly, name):
    api = connect_readonly()
    for value in ("203.0.113.7", "127.0.0.1", "localhost", "unknown", "", "testclient"):
        response = await api.get("/agents", headers={name: value})
        tree = expect_problem(
            response, 401, name.lower(), "a proxy forwarded it", kind="unauthorized"
        )
        assert "--token" in tree["hint"]
    expect_problem(await api.post(f"{SES_1}/snapshots", headers={name: "127.0.0.1"}), 401)


@async_test
async def test_forwarded_request_with_a_token_is_served(store):
    api = connect(store, address=("203.0.113.7", 1), tokens=TOKENS, token=READER)
    headers = {"X-Forwarded-For": "198.51.100.1", "Host": "agents.example.com", "Via": "1.1 proxy"}
    expect_ok(await api.get("/agents", headers=headers))


@async_test
async def test_request_without_a_client_address_gets_401_without_tokens(connect_readonly):
    """As on a Unix socket behind a proxy."""
    expect_problem(await connect_readonly(address=None).get("/agents"), 401, "an unknown address")


def test_http_1_0_as_sent_by_nginx_gets_401_without_tokens(store):
    """nginx connects from loopback and sends its upstream as the host."""
    with LoggedServer(store) as server:
        for more in (b"", b"User-Agent: curl/8.5.0\r\nAccept: */*\r\n"):
            request = b"GET /agents HTTP/1.0\r\nHost: 127.0.0.1:%d\r\nConnection: close\r\n%s\r\n"
            response = server.send(request % (server.port, more))
            assert response.startswith(b"HTTP/1.1 401 ")
            assert b"HTTP/1.0" in response
        assert httpx.get(f"{server.url}/agents").status_code == 200


# -------------------------------------------------------------------------------- test clients


def test_fastapi_test_client_needs_no_options(store):
    with TestClient(create_app(store)) as api:
        assert api.get("/agents").json() == {"agents": [], "next_cursor": None}
    with TestClient(create_app(store), base_url="http://localhost:8000") as api:
        assert api.get("/agents").status_code == 200


def test_fastapi_test_client_obeys_the_same_rules(store):
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
async def test_remote_client_cannot_pose_as_the_test_client(store):
    """Even if uvicorn takes the client from a header, as it does by default."""
    app = create_app(store)
    for served in (app, ProxyHeadersMiddleware(app, trusted_hosts="127.0.0.1")):
        for headers in (
            {"Host": "testserver"},
            {"Host": "testclient"},
            {"X-Forwarded-For": "testclient", "Host": "testserver"},
            {"X-Forwarded-For": "testclient"},
            {"Forwarded": "for=testclient"},
        ):
            expect_problem(await connect_app(served).get("/agents", headers=headers), 401)


def test_is_loopback_recognizes_local_names():
    for host in ("localhost", "LOCALHOST", "127.0.0.1", "127.255.0.1", "::1", "[::ffff:127.0.0.1]"):
        assert is_loopback(host)
    for host in ("", "0.0.0.0", "::", "128.0.0.1", "example.com", "127.1", "localhost.", "1"):
        assert not is_loopback(host)
