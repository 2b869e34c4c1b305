"""A few kills of a framework's run; `python -m trials.frameworks` has more, of every framework."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("framework", ["openai_agents", "langgraph_memory"])
def test_a_killed_run_is_resumed_and_ends_in_the_right_state(framework):
    done = subprocess.run(
        [sys.executable, "-m", "trials.frameworks", framework, "--kills", "2", "--seed", "8"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kills | 2 |" in done.stdout
    assert "| lost, doubled or damaged | 0 |" in done.stdout
