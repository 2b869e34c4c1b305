"""Build the package, and install it into empty environments, for the tests of packaging.

An environment is made without pip: the pip that runs the tests installs into it. Distributions that
are installed already can be linked into it, so that no test has to download anything.
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
DOCUMENTS = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run_program(
    command: list[object], cwd: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that can import only what is in its own environment."""
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


def check_program(command: list[object], cwd: Path, **environment: str) -> str:
    """Run a program that must succeed, and return its output."""
    found = run_program(command, cwd, **environment)
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout + found.stderr


def copy_sources(target: Path) -> Path:
    """Copy the sources without build products and git."""
    built = shutil.ignore_patterns("*.so", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", target / "src", ignore=built)
    shutil.copytree(ROOT / "tests" / "values", target / "tests" / "values", ignore=built)
    for name in (*DISTRIBUTED, *DOCUMENTS):
        shutil.copy(ROOT / name, target)
    return target


def build_sdist(sources: Path, target: Path) -> Path:
    """Build the source distribution and return its path."""
    program = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    check_program([sys.executable, "-c", program, target], sources, HOLDFAST_COMPILE="0")
    (sdist,) = target.glob("*.tar.gz")
    return sdist


def wheel_command(source: Path, target: Path) -> list[object]:
    """Return the command that builds a wheel of a folder or a source distribution."""
    options = ["--no-build-isolation", "--no-deps", "--wheel-dir"]
    return [sys.executable, "-m", "pip", "wheel", "-v", *options, target, source]


def make_environment(folder: Path, python: object = sys.executable) -> Path:
    """Make an empty environment and return its interpreter."""
    check_program([python, "-m", "venv", "--without-pip", folder], folder.parent)
    return folder / "bin" / "python"


def install(python: Path, *what: object) -> str:
    """Install distributions into an environment with pip."""
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    return check_program([*pip, "install", "--no-compile", *what], python.parent)


def read_quick_start() -> str:
    """Return the Python example of README."""
    return "\n".join(BLOCK.findall((ROOT / "README.md").read_text()))


# ------------------------------------------------------------------------ installed distributions


def iterate_requirements(
    distribution: metadata.Distribution, extras: set[str]
) -> Iterator[Requirement]:
    """Yield the requirements of a distribution with extras that apply to this machine."""
    for line in distribution.requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in extras | {""}):
            yield requirement


def list_requirements(root: metadata.Distribution, extras: set[str]) -> list[metadata.Distribution]:
    """Return the installed distributions that one with extras depends on, directly or not."""
    met: dict[str, set[str]] = {}
    waiting = list(iterate_requirements(root, extras))
    while waiting:
        requirement = waiting.pop()
        new = requirement.extras | {""}
        if not new <= met.get(requirement.name, set()):
            met.setdefault(requirement.name, set()).update(new)
            waiting += iterate_requirements(
                metadata.distribution(requirement.name), met[requirement.name]
            )
    return [metadata.distribution(name) for name in met]


def link_distribution(distribution: metadata.Distribution, site: Path) -> None:
    """Link the files of an installed distribution into another environment."""
    for file in distribution.files or ():
        if ".." in file.parts or "__pycache__" in file.parts:
            continue
        source, target = Path(str(file.locate())), site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            target.symlink_to(source)
        compiled, kept = source.parent / "__pycache__", target.parent / "__pycache__"
        if file.suffix == ".py" and compiled.is_dir() and not kept.exists():
            kept.symlink_to(compiled)  # or each test would compile it again
