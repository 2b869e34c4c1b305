"""The package builds with and without a compiler, and says which it is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """The repository as somebody gets it: no build of ours in it."""
    target = tmp_path / "sources"
    shutil.copytree(
        ROOT / "src",
        target / "src",
        ignore=shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__"),
    )
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, target)
    return target


def build(sources: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-v", "--no-build-isolation", "--no-deps", "."],
        cwd=sources,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_build_without_a_compiler_works_and_says_so(sources, tmp_path):
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
    used = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert used.stdout.startswith(f"False (1,) {tmp_path}")


def test_a_build_that_must_be_compiled_fails_without_a_compiler(sources):
    done = build(sources, CC="/bin/false", HOLDFAST_COMPILE="1")
    assert done.returncode != 0
    assert "HOLDFAST_COMPILE=1, but no working C compiler" in done.stdout + done.stderr


def test_a_build_can_be_asked_to_be_interpreted(sources):
    done = build(sources, HOLDFAST_COMPILE="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "HOLDFAST_COMPILE=0" in done.stdout + done.stderr
    assert [wheel.name[-16:] for wheel in sources.glob("*.whl")] == ["py3-none-any.whl"]
