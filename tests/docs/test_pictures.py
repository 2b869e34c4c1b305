"""The pictures of the command line show its current output, and load nothing."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
DOCS = FOLDER.parents[1] / "docs"
NAMESPACE = "http://www.w3.org/2000/svg"
WORDS = {
    "show": [
        "schema_version",
        "agent_id",
        "session_id",
        "status",
        "messages",
        "event_log_count",
        "source_environment",
        "exported_at",
        "tags",
    ],
    "diff": ["+ messages/000000000002", "~ session/status", "- /1:"],
}
found = importlib.util.spec_from_file_location("pictures", FOLDER / "pictures.py")
pictures = importlib.util.module_from_spec(found)
found.loader.exec_module(pictures)


def read_picture(name: str) -> str:
    return (DOCS / "images" / f"{name}.svg").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures") / "demo"
    pictures.run_demo(folder)
    return folder


@pytest.mark.parametrize("name", WORDS)
def test_a_picture_shows_the_command_and_its_output(name):
    text = read_picture(name).replace("&#160;", " ")
    for word in [" ".join(pictures.COMMANDS[name]), *WORDS[name]]:
        assert word in text, word


@pytest.mark.parametrize("name", WORDS)
def test_a_picture_loads_nothing(name):
    text = read_picture(name)
    assert re.findall(r"https?:[^\"'\s)]*", text) == [NAMESPACE]
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    assert "@import" not in text
    assert "<script" not in text


@pytest.mark.parametrize("name", WORDS)
def test_a_picture_shows_the_current_output(name, demo):
    # Layout depends on the version of rich; compare texts and colours.
    text = re.compile(r'<text class="([^"]*)"[^>]*>([^<]*)</text>|(\.[\w-]+ \{ fill[^}]*\})')
    assert text.findall(pictures.draw(name, demo)) == text.findall(read_picture(name))


@pytest.mark.parametrize("name", WORDS)
def test_a_picture_is_on_the_page_with_an_alternative_text(name):
    assert re.search(rf"!\[[^\]]{{20,}}\]\(images/{name}\.svg\)", (DOCS / "cli.md").read_text())
