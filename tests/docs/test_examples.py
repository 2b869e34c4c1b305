"""Every Python block of README and docs runs, and every page and example is reached."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = page.read_text()
    names: dict[str, object] = {}
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        code = compile("\n" * line + match[1], str(page), "exec")
        exec(code, names)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(example, tmp_path):
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f" {page.relative_to(ROOT / 'docs')}\n" in navigation, page


def test_every_public_name_is_in_the_docs():
    import holdfast

    everything = "".join(page.read_text() for page in PAGES)
    missing = [
        name for name in holdfast.__all__ if not name.startswith("__") and name not in everything
    ]
    assert missing == []
    for thing in (
        holdfast.Store,
        holdfast.Snapshot,
        holdfast.StateStore,
        holdfast.Session,
        holdfast.BlockingSession,
        holdfast.SnapshotArchive,
        holdfast.SnapshotManager,
        holdfast.Catalog,
    ):
        for member in vars(thing):
            if not member.startswith("_"):
                assert re.search(rf"[.`]{member}\b", everything), f"{thing.__name__}.{member}"
