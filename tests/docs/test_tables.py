"""Every table of the docs is rendered as one, with all of its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servers.process import needs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
RAW = re.compile(r"^(?:<p>)?\s*\|.*|^.*\|\s*:?-{3,}.*", re.MULTILINE)
"""A line of the rendered page that is still the source of a row."""


def left_over(text):
    """The rows of tables in a Markdown text that the site shows as text."""
    import markdown  # comes with the site's generator

    rendered = markdown.markdown(text, extensions=["tables", "fenced_code", "admonition"])
    return RAW.findall(CODE.sub("", rendered))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_row_of_a_table_is_shown_as_text(page):
    needs("markdown")
    assert left_over(page.read_text("utf-8")) == []


def test_a_row_that_an_empty_line_cuts_off_is_found():
    needs("markdown")
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert left_over(table) == []
    assert left_over(f"{table}\n| 3 | 4 |\n") != []
    assert left_over(f"Text\n{table}") != []
