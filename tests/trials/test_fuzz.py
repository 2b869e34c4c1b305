"""A bounded run of the trial with hostile input, and what that trial would notice."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

ROOT = Path(__file__).parents[2]
INPUTS = "20"


def fuzz(*arguments):
    """Run the program; what it printed, after checking how it ended."""
    command = [sys.executable, "-m", "trials.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_hostile_input_is_read_or_refused_by_everything_that_reads(tmp_path):
    ran = fuzz("--inputs", INPUTS, "--seed", "1", "--kept", str(tmp_path))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = [line.split(" | ") for line in ran.stdout.splitlines() if line.startswith("| ")][2:]
    assert len(rows) == 11
    for name, tried, refused, accepted, problems in rows:
        assert int(tried.replace(",", "")) >= int(INPUTS), name
        assert int(refused.replace(",", "")) > 0, name
        assert int(accepted.replace(",", "")) > 0, name
        assert problems.rstrip(" |") == "0"
    assert list(tmp_path.iterdir()) == []


WATCHED = """
import os, socket, sys, tempfile
from pathlib import Path
from holdfast import InvalidDocumentError
from trials.fuzz import trying

class Reader(trying.Target):
    name, corpus, mutated, made_up = "reader", (), None, None
    act = None
    def attempt(self, data):
        self.act()

def fail():
    raise KeyError("x")

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
    lambda: None,
]
trying.SECONDS = 0.2
with tempfile.TemporaryDirectory() as folder:
    watch = trying.Watch(Path(folder))
    for act in acts:
        reader = Reader(Path(folder))
        reader.act = act
        found = trying.tried(reader, b"antigravity", watch)
        print(found.outcome, found.problem)
"""
NOTICED = [
    "problems KeyError",
    "problems a message of 3,000",
    "problems it took more than",
    "import antigravity",
    "problems it had something done: compile",
    "open ('/etc/passwd'",
    "open ('/tmp/never-written'",
    "os.rename",
    "os.system",
    "socket.",
    "accepted",
]


def test_the_trial_notices_what_no_reader_may_do():
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WATCHED],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for line, words in zip(ran.stdout.splitlines(), NOTICED, strict=True):
        assert words in line
    assert not Path("/tmp/never-written").exists()


def test_an_input_that_was_kept_is_tried_again(tmp_path):
    kept = {"target": "value-bytes", "seed": 1, "problem": "", "data": ""}
    (tmp_path / "kept.json").write_text(
        json.dumps({**kept, "data": base64.b64encode(b"\xc1").decode()})
    )
    ran = fuzz("--replay", str(tmp_path / "kept.json"))
    assert (ran.returncode, ran.stdout) == (0, "refused\n")


@pytest.mark.parametrize("seed", [1, 2])
def test_a_seed_gives_the_same_inputs_again(seed):
    from trials.fuzz.values import ValueBytes, ValueJSON

    for target in (ValueBytes(ROOT), ValueJSON(ROOT)):
        rngs = Random(seed), Random(seed)
        one, other = ([target.mutated(rng) for _ in range(20)] for rng in rngs)
        assert one == other
        assert len(set(one)) > 10
