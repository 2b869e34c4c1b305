"""The app on a real server: streamed and slow bodies, disconnects, malformed requests."""

from __future__ import annotations

import json

import httpx
import pytest

import holdfast
from holdfast import Session
from holdfast.server import Limits
from support.async_tests import run_async
from support.http_server import LoggedServer, wait_until
from support.rest_api import READER, SES_1, TOKENS, auth_header, dump_store, fill_store

CLOSE = b"Host: 127.0.0.1\r\nConnection: close\r\n"
IMPORT = b"POST /agents/snapshot/restore HTTP/1.1\r\n"


def parse_status(response):
    """Return the status of a raw response."""
    return int(response.split(b" ", 2)[1])


def parse_body(response):
    """Return the body of a raw response."""
    return response.partition(b"\r\n\r\n")[2]


@pytest.fixture
def store():
    found = holdfast.open_state_store("memory://")
    run_async(fill_store(found))
    return found


@pytest.fixture
def large_store(store):
    async def add_messages():
        async with Session.open(store, agent_id="big", session_id="big") as session:
            for number in range(60):
                session.add_message("user", f"{number} " + "x" * 100_000)

    run_async(add_messages())
    return store


def test_large_document_is_streamed_in_both_directions(large_store):
    with LoggedServer(large_store) as server, httpx.Client(base_url=server.url, timeout=60) as http:
        with http.stream("GET", "/agents/big/sessions/big/document") as response:
            assert response.status_code == 200
            assert "content-length" not in response.headers
            parts = list(response.iter_bytes())
        assert len(parts) > 10
        document = b"".join(parts)
        assert len(json.loads(document)["state"]["messages"]) == 60
        response = http.post(
            "/agents/snapshot/restore", params={"session_id": "copy"}, content=iter(parts)
        )
        assert response.json()["messages_restored"] == 60
        assert http.get("/agents/big/sessions/copy").json()["message_count"] == 60


def test_client_that_hangs_up_does_no_harm(large_store):
    before = run_async(dump_store(large_store))
    with LoggedServer(large_store) as server:
        for _ in range(3):
            with server.connect() as connection:
                connection.sendall(b"GET /agents/big/sessions/big/document HTTP/1.1\r\n")
                connection.sendall(CLOSE + b"\r\n")
                connection.recv(1000)
            with server.connect() as connection:
                connection.sendall(IMPORT + CLOSE + b"Content-Length: 100000\r\n\r\n{")
            with server.connect() as connection:
                path = f"POST {SES_1}/restore HTTP/1.1\r\n".encode()
                kind = b"Content-Type: application/json\r\n"
                connection.sendall(path + CLOSE + kind + b"Content-Length: 1000\r\n\r\n{")
        wait_until(lambda: server.log.count("POST") >= 6)
        assert httpx.get(f"{server.url}/health/live").status_code == 200
    assert run_async(dump_store(large_store)) == before


def test_slow_or_large_body_is_rejected_and_the_connection_closed(store):
    limits = Limits(body_bytes=1000, seconds=0.3)
    with LoggedServer(store, limits=limits) as server:
        response = server.send(IMPORT + CLOSE + b"Content-Length: 100\r\n\r\n{")
        assert parse_status(response) == 408
        response = server.send(IMPORT + CLOSE + b"Content-Length: 1001\r\n\r\n")
        assert parse_status(response) == 413
        chunked = b"Transfer-Encoding: chunked\r\n\r\n"
        response = server.send(IMPORT + CLOSE + chunked, b"3e9\r\n" + b" " * 1001 + b"\r\n")
        assert parse_status(response) == 413
        # The connection is closed although the client did not ask for it.
        response = server.send(IMPORT + b"Host: 127.0.0.1\r\nContent-Length: 1001\r\n\r\n")
        assert parse_status(response) == 413
        assert b"still open" not in response
        assert json.loads(parse_body(response))["type"] == "urn:holdfast:too-large"


def test_body_of_a_get_request_is_ignored_within_the_limit(store):
    with LoggedServer(store, limits=Limits(body_bytes=1000)) as server:
        for path in (f"{SES_1}/document", f"{SES_1}/state", "/health/live", "/nothing"):
            head = f"GET {path} HTTP/1.1\r\n".encode() + CLOSE
            response = server.send(head + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001)
            assert parse_status(response) == 413
            response = server.send(head + b"Content-Length: 4\r\n\r\nxxxx")
            assert parse_status(response) in (200, 404)
            body = b"3e9\r\n" + b" " * 1001 + b"\r\n0\r\n\r\n"
            response = server.send(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
            assert parse_status(response) in (200, 404, 413)


def test_malformed_requests_do_no_harm(store):
    with LoggedServer(store) as server:
        for garbage in (
            b"\x00\x01\x02\r\n\r\n",
            b"GET\r\n\r\n",
            b"GET / HTTP/9.9\r\n\r\n",
            b"GET /agents/\xff\xfe/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -1\r\n\r\n",
            b"GET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        ):
            with server.connect() as connection:
                connection.sendall(garbage)
                connection.settimeout(1)
                connection.recv(65536)
        response = server.send(b"GET /nothing?\xff HTTP/1.1\r\n" + CLOSE + b"\r\n")
        assert parse_status(response) in (400, 404)
        response = server.send(b"GET /viewer/x HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n")
        assert parse_status(response) in (400, 404)
        response = server.send(b"GET /agents HTTP/1.0\r\n\r\n")
        assert parse_status(response) == 401
        assert httpx.get(f"{server.url}/health/live").status_code == 200


def test_connection_is_reused_for_many_requests(store):
    with LoggedServer(store, tokens=TOKENS) as server, httpx.Client(base_url=server.url) as http:
        for _ in range(5):
            assert http.get("/agents").status_code == 401
            assert http.post(f"{SES_1}/restore", json={"at": "0"}).status_code == 401
            assert http.get("/health/live").status_code == 200
            assert http.head("/health/live").status_code == 200
            assert http.head("/agents/ses_1/snapshot").status_code == 401
            assert http.head("/agents/ses_1/snapshot", headers=auth_header(READER)).content == b""
        assert "secret" not in server.log
