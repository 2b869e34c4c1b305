"""A graph that is killed while it uses the memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[4]


def test_a_killed_graph_loses_no_memories():
    done = subprocess.run(
        [sys.executable, "-m", "trials.frameworks", "langgraph_memory", "--kills", "2"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(ROOT)])},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kills | 2 |" in done.stdout
