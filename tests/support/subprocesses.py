"""Run Python programs in new processes."""

from __future__ import annotations

import os
import subprocess
import sys


def run_python(
    program: str, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program with the import path of this process, and return the completed process."""
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path), **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def read_python(program: str, *arguments: str, **environment: str) -> str:
    """Run a program that must succeed, and return its output."""
    finished = run_python(program, *arguments, **environment)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
