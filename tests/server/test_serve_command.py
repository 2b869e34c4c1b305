"""``holdfast serve`` as it is typed: how it starts, what it answers, how it ends."""

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
from support.rest_api import ANNS, READER, WRITER, bearer
from support.running_server import until

PROGRAM = Path(sys.executable).with_name("holdfast")
COMMAND = typer.main.get_command(app)
ADDRESS = re.compile(r"http://\S+:\d+")

pytestmark = pytest.mark.skipif(
    not PROGRAM.exists(),
    reason="holdfast runs here from its source: pip install it to have the program",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a store in it, where a program is started."""
    found = tmp_path_factory.mktemp("serve")
    url = f"sqlite:///{found}/state.db"
    for agent in ("ann", "bob"):
        with BlockingSession.open(url, agent_id=agent, session_id="ses") as session:
            session.add_message("user", "hello")
    return found


def environment(**more):
    """What the program finds around it."""
    names = ("HOLDFAST_STORE", "HOLDFAST_TOKEN")
    kept = {name: value for name, value in os.environ.items() if name not in names}
    return {**kept, "HOLDFAST_STORE": "sqlite:///state.db", "NO_COLOR": "1", **more}


class Program:
    """The program while it runs."""

    def __init__(self, process):
        self.process = process
        self.said = ""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        until(lambda: ADDRESS.search(self.said) or process.poll() is not None, 30)
        assert process.poll() is None, self.said
        self.url = ADDRESS.search(self.said)[0]

    def _read(self):
        for line in self.process.stderr:
            self.said += line

    def end(self, number):
        """Ask it to end, and give its exit code."""
        self.process.send_signal(number)
        code = self.process.wait(20)
        self._reader.join(10)
        return code


@contextmanager
def started(folder, *options, **more):
    """The program, serving."""
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


def refused(folder, *options, **more):
    """The program, which does not start: its exit code and what it says."""
    ran = subprocess.run(
        [str(PROGRAM), "serve", *options],
        cwd=folder,
        env=environment(**more),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "Traceback" not in ran.stderr
    return ran.returncode, " ".join(ran.stderr.replace("\u2502", " ").split())


@pytest.fixture
def misused(folder, monkeypatch, capsys):
    """Runs the command in this process, where it does not come to serve."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    monkeypatch.setenv("HOLDFAST_STORE", "sqlite:///state.db")

    def run(*options):
        with pytest.raises(SystemExit) as ended:
            COMMAND.main(["serve", *options], prog_name="holdfast")
        said = " ".join(capsys.readouterr().err.split())
        assert "Traceback" not in said
        return ended.value.code, said

    return run


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_where_it_is_answers_and_ends_well(folder, number):
    with started(folder) as program, httpx.Client(base_url=program.url) as http:
        assert program.url.startswith("http://127.0.0.1:")
        answered = http.get("/agents?search=ann")
        assert answered.json()["agents"] == [{"agent_id": "ann"}]
        assert "server" not in answered.headers
        assert http.get("/").status_code == 200  # and the connection stays open
        assert program.end(number) == 0
        assert "Traceback" not in program.said
        assert "GET /agents 200" in program.said
        assert "search" not in program.said


@pytest.mark.parametrize("url", ["sqlite:///new/state.db", "file:new"])
def test_it_starts_on_a_store_that_does_not_exist_yet(tmp_path, url):
    options = ("--store", url, "--token", WRITER)
    with started(tmp_path, *options) as program:
        with httpx.Client(
            base_url=program.url, headers={"Authorization": f"Bearer {WRITER}"}
        ) as http:
            assert http.get("/agents").json()["agents"] == []
            assert http.get("/").status_code == 200
            store = f"{url.replace('new', str(tmp_path / 'new'))}"
            with BlockingSession.open(store, agent_id="ann", session_id="ses") as session:
                session.add_message("user", "hello")
            assert http.get("/agents").json()["agents"] == [{"agent_id": "ann"}]
        assert program.end(signal.SIGTERM) == 0
    assert f"{url} does not exist yet; the first write creates it" in program.said
    assert "Traceback" not in program.said


SLOW = """
import asyncio, os, signal, threading, httpx
from holdfast.server import serving
from holdfast.stores.memory import MemoryStateStore

class Slow(MemoryStateStore):
    async def _page(self, span, count):
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
        await asyncio.sleep(60)

def ready(url):
    asking = threading.Thread(target=httpx.get, args=(url + "/agents",), kwargs={"timeout": 20})
    asking.start()

serving.GRACE_SECONDS = 0.2
serving.serve(Slow(), port=0, ready=ready)
"""


def test_a_request_that_does_not_end_is_cut_off_when_the_server_ends(folder):
    ran = subprocess.run(
        [sys.executable, "-c", SLOW], capture_output=True, text=True, check=False, timeout=60
    )
    assert ran.returncode == 0
    assert "Traceback" not in ran.stderr
    assert "Cancel 1 running task(s)" in ran.stderr
    assert "GET /agents 499" in ran.stderr


def test_tokens_come_from_options_a_file_and_the_environment(folder):
    tokens = folder / "tokens.toml"
    tokens.write_text(f'[[token]]\nsecret = "{ANNS}"\nagents = ["ann"]\nname = "anns"\n')
    options = ["--token", f"read:{READER}", "--token", WRITER, "--tokens", str(tokens)]
    with started(folder, *options) as program, httpx.Client(base_url=program.url) as http:
        assert http.get("/agents").status_code == 401
        for secret, scope, agents in (
            (READER, "read", None),
            (WRITER, "write", None),
            (ANNS, "write", ["ann"]),
        ):
            tree = http.get("/access", headers=bearer(secret)).json()
            assert (tree["scope"], tree["agents"]) == (scope, agents)
        assert http.get("/agents", headers=bearer(ANNS)).json()["agents"] == [{"agent_id": "ann"}]
        assert program.end(signal.SIGINT) == 0
        for secret in (READER, WRITER, ANNS):
            assert secret not in program.said
    with started(folder, "--host", "0.0.0.0", HOLDFAST_TOKEN=WRITER) as program:
        url = program.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}/agents").status_code == 401
        assert httpx.get(f"{url}/agents", headers=bearer(WRITER)).status_code == 200
        assert program.end(signal.SIGTERM) == 0


def test_what_would_be_open_to_other_machines_needs_a_token(folder, misused):
    for code, said in (
        refused(folder, "--host", "0.0.0.0"),
        misused("--host", "::"),
        misused("--host", "192.0.2.1"),
        misused("--host", "example.com"),
    ):
        assert code == 2
        assert "token is needed" in said


def test_a_port_in_use_is_said_in_one_line(folder):
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        code, said = refused(folder, "--port", str(port))
    assert code == 1
    assert said.startswith(f"error: cannot listen on 127.0.0.1 port {port}")
    assert "Address already in use hint: another program uses the port" in said
    assert "--port 0" in said


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
def test_wrong_options_are_refused_without_a_traceback_and_without_secrets(
    misused, options, code, words
):
    ended, said = misused(*options)
    assert ended == code, said
    assert words in said
    assert WRITER not in said


def test_many_broken_requests_do_not_fill_the_log(folder):
    with started(folder) as program:
        port = int(program.url.rpartition(":")[2])
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(b"garbage\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.1 400")
        assert httpx.get(f"{program.url}/agents").status_code == 200
        assert program.end(signal.SIGINT) == 0
        lines = [line for line in program.said.splitlines() if "Invalid HTTP request" in line]
        assert 1 <= len(lines) <= 30
        assert "GET /agents 200" in program.said
