"""Every table of the docs renders as a table, with all of its rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from servers.process import needs

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.DOTALL)
RAW = re.compile(r"^(?:<p>)?\s*\|.*|^.*\|\s*:?-{3,}.*", re.MULTILINE)
"""Matches a row of a table that was not rendered."""


def find_unrendered_rows(text):
    """Return the rows of tables that the site shows as text."""
    import markdown  # comes with Zensical

    rendered = markdown.markdown(text, extensions=["tables", "fenced_code", "admonition"])
    return RAW.findall(CODE.sub("", rendered))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_row_of_a_table_is_rendered(page):
    needs("markdown")
    assert find_unrendered_rows(page.read_text("utf-8")) == []


def test_a_row_after_an_empty_line_is_found():
    needs("markdown")
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert find_unrendered_rows(table) == []
    assert find_unrendered_rows(f"{table}\n| 3 | 4 |\n") != []
    assert find_unrendered_rows(f"Text\n{table}") != []
