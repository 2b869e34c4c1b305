"""The walks in docs/architecture.md name functions that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
ROW = re.compile(r"^\|[^|]*\| (?P<functions>[^|]*`[^|]*) \| `(?P<file>[^`]+)` \|$", re.MULTILINE)
STEPS = [
    (name.rpartition(".")[2], row["file"])
    for row in ROW.finditer(PAGE)
    for name in re.findall(r"`([\w.]+)`", row["functions"])
]


@pytest.mark.parametrize(("function", "file"), STEPS, ids=lambda each: each)
def test_each_step_of_a_walk_exists(function, file):
    text = (ROOT / "src/holdfast" / file).read_text()
    assert re.search(rf"\b(def|function|async) {function}\b", text)


def test_all_walks_are_checked():
    assert len(STEPS) > 40


@pytest.mark.parametrize("package", re.findall(r"`(\w+)/`", PAGE.split("\n\n")[2]))
def test_each_package_exists(package):
    assert (ROOT / "src/holdfast" / package / "__init__.py").exists()
