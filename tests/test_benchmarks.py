"""Every benchmark runs, on a small scale, so that none rots. No time is asserted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "benchmarks"
BENCHMARKS = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "harness")


SLOW = {"conversation", "frameworks", "langgraph", "server", "stores", "viewer"}
"""Those that take more than five seconds; each has tests of what it measures elsewhere."""


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_smoke_run_gives_a_table(name, tmp_path):
    if name in SLOW and os.environ.get("HOLDFAST_BENCHMARKS") != "all":
        pytest.skip("HOLDFAST_BENCHMARKS=all")
    if name == "viewer" and not (os.environ.get("HOLDFAST_CHROMIUM") or shutil.which("chromium")):
        pytest.skip("Chromium is not installed: apt-get install chromium")
    before = sorted((FOLDER / "results").glob("*"))
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{name}", "--smoke"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(FOLDER.parent)},
    )
    assert done.returncode == 0, done.stderr
    assert (" exponent" if name == "growth" else " / holdfast") in done.stdout
    assert sorted((FOLDER / "results").glob("*")) == before
