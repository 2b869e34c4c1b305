"""Versions of ADK that are not supported, and a run that is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.subprocesses import run_python

ROOT = Path(__file__).parent.parent.parent.parent


@pytest.mark.parametrize("found", ["2.12.1", "3.0.0"])
def test_another_version_of_adk_is_one_clear_error(found):
    done = run_python(
        "import importlib.metadata as m\n"
        f"m.version = lambda name: {found!r}\n"
        "import holdfast.adapters.adk\n"
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("holdfast.extras.MissingExtraError: ")
    assert f"google-adk >=2.13,<3, but {found} is installed" in last


def test_a_killed_run_ends_in_the_right_state():
    done = subprocess.run(
        [sys.executable, "-m", "trials.frameworks", "adk", "--kills", "2", "--seed", "8"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": ":".join([str(ROOT), *sys.path])},
        timeout=200,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| kills | 2 |" in done.stdout
    assert "| lost, doubled or damaged | 0 |" in done.stdout
