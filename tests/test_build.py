"""Building with and without a C compiler."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.wheels import copy_sources, run_program, wheel_command


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return copy_sources(tmp_path / "sources")


def build(sources: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_program(wheel_command(sources, sources), sources, **environment)


def test_a_build_without_a_compiler_is_interpreted(sources, tmp_path):
    done = build(sources, CC="/bin/false", HOLDFAST_COMPILE="")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no working C compiler" in done.stdout + done.stderr
    assert "building the interpreted package" in done.stdout + done.stderr
    (wheel,) = sources.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")

    shutil.unpack_archive(wheel, tmp_path / "installed", "zip")
    program = (
        "import holdfast; store = holdfast.Store(); store.set('n', 'k', (1,));"
        "print(holdfast.compiled, store.get('n', 'k'), holdfast.__file__)"
    )
    used = run_program(
        [sys.executable, "-c", program], tmp_path, PYTHONPATH=str(tmp_path / "installed")
    )
    assert used.stdout.startswith(f"False (1,) {tmp_path}"), used.stderr


def test_a_required_compilation_fails_without_a_compiler(sources):
    done = build(sources, CC="/bin/false", HOLDFAST_COMPILE="1")
    assert done.returncode != 0
    assert "HOLDFAST_COMPILE=1, but no working C compiler" in done.stdout + done.stderr
