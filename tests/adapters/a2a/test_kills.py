"""A task that is killed with its server and continued by another one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("a2a")

ROOT = Path(__file__).parent.parent.parent.parent


def test_a_killed_task_loses_no_chunk_and_no_event():
    done = subprocess.run(
        [sys.executable, "-m", "trials.frameworks", "a2a_agent", "--seed", "8", "--kills", "2"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join([str(ROOT), *sys.path])},
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| lost, doubled or damaged | 0 |" in done.stdout
