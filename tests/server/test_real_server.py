"""The app on a real server: bodies in pieces, slow ones, and those who hang up."""

from __future__ import annotations

import json

import httpx
import pytest

import holdfast
from holdfast import Session
from holdfast.server import Limits
from support.async_tests import run_async
from support.rest_api import READER, TOKENS, S, bearer, entries, filled
from support.running_server import Running, until

CLOSE = b"Host: 127.0.0.1\r\nConnection: close\r\n"
IMPORT = b"POST /agents/snapshot/restore HTTP/1.1\r\n"


def status(answer):
    """The status of an answer as it came over the wire."""
    return int(answer.split(b" ", 2)[1])


def content(answer):
    """The body of an answer as it came over the wire."""
    return answer.partition(b"\r\n\r\n")[2]


@pytest.fixture
def store():
    found = holdfast.open_state_store("memory://")
    run_async(filled(found))
    return found


@pytest.fixture
def large(store):
    async def grown():
        async with Session.open(store, agent_id="big", session_id="big") as session:
            for number in range(60):
                session.add_message("user", f"{number} " + "x" * 100_000)

    run_async(grown())
    return store


def test_a_large_document_leaves_and_comes_back_in_pieces(large):
    with Running(large) as server, httpx.Client(base_url=server.url) as http:
        with http.stream("GET", "/agents/big/sessions/big/document") as answered:
            assert answered.status_code == 200
            assert "content-length" not in answered.headers
            parts = list(answered.iter_bytes())
        assert len(parts) > 10
        document = b"".join(parts)
        assert len(json.loads(document)["state"]["messages"]) == 60
        answered = http.post(
            "/agents/snapshot/restore", params={"session_id": "copy"}, content=iter(parts)
        )
        assert answered.json()["messages_restored"] == 60
        assert http.get("/agents/big/sessions/copy").json()["message_count"] == 60


def test_who_hangs_up_in_the_middle_of_an_answer_or_of_a_body_breaks_nothing(large):
    before = run_async(entries(large))
    with Running(large) as server:
        for _ in range(3):
            with server.connect() as connection:
                connection.sendall(b"GET /agents/big/sessions/big/document HTTP/1.1\r\n")
                connection.sendall(CLOSE + b"\r\n")
                connection.recv(1000)
            with server.connect() as connection:
                connection.sendall(IMPORT + CLOSE + b"Content-Length: 100000\r\n\r\n{")
            with server.connect() as connection:
                path = f"POST {S}/restore HTTP/1.1\r\n".encode()
                kind = b"Content-Type: application/json\r\n"
                connection.sendall(path + CLOSE + kind + b"Content-Length: 1000\r\n\r\n{")
        until(lambda: server.log.count("POST") >= 6)
        assert httpx.get(f"{server.url}/health/live").status_code == 200
    assert run_async(entries(large)) == before


def test_a_slow_body_and_a_large_one_are_refused_on_the_wire(store):
    limits = Limits(body_bytes=1000, seconds=0.3)
    with Running(store, limits=limits) as server:
        answer = server.say(IMPORT + CLOSE + b"Content-Length: 100\r\n\r\n{")
        assert status(answer) == 408
        answer = server.say(IMPORT + CLOSE + b"Content-Length: 1001\r\n\r\n")
        assert status(answer) == 413
        chunked = b"Transfer-Encoding: chunked\r\n\r\n"
        answer = server.say(IMPORT + CLOSE + chunked, b"3e9\r\n" + b" " * 1001 + b"\r\n")
        assert status(answer) == 413
        # The connection is closed, though the other side would have kept it open.
        answer = server.say(IMPORT + b"Host: 127.0.0.1\r\nContent-Length: 1001\r\n\r\n")
        assert status(answer) == 413
        assert b"stays open" not in answer
        assert json.loads(content(answer))["type"] == "urn:holdfast:too-large"


def test_a_body_that_nobody_asked_for_does_no_harm(store):
    with Running(store, limits=Limits(body_bytes=1000)) as server:
        for path in (f"{S}/document", f"{S}/state", "/health/live", "/nothing"):
            head = f"GET {path} HTTP/1.1\r\n".encode() + CLOSE
            answer = server.say(head + b"Content-Length: 1001\r\n\r\n" + b"x" * 1001)
            assert status(answer) == 413
            answer = server.say(head + b"Content-Length: 4\r\n\r\nxxxx")
            assert status(answer) in (200, 404)
            body = b"3e9\r\n" + b" " * 1001 + b"\r\n0\r\n\r\n"
            answer = server.say(head + b"Transfer-Encoding: chunked\r\n\r\n" + body)
            assert status(answer) in (200, 404, 413)


def test_bytes_that_are_no_request_break_nothing(store):
    with Running(store) as server:
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
        answer = server.say(b"GET /nothing?\xff HTTP/1.1\r\n" + CLOSE + b"\r\n")
        assert status(answer) in (400, 404)
        answer = server.say(b"GET /viewer/x HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n")
        assert status(answer) in (400, 404)
        answer = server.say(b"GET /agents HTTP/1.0\r\n\r\n")
        assert status(answer) == 401
        assert httpx.get(f"{server.url}/health/live").status_code == 200


def test_one_connection_takes_many_requests_with_and_without_bodies(store):
    with Running(store, tokens=TOKENS) as server, httpx.Client(base_url=server.url) as http:
        for _ in range(5):
            assert http.get("/agents").status_code == 401
            assert http.post(f"{S}/restore", json={"at": "0"}).status_code == 401
            assert http.get("/health/live").status_code == 200
            assert http.head("/health/live").status_code == 200
            assert http.head("/agents/ses_1/snapshot").status_code == 401
            assert http.head("/agents/ses_1/snapshot", headers=bearer(READER)).content == b""
        assert "secret" not in server.log
