"""Builds of the package, and environments with nothing in them, for the tests of packaging.

An environment is made without pip: the pip that runs the tests installs into it. What is installed
already can be lent to it, so that no test has to download anything.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DISTRIBUTED = ("setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")
SAID = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def ran(command: list[object], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program that was run where nothing but the environment it is of can be imported."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**outside, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def done(command: list[object], cwd: Path, **environment: str) -> str:
    """What a program says that must succeed."""
    found = ran(command, cwd, **environment)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


def copied_sources(target: Path) -> Path:
    """The repository as somebody gets it: no build of ours in it, and no git."""
    built = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", target / "src", ignore=built)
    shutil.copytree(ROOT / "tests" / "values", target / "tests" / "values", ignore=built)
    for name in (*DISTRIBUTED, *SAID):
        shutil.copy(ROOT / name, target)
    return target


def built_sdist(sources: Path, target: Path) -> Path:
    """The source distribution."""
    program = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    done([sys.executable, "-c", program, target], sources, HOLDFAST_COMPILE="0")
    (sdist,) = target.glob("*.tar.gz")
    return sdist


def wheel_command(source: Path, target: Path) -> list[object]:
    """How to build a wheel of a folder or a source distribution with the tools at hand."""
    options = ["--no-build-isolation", "--no-deps", "--wheel-dir"]
    return [sys.executable, "-m", "pip", "wheel", "-v", *options, target, source]


def made_environment(folder: Path, python: object = sys.executable) -> Path:
    """An empty environment's interpreter."""
    done([python, "-m", "venv", "--without-pip", folder], folder.parent)
    return folder / "bin" / "python"


def install(python: Path, *what: object) -> str:
    """Have pip install into an environment."""
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    return done([*pip, "install", "--no-compile", *what], python.parent)


def quick_start() -> str:
    """Return the Python example of README."""
    return "\n".join(BLOCK.findall((ROOT / "README.md").read_text()))


# ------------------------------------------------------------------- what is installed here already


def wanted(distribution: metadata.Distribution, extras: set[str]) -> Iterator[Requirement]:
    """What a distribution with these extras says that it needs on this machine."""
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def needed(root: metadata.Distribution, extras: set[str]) -> list[metadata.Distribution]:
    """All that has to be installed with it, as it is installed here."""
    met: dict[str, set[str]] = {}
    waiting = list(wanted(root, extras))
    while waiting:
        requirement = waiting.pop()
        new = requirement.extras | {""}
        if not new <= met.get(requirement.name, set()):
            met.setdefault(requirement.name, set()).update(new)
            waiting += wanted(metadata.distribution(requirement.name), met[requirement.name])
    return [metadata.distribution(name) for name in met]


def lend(distribution: metadata.Distribution, site: Path) -> None:
    """Put an installed distribution where another interpreter finds it, file by file."""
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        source, target = Path(str(file.locate())), site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(source)
        compiled, kept = source.parent / "__pycache__", target.parent / "__pycache__"
        if file.suffix == ".py" and compiled.is_dir() and not kept.exists():
            kept.symlink_to(compiled)  # or each test would compile it anew
