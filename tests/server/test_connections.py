"""Connections are bounded in number and in how long they wait for their client."""

from __future__ import annotations

import logging
import socket
import time

import httpx
import pytest

from holdfast import BlockingSession
from holdfast.server import Limits, connections
from holdfast.server.log_rate import RateLimit
from support.http_server import LoggedServer, read_until_closed, wait_until

HEAD = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
QUICK = Limits(seconds=0.5)


def send_slowly(connection, data, pause=0.05):
    """Send data byte by byte until the connection is closed; return the seconds that took."""
    started = time.monotonic()
    try:
        for byte in data:
            connection.sendall(bytes([byte]))
            time.sleep(pause)
    except OSError:
        pass
    return time.monotonic() - started


# -------------------------------------------------------------------------------------------- head


def test_slow_request_head_is_cut_off(store):
    with LoggedServer(store, limits=QUICK) as server, server.connect() as connection:
        assert send_slowly(connection, HEAD + b"X-More: " + b"x" * 1000) < 5
        response = read_until_closed(connection) if connection.fileno() >= 0 else b""
        assert b"<still open>" not in response
        wait_until(lambda: "did not arrive within 0.5 s" in server.log)


def test_incomplete_request_head_gets_408(store):
    with LoggedServer(store, limits=QUICK) as server:
        started = time.monotonic()
        late = [server.connect() for _ in range(4)]
        for connection, part in zip(late, (b"", b"GET", HEAD, HEAD + b"X-Half: "), strict=True):
            connection.sendall(part)
        for connection in late:
            with connection:
                response = read_until_closed(connection)
            assert time.monotonic() - started < 5
            assert response.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"urn:holdfast:too-slow" in response
            assert b"did not arrive within 0.5 s" in response


def test_deadline_restarts_for_each_request_of_a_connection(store):
    with LoggedServer(store, limits=Limits(seconds=1)) as server, server.connect() as connection:
        for _ in range(4):
            time.sleep(0.4)
            connection.sendall(HEAD + b"\r\n")
            received = b""
            while not received.endswith(b'{"status":"live"}'):
                received += connection.recv(65536)
            assert received.startswith(b"HTTP/1.1 200")
        started = time.monotonic()
        connection.sendall(HEAD)
        assert b"HTTP/1.1 408" in read_until_closed(connection)
        assert 0.5 < time.monotonic() - started < 5


def test_incomplete_pipelined_head_is_cut_off(store):
    with LoggedServer(store, limits=QUICK) as server:
        server._server.config.timeout_keep_alive = 1
        response = server.send(HEAD + b"\r\n" + HEAD)
        assert response.startswith(b"HTTP/1.1 200")
        assert b"<still open>" not in response


def test_head_deadline_does_not_apply_to_the_body(store, monkeypatch):
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    with LoggedServer(store) as server, server.connect() as connection:
        head = b"POST /agents/a/sessions/s/restore HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        connection.sendall(head + b"Content-Length: 10\r\n\r\n")
        send_slowly(connection, b'{"at":"1"}')
        assert connection.recv(65536).startswith(b"HTTP/1.1 404")


# ------------------------------------------------------------------------------------------ number


def test_idle_connections_are_closed_to_make_room(store, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 5)
    with LoggedServer(store) as server:
        held = [server.connect() for _ in range(20)]
        for connection in held[-5:]:
            connection.sendall(HEAD)
        started = time.monotonic()
        for _ in range(10):
            assert httpx.get(f"{server.url}/health/live").status_code == 200
        assert time.monotonic() - started < 5
        assert len(server.connections) <= 5
        for connection in held:
            connection.close()


def test_connection_gets_503_if_all_others_are_busy(store, monkeypatch):
    monkeypatch.setattr(connections, "MAX_CONNECTIONS", 3)
    post = b"POST /agents/snapshot/restore HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\n\r\n"
    with LoggedServer(store) as server:
        busy = [server.connect() for _ in range(3)]
        for connection in busy:
            connection.sendall(post)
        wait_until(lambda: len(server.tasks) == 3)
        response = server.send(b"")
        assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"all 3 connections are busy" in response
        for connection in busy:
            connection.close()
        wait_until(lambda: not server.tasks)
        assert httpx.get(f"{server.url}/health/live").status_code == 200


def test_hundreds_of_slow_clients_do_not_block_the_server(store):
    with LoggedServer(store, limits=Limits(seconds=1)) as server:
        held = []
        for _ in range(300):
            held.append(server.connect())
            held[-1].sendall(b"GET / HTTP/1.1\r\nX: ")
        assert httpx.get(f"{server.url}/health/live", timeout=10).status_code == 200
        wait_until(lambda: not server.connections, seconds=20)
        for connection in held:
            connection.close()


# ---------------------------------------------------------------------------------------- response


def test_response_that_the_client_does_not_read_is_abandoned(store):
    with BlockingSession.open(store, agent_id="a", session_id="s") as session:
        session.add_message("user", "x" * 30_000_000)
    with LoggedServer(store, limits=Limits(seconds=2)) as server:
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", server.port))
        connection.sendall(b"GET /agents/s/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_until(lambda: "response abandoned" in server.log)
        wait_until(lambda: not server.connections)
        wait_until(lambda: not server.tasks)
        connection.close()


def test_response_that_is_read_slowly_arrives_complete(store):
    with BlockingSession.open(store, agent_id="a", session_id="s") as session:
        session.add_message("user", "x" * 3_000_000)
    with LoggedServer(store, limits=Limits(seconds=1)) as server, server.connect() as connection:
        head = b"GET /agents/s/snapshot HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
        connection.sendall(head)
        received = bytearray()
        while part := connection.recv(65536):
            received += part
            time.sleep(0.02)
        assert len(received) > 3_000_000
        assert received.endswith(b"}\n\r\n0\r\n\r\n")


# --------------------------------------------------------------------------------------------- log


def test_repeated_log_lines_are_suppressed_and_counted():
    limit = RateLimit(most=3, seconds=0.2)

    def log(text, *arguments, name="uvicorn.error"):
        record = logging.LogRecord(name, logging.WARNING, "", 0, text, arguments, None)
        return limit.filter(record) and record.getMessage()

    assert [log("broken by %s", each) for each in "abcde"] == [
        "broken by a",
        "broken by b",
        "broken by c",
        False,
        False,
    ]
    assert log("another") == "another"
    assert log("broken by %s", "f", name="holdfast") == "broken by f"
    assert [log("GET", name="holdfast.access") for _ in range(9)] == ["GET"] * 9
    time.sleep(0.25)
    assert log("broken by %s", "g") == "broken by g (2 similar lines suppressed)"


@pytest.mark.parametrize("text", [b"garbage\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n"])
def test_invalid_http_gets_400_and_the_connection_is_closed(store, text):
    with LoggedServer(store) as server:
        response = server.send(text)
        assert response.startswith(b"HTTP/1.1 400")
        assert b"<still open>" not in response


def test_upgrade_header_is_ignored(store):
    upgrade = b"Connection: upgrade, close\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    with LoggedServer(store) as server:
        assert server.send(HEAD + upgrade + b"\r\n").startswith(b"HTTP/1.1 200")
