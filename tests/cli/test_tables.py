"""Tables that fit the terminal."""

from __future__ import annotations

import datetime as dt

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from holdfast.cli.tables import (
    Column,
    fit_columns,
    fold_text,
    format_minute,
    format_tags,
    print_table,
    shorten_ids,
)

COLUMNS = (
    Column("name", least=8),
    Column("n", rank=1, right=True),
    Column("extra", rank=3, least=6, optional=True),
)


def test_columns_line_up_under_wide_characters(capsys):
    print_table([Column("name"), Column("n")], [["東京", 1], ["ab", 2]], "")
    assert capsys.readouterr().out == "name  n\n東京  1\nab    2\n"


def test_numbers_are_aligned_to_the_right(capsys):
    print_table(COLUMNS, [["a", 1, ""], ["b", 100, "-"]], "")
    assert capsys.readouterr().out == "name    n\na       1\nb     100\n"


def test_empty_table_prints_a_sentence(capsys):
    print_table(COLUMNS, [], "no sessions")
    assert capsys.readouterr().out == "no sessions\n"


def test_least_important_columns_are_dropped_first():
    rows = [["name" * 3, 12345, "some words"]]

    def names(width: int) -> list[str]:
        return [column.name for column in fit_columns(COLUMNS, rows, width)[0]]

    assert names(40) == ["name", "n", "extra"]
    assert names(28) == ["name", "n", "extra"]  # folded
    assert names(20) == ["name", "n"]
    assert names(15) == ["name", "n"]  # the name is folded
    assert names(13) == ["name"]


def test_short_form_is_used_if_the_full_one_does_not_fit():
    rows = [[("full" * 5, "short"), 1, ""]]
    assert fit_columns(COLUMNS, rows, 30)[1] == [["full" * 5, "1"]]
    assert fit_columns(COLUMNS, rows, 15)[1] == [["short", "1"]]


@given(
    st.lists(st.tuples(st.text(max_size=60), st.integers(), st.text(max_size=60)), min_size=1),
    st.integers(min_value=24, max_value=120),
)
def test_table_fits_without_truncating_cells(rows, width):
    kept, cells, widths = fit_columns(COLUMNS, rows, width)
    assert sum(widths) + 2 * (len(widths) - 1) <= width
    assert kept[0].name == "name"
    for row in cells:
        for text, most in zip(row, widths, strict=True):
            lines = fold_text(text, most)
            assert all(cell_len(line) <= most for line in lines)
            assert "".join("".join(lines).split()) == "".join(text.split())


def test_shortened_ids_are_distinct_and_not_numbers():
    ids = ["019a8b5e-6f00-7000-8000-000000000001", "019a8b5e-6f01-7000-8000-000000000002"]
    assert shorten_ids(ids, ids) == ["019a8b5e-6f00", "019a8b5e-6f01"]
    others = [*ids, "019a8b5e-6f01-7000-9000-000000000003"]
    assert shorten_ids(ids, others) == [each[:20] for each in ids]
    digits = ["0" * 20 + "a", "1" * 20 + "b"]
    assert shorten_ids(digits, digits) == digits
    assert shorten_ids(["a", "b"], ["a", "b"]) == ["a", "b"]
    assert shorten_ids([], []) == []


def test_format_minute_is_utc():
    zone = dt.timezone(dt.timedelta(hours=2))
    at = dt.datetime(2026, 6, 1, 11, 30, 15, tzinfo=zone)
    assert format_minute(at) == ("2026-06-01 09:30:15Z", "2026-06-01 09:30Z")


def test_tags_are_separated_by_commas():
    assert format_tags({"env": "x", "reason": "incident"}) == "env=x, reason=incident"
    assert format_tags({}) == "-"
