"""Every block of README and docs runs or parses, and every page and example is covered."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import subprocess
import sys
import time
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from docs.pages import COMMAND, PageRunner, parse_blocks

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLE_PARTS = {ROOT / "examples" / name for name in ("scripted_claude.py", "viewer_step.py")}
EXAMPLES = sorted(set((ROOT / "examples").glob("*.py")) - EXAMPLE_PARTS)
# Pages and examples of frameworks that have an environment of their own: make test-adapters.
SEPARATE = {"adk": "google.adk", "crewai": "crewai", "crewai_flow": "crewai"}
READERS = {
    "toml": tomllib.loads,
    "yaml": yaml.safe_load,
    "json": json.loads,
    "ini": lambda text: configparser.RawConfigParser(strict=False).read_string(text),
}
COMMANDS = re.compile(r"^(?:\$ |    )?(?:[A-Z_]+=\S+ )?(holdfast [a-z-].*)$", re.MULTILINE)
# Executed, parsed as above, or not checked.
LANGUAGES = {"python", "console", *READERS, "shell", "sql", "text", ""}


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def needs_framework(path: Path) -> None:
    """Skip if the framework of a page or an example is not in this environment."""
    if (framework := SEPARATE.get(path.stem)) is not None:
        pytest.importorskip(framework, reason="runs in make test-adapters")


@contextmanager
def script_model(page: Path, folder: Path, monkeypatch):
    """Answer the requests of Claude Code on its page, which does not name a model."""
    if page.stem != "claude-agent":
        yield
        return
    monkeypatch.syspath_prepend(ROOT / "examples")
    from scripted_claude import ScriptedClaude, find_last_text

    with ScriptedClaude(lambda messages: f"You said: {find_last_text(messages)}") as claude:
        for variable, value in claude.env(folder / "claude").items():
            monkeypatch.setenv(variable, value)
        yield


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_blocks_of_a_page_run(page, tmp_path, monkeypatch):
    needs_framework(page)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")  # the width of the pages
    for variable in ("HOLDFAST_STORE", "HOLDFAST_ENVIRONMENT", "HOLDFAST_TRACEBACK"):
        monkeypatch.delenv(variable, raising=False)
    # Pages may sleep; do not wait. Started programs get a copy of this environment.
    monkeypatch.setattr(time, "sleep", lambda seconds, sleep=time.sleep: sleep(seconds / 100))
    with script_model(page, tmp_path, monkeypatch):
        PageRunner(page).run()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_blocks_of_a_page_parse(page):
    for block in parse_blocks(page):
        assert block.language in LANGUAGES, f"{name(page)}, line {block.line}: {block.language}"
        if read := READERS.get(block.language):
            read(block.text)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_on_a_page_exists_with_its_options(page):
    fenced = [each.text for each in parse_blocks(page) if each.language in {"shell", "console", ""}]
    indented = re.findall(r"^    \S.*$", page.read_text(), re.MULTILINE)
    for command in COMMANDS.findall("\n".join([*fenced, *indented])):
        parse_command(re.split(r" && | \| | # | > ", command)[0])


def parse_command(command: str) -> None:
    """Parse a command without running it."""
    here, words = COMMAND, shlex.split(command)[1:]
    while hasattr(here, "commands") and words[0] in here.commands:
        here = here.commands[words.pop(0)]
    if here is COMMAND:
        assert words[0].startswith("--"), command
    else:
        here.make_context(here.name, words)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_an_example_runs(example, tmp_path):
    needs_framework(example)
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "zensical.toml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'"{page.relative_to(ROOT / "docs").as_posix()}"' in navigation, page


def test_every_public_name_is_in_the_docs():
    import holdfast

    everything = "".join(page.read_text() for page in PAGES if page.parent.name != "reference")
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
