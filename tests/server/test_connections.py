"""Connections are bounded: in number, and in how long they may wait for their client."""

from __future__ import annotations

import logging
import socket
import time

import httpx
import pytest

from holdfast import BlockingSession
from holdfast.server import Limits, connections
from holdfast.server.log_rate import RateLimit
from support.running_server import Running, received, until

HEAD = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
QUICK = Limits(seconds=0.5)


def drip(connection, data, pause=0.05):
    """Send byte after byte until the other side has had enough; the seconds that took."""
    started = time.monotonic()
    try:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(pause)
    except OSError:
        pass
    return time.monotonic() - started


# -------------------------------------------------------------------------------------------- head


def test_a_head_that_comes_slowly_is_given_up(store):
    with Running(store, limits=QUICK) as server, server.connect() as connection:
        assert drip(connection, HEAD + b"X-More: " + b"x" * 1000) < 5
        answer = received(connection) if connection.fileno() >= 0 else b""
        assert b"<and it stays open>" not in answer
        until(lambda: "did not arrive within 0.5 s" in server.log)


def test_a_client_that_stops_in_a_head_is_told_that_it_is_late(store):
    with Running(store, limits=QUICK) as server:
        started = time.monotonic()
        late = [server.connect() for _ in range(4)]
        for connection, part in zip(late, (b"", b"GET", HEAD, HEAD + b"X-Half: "), strict=True):
            connection.sendall(part)
        for connection in late:
            with connection:
                answer = received(connection)
            assert time.monotonic() - started < 5
            assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"urn:holdfast:too-slow" in answer
            assert b"did not arrive within 0.5 s" in answer


def test_the_next_request_of_a_connection_has_a_deadline_of_its_own(store):
    with Running(store, limits=Limits(seconds=1)) as server, server.connect() as connection:
        for _ in range(4):
            time.sleep(0.4)
            connection.sendall(HEAD + b"\r\n")
            found = b""
            while not found.endswith(b'{"status":"live"}'):
                found += connection.recv(65536)
            assert found.startswith(b"HTTP/1.1 200")
        started = time.monotonic()
        connection.sendall(HEAD)
        assert b"HTTP/1.1 408" in received(connection)
        assert 0.5 < time.monotonic() - started < 5


def test_a_pipelined_head_that_is_not_completed_is_given_up(store):
    with Running(store, limits=QUICK) as server:
        server._server.config.timeout_keep_alive = 1
        answer = server.say(HEAD + b"\r\n" + HEAD)
        assert answer.startswith(b"HTTP/1.1 200")
        assert b"<and it stays open>" not in answer


def test_a_slow_body_is_not_a_slow_head(store):
    with Running(store, limits=Limits(seconds=2)) as server, server.connect() as connection:
        head = b"POST /agents/a/sessions/s/restore HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        connection.sendall(head + b"Content-Length: 10\r\n\r\n")
        drip(connection, b'{"at":"1"}', pause=0.1)
        assert connection.recv(65536).startswith(b"HTTP/1.1 404")


# ------------------------------------------------------------------------------------------ number


def test_connections_without_a_request_make_room_for_others(store, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 5)
    with Running(store) as server:
        held = [server.connect() for _ in range(20)]
        for connection in held[-5:]:
            connection.sendall(HEAD)
        started = time.monotonic()
        for _ in range(10):
            assert httpx.get(f"{server.url}/health/live").status_code == 200
        assert time.monotonic() - started < 5
        assert len(server._server.server_state.connections) <= 5
        for connection in held:
            connection.close()


def test_where_all_connections_are_busy_another_one_is_refused(store, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    post = b"POST /agents/snapshot/restore HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    with Running(store) as server:
        busy = [server.connect() for _ in range(3)]
        for connection in busy:
            connection.sendall(post)
        until(lambda: len(server._server.server_state.tasks) == 3)
        answer = server.say(b"")
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"3 connections already" in answer
        for connection in busy:
            connection.close()
        until(lambda: not server._server.server_state.tasks)
        assert httpx.get(f"{server.url}/health/live").status_code == 200


def test_hundreds_of_slow_clients_do_not_keep_the_server_from_answering(store):
    with Running(store, limits=Limits(seconds=3)) as server:
        held = []
        for _ in range(300):
            held.append(server.connect())
            held[-1].sendall(b"GET / HTTP/1.1\r\nX: ")
        assert httpx.get(f"{server.url}/health/live", timeout=10).status_code == 200
        until(lambda: not server._server.server_state.connections, seconds=20)
        for connection in held:
            connection.close()


# ------------------------------------------------------------------------------------------ answer


def test_an_answer_that_nobody_reads_is_given_up(store):
    with BlockingSession.open(store, agent_id="a", session_id="s") as session:
        session.add_message("user", "x" * 30_000_000)
    with Running(store, limits=Limits(seconds=2)) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /agents/s/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        until(lambda: "an answer was given up" in server.log)
        until(lambda: not server._server.server_state.connections)
        until(lambda: not server._server.server_state.tasks)
        connection.close()


def test_an_answer_that_is_read_slowly_comes_whole(store):
    with BlockingSession.open(store, agent_id="a", session_id="s") as session:
        session.add_message("user", "x" * 3_000_000)
    with Running(store, limits=Limits(seconds=1)) as server, server.connect() as connection:
        head = b"GET /agents/s/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(head)
        found = bytearray()
        while part := connection.recv(65536):
            found += part
            time.sleep(0.02)
        assert len(found) > 3_000_000
        assert found.endswith(b"}\n\r\n0\r\n\r\n")


# --------------------------------------------------------------------------------------------- log


def test_lines_that_say_the_same_are_limited_and_counted():
    limit = RateLimit(most=3, seconds=0.2)

    def logged(text, *arguments, name="uvicorn.error"):
        record = logging.LogRecord(name, logging.WARNING, "", 0, text, arguments, None)
        return limit.filter(record) and record.getMessage()

    assert [logged("broken by %s", each) for each in "abcde"] == [
        "broken by a",
        "broken by b",
        "broken by c",
        False,
        False,
    ]
    assert logged("another") == "another"
    assert logged("broken by %s", "f", name="holdfast") == "broken by f"
    assert [logged("GET", name="holdfast.access") for _ in range(9)] == ["GET"] * 9
    time.sleep(0.25)
    assert logged("broken by %s", "g") == "broken by g (and 2 lines like this before)"


@pytest.mark.parametrize("text", [b"garbage\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n"])
def test_garbage_is_answered_and_the_connection_closed(store, text):
    with Running(store) as server:
        answer = server.say(text)
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"<and it stays open>" not in answer


def test_a_request_to_upgrade_is_answered_as_what_it_is(store):
    upgrade = b"Connection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    with Running(store) as server:
        assert server.say(HEAD + upgrade + b"\r\n").startswith(b"HTTP/1.1 200")
