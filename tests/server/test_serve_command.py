"""``holdfast serve`` as a program: options, startup and shutdown."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import typer

from holdfast import BlockingSession
from holdfast.cli.main import app
from holdfast.server.run import open_socket
from support.http_server import wait_until
from support.rest_api import ANN_ONLY, READER, WRITER, auth_header
from support.subprocesses import run_python

PROGRAM = Path(sys.executable).with_name("holdfast")
COMMAND = typer.main.get_command(app)
ADDRESS = re.compile(r"http://\S+:\d+")

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(),
    reason="holdfast is not installed as a program",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store, used as working directory."""
    found = tmp_path_factory.mktemp("serve")
    url = f"sqlite:///{found}/state.db"
    for agent in ("ann", "bob"):
        with BlockingSession.open(url, agent_id=agent, session_id="ses") as session:
            session.add_message("user", "hello")
    return found


def environment(**more):
    """Return the environment variables of the program."""
    names = ("HOLDFAST_STORE", "HOLDFAST_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "HOLDFAST_STORE": "sqlite:///state.db", "NO_COLOR": "1", **more}


class Program:
    """The running program and its output."""

    def __init__(self, process):
        self.process = process
        self.output = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        wait_until(lambda: ADDRESS.search(self.output) or process.poll() is not None, 30)
        assert process.poll() is None, self.output
        self.url = ADDRESS.search(self.output)[0]

    def _read(self):
        for line in self.process.stderr:
            self.output += line

    def stop(self, number):
        """Send a signal and return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(20)
        self._reader.join(10)
        return code


@contextmanager
def start(folder, *options, **more):
    """Run the program for the duration of a block."""
    with subprocess.Popen(
        [str(PROGRAM), "serve", "--port", "0", *options],
        cwd=folder,
        env=environment(**more),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        program = None
        try:
            program = Program(process)
            yield program
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def run_invalid(folder, monkeypatch, capsys):
    """A function that runs the command in this process, where it does not start to serve."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:///state.db")

    def run(*options):
        with pytest.raises(SystemExit) as ended:
            COMMAND.main(["serve", *options], prog_name="holdfast")
        output = " ".join(capsys.readouterr().err.split())
        assert "Traceback" not in output
        return ended.value.code, output

    return run


def test_server_prints_its_address_and_stops_on_a_signal(folder):
    with start(folder) as program, httpx.Client(base_url=program.url) as http:
        assert program.url.startswith("http://127.0.0.1:")
        response = http.get("/agents?search=ann")
        assert response.json()["agents"] == [{"agent_id": "ann"}]
        assert "server" not in response.headers
        assert http.get("/").status_code == 200
        assert program.stop(signal.SIGINT) == 0
        assert "Traceback" not in program.output
        assert "GET /agents 200" in program.output
        assert "search" not in program.output


@pytest.mark.parametrize("url", ["sqlite:///new/state.db", "file:new"])
def test_server_starts_on_a_store_that_does_not_exist_yet(tmp_path, url):
    options = ("--store", url, "--token", WRITER)
    with start(tmp_path, *options) as program:
        with httpx.Client(
            base_url=program.url, headers={"Authorization": f"Bearer {WRITER}"}
        ) as http:
            assert http.get("/agents").json()["agents"] == []
            assert http.get("/").status_code == 200
            store = f"{url.replace('new', str(tmp_path / 'new'))}"
            with BlockingSession.open(store, agent_id="ann", session_id="ses") as session:
                session.add_message("user", "hello")
            assert http.get("/agents").json()["agents"] == [{"agent_id": "ann"}]
        assert program.stop(signal.SIGTERM) == 0
    assert f"{url} does not exist yet; the first write creates it" in program.output
    assert "Traceback" not in program.output


SLOW = """
import asyncio, os, signal, threading, httpx
from holdfast.server import run
from holdfast.stores.memory import MemoryStateStore

class Slow(MemoryStateStore):
    runs_inline = False

    async def _page(self, span, count):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        await asyncio.sleep(60)

def ready(url):
    request = threading.Thread(target=httpx.get, args=(url + "/agents",), kwargs={"timeout": 20})
    request.start()

run.GRACE_SECONDS = 0.2
run.serve(Slow(), port=0, ready=ready)
"""


def test_running_request_is_cancelled_at_shutdown(folder):
    ran = run_python(SLOW)
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    assert "Cancel 1 running task(s)" in ran.stderr
    assert "GET /agents 499" in ran.stderr


def test_tokens_come_from_options_a_file_and_the_environment(folder):
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[token]]\nsecret = "{ANN_ONLY}"\nagents = ["ann"]\nname = "ann-only"\n')
    options = ["--token", f"read:{READER}", "--token", WRITER, "--tokens", str(tokens)]
    with start(folder, *options) as program, httpx.Client(base_url=program.url) as http:
        assert http.get("/agents").status_code == 401
        for secret, scope, agents in (
            (READER, "read", None),
            (WRITER, "write", None),
            (ANN_ONLY, "write", ["ann"]),
        ):
            tree = http.get("/access", headers=auth_header(secret)).json()
            assert (tree["scope"], tree["agents"]) == (scope, agents)
        assert http.get("/agents", headers=auth_header(ANN_ONLY)).json()["agents"] == [
            {"agent_id": "ann"}
        ]
        assert program.stop(signal.SIGINT) == 0
        for secret in (READER, WRITER, ANN_ONLY):
            assert secret not in program.output
    with start(folder, "--host", "0.0.0.0", HOLDFAST_TOKEN=WRITER) as program:
        url = program.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/agents").status_code == 401
        assert httpx.get(f"{url}/agents", headers=auth_header(WRITER)).status_code == 200
        assert program.stop(signal.SIGTERM) == 0


def test_listening_on_other_addresses_needs_a_token(run_invalid):
    for code, output in (
        run_invalid("--host", "0.0.0.0"),
        run_invalid("--host", "::"),
        run_invalid("--host", "192.0.2.1"),
        run_invalid("--host", "example.com"),
    ):
        assert code == 2
        assert "needs a token" in output


def test_port_in_use_is_reported_in_one_line(run_invalid):
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, output = run_invalid("--port", str(port))
    assert code == 1
    assert output.startswith(f"error: cannot listen on 127.0.0.1 port {port}")
    assert "Address already in use hint: the port is in use" in output
    assert "--port 0" in output


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--token", "short"], 2, "16 characters"),
        (["--token", "read:short"], 2, "16 characters"),
        (["--token", ""], 2, "16 characters"),
        (["--tokens", "nothing.toml"], 1, "nothing.toml"),
        (["--cors", "*"], 2, "origin"),
        (["--timeout", "nan"], 2, "--timeout"),
        (["--port", "99999"], 2, "--port"),
        (["--host", "a..b", "--token", WRITER], 1, "a..b"),
        (["--host", "no-such-host.invalid", "--token", WRITER], 1, "no-such-host.invalid"),
        (["--store", "nothing.db"], 1, "did you mean sqlite:///nothing.db?"),
        (["--token", WRITER, "--token", f"read:{WRITER}"], 1, "same secret"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_invalid_options_are_reported_without_a_traceback_or_secrets(
    run_invalid, options, code, words
):
    ended, output = run_invalid(*options)
    assert ended == code, output
    assert words in output
    assert WRITER not in output


def test_many_broken_requests_do_not_fill_the_log(folder):
    with start(folder) as program:
        port = int(program.url.rpartition(":")[2])
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"garbage\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 400")
        assert httpx.get(f"{program.url}/agents").status_code == 200
        assert program.stop(signal.SIGINT) == 0
        lines = [line for line in program.output.splitlines() if "Invalid HTTP request" in line]
        assert 1 <= len(lines) <= 30
        assert "GET /agents 200" in program.output
