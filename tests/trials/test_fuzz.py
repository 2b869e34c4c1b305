"""A short run of the fuzzer, and what its sandbox notices."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
INPUTS = 20


def test_hostile_input_is_accepted_or_refused_by_every_reader(tmp_path):
    command = [sys.executable, "-m", "trials.fuzz", "--inputs", str(INPUTS), "--seed", "1"]
    ran = subprocess.run(
        [*command, "--findings", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.split(" | ") for line in ran.stdout.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 11
    for name, tried, refused, accepted in rows:
        assert int(tried) >= INPUTS, name
        assert int(refused) > 0, name
        assert int(accepted.rstrip(" |")) > 0, name


VIOLATIONS = """
import os, socket, tempfile
from pathlib import Path
from holdfast import InvalidDocumentError
from trials.fuzz import sandbox
from trials.fuzz.target import Target, examine

class Reader(Target):
    def check(self, data):
        act()

def fail():
    raise KeyError("x")

def refuse():
    raise InvalidDocumentError("x")

def refuse_at_length():
    raise InvalidDocumentError("x" * 3000)

def hang():
    while True:
        pass

def import_it():
    import antigravity

acts = [
    fail,
    refuse_at_length,
    hang,
    import_it,
    lambda: eval("1"),
    lambda: open("/etc/passwd"),
    lambda: open("/tmp/never-written", "w"),
    lambda: os.rename("/tmp/never-written", "/tmp/a"),
    lambda: os.system("true"),
    lambda: socket.create_connection(("127.0.0.1", 1)),
    lambda: bytearray(2 << 30),
    refuse,
    lambda: None,
]
sandbox.SECONDS = 0.2
with tempfile.TemporaryDirectory() as folder:
    box = sandbox.Sandbox(Path(folder))
    sandbox.limit_memory()
    for act in acts:
        try:
            print(examine(Reader(Path(folder)), b"antigravity", box))
        except Exception as error:
            print(f"{type(error).__name__} {error}")
"""
NOTICED = [
    "KeyError",
    "message of 3,000 characters",
    "took more than",
    "import antigravity",
    "AssertionError compile",
    "open ('/etc/passwd'",
    "open ('/tmp/never-written'",
    "os.rename",
    "os.system",
    "socket.",
    "MemoryError",
    "refused",
    "accepted",
]


def test_the_sandbox_notices_what_no_reader_may_do():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", VIOLATIONS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for line, words in zip(ran.stdout.splitlines(), NOTICED, strict=True):
        assert words in line
    assert not Path("/tmp/never-written").exists()
