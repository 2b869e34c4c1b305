"""``holdfast serve --workers``: several processes on one socket."""

from __future__ import annotations

import os
import re
import signal
from contextlib import ExitStack

import httpx
import pytest

from holdfast import BlockingSession
from holdfast.server.workers import check_workers
from holdfast.stores.memory import MemoryStateStore
from server.test_event_stream import follow
from server.test_serve_command import PROGRAM, run_invalid, start
from support.http_server import wait_until

__all__ = ["run_invalid"]

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists() or not hasattr(os, "fork"),
    reason="holdfast is not installed as a program, or the system cannot fork",
)

SESSION = "/agents/ann/sessions/ses"


@pytest.fixture
def folder(tmp_path):
    with BlockingSession.open(
        f"sqlite:///{tmp_path}/state.db", agent_id="ann", session_id="ses"
    ) as session:
        for number in range(5):
            session.add_message("user", f"message {number}")
            session.save()
    return tmp_path


def process_of(client):
    """Return the process that answers on a connection."""
    text = client.get("/metrics").text
    return int(float(re.search(r"^holdfast_process_id (\S+)$", text, re.MULTILINE)[1]))


def connect_to_workers(program, stack, number=2):
    """Return a connection to each worker, by process id."""
    found = {}

    def connect():
        client = stack.enter_context(httpx.Client(base_url=program.url, timeout=20))
        found.setdefault(process_of(client), client)
        return len(found) == number

    wait_until(connect, 30)
    return found


def is_running(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_what_one_worker_writes_the_other_reads_at_once(folder):
    with start(folder, "--workers", "2") as program, ExitStack() as stack:
        clients = list(connect_to_workers(program, stack).values())
        for number in range(20):
            writer, reader = clients[number % 2], clients[1 - number % 2]
            at = str(1 + number % 5)
            restored = writer.post(f"{SESSION}/restore", json={"at": at}).json()
            summary = reader.get(SESSION).json()
            assert summary["last_event"] == restored["last_event"]
            state = reader.get(f"{SESSION}/state").json()
            assert state["seq"] == restored["last_event"]
            assert state["message_count"] == summary["message_count"] == int(at) - 1
            saved = reader.post(f"{SESSION}/snapshots").json()
            document = writer.get("/agents/ses/snapshot").json()
            assert document["parent_id"] == saved["snapshot_id"]
            assert len(document["state"]["messages"]) == int(at) - 1
            assert writer.get(f"{SESSION}/events/{state['seq']}").json()["hash"] == state["hash"]
        for client in clients:
            assert client.delete(SESSION).status_code in (204, 404)
            assert client.get(SESSION).status_code == 404
        assert program.stop(signal.SIGTERM) == 0
        assert "Traceback" not in program.output


def test_worker_that_ends_is_replaced(folder):
    with start(folder, "--workers", "2") as program:
        with ExitStack() as stack:
            before = set(connect_to_workers(program, stack))
        killed = before.pop()
        os.kill(killed, signal.SIGKILL)
        with ExitStack() as stack:
            wait_until(lambda: f"worker {killed} ended with status 9" in program.output, 20)
            after = set(connect_to_workers(program, stack))
            assert before < after
            assert killed not in after
        assert program.stop(signal.SIGINT) == 0
        wait_until(lambda: not any(map(is_running, after)), 20)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_and_their_streams_end_with_their_parent(folder, number):
    with start(folder, "--workers", "2") as program, ExitStack() as streaming:
        with ExitStack() as stack:
            workers = set(connect_to_workers(program, stack))
        streams = [
            streaming.enter_context(follow(program.url, f"{SESSION}/events/stream", after=5))
            for _ in range(4 if number == signal.SIGINT else 0)
        ]
        assert [each.read_events(1) for each in streams] == [[6]] * len(streams)
        with BlockingSession.open(
            f"sqlite:///{folder}/state.db", agent_id="ann", session_id="ses"
        ) as session:
            session.set("value", "new")
        assert [each.read_events(1) for each in streams] == [[7]] * len(streams)
        program.process.send_signal(number)
        assert [each.read() for each in streams] == [None] * len(streams)
        assert program.process.wait(20) == (0 if number == signal.SIGINT else -number)
        wait_until(lambda: not any(map(is_running, workers)), 20)


def test_store_of_one_process_is_rejected(run_invalid):
    code, output = run_invalid("--store", "memory:", "--workers", "2")
    assert code == 2
    assert "cannot be shared by several processes" in output
    with pytest.raises(ValueError, match="cannot be shared"):
        check_workers(MemoryStateStore(), 2)
    with pytest.raises(ValueError, match="at least 1"):
        check_workers(MemoryStateStore(), 0)
    check_workers(MemoryStateStore(), 1)
