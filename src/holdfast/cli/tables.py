"""Tables that fit the terminal.

A table that is too wide first shows the short form of its cells, then folds what may be dropped
onto further lines, drops what is extra, folds the ids, and drops more, the least important first.
What is never dropped is never cut: an id that is printed can be copied, on one line or on several.
Without a terminal the width is that of ``COLUMNS``, or 80.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rich.cells import cell_len
from rich.filesize import decimal
from rich.text import Text

from holdfast.cli.console import escape_control_codes, out, print_line

EXTRA = 3
"""Columns from this rank on are dropped before an id is folded."""
GAP = 2
WIDTH = 80
MIN_WIDTH = 20
NOTHING = ("", "-")
SHORT = 13
"""Characters of a version 7 UUID that hold its timestamp."""

Cell: TypeAlias = object | tuple[object, object]
"""The content of a cell, or a pair of its full and short form."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, and how it shrinks if the table is too wide."""

    name: str
    rank: int = 0
    """0 if it is never dropped; the highest rank is dropped first."""
    least: int = 0
    """The width it may be folded to; 0 if it is not folded."""
    right: bool = False
    """Whether it is aligned to the right."""
    optional: bool = False
    """Whether it is omitted if all its cells are empty."""


def terminal_width() -> int:
    """Return the width of the terminal; 80 if it is unusably narrow."""
    width = shutil.get_terminal_size((WIDTH, 24)).columns
    return width if width >= MIN_WIDTH else WIDTH


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], nothing: str) -> None:
    """Print a table that fits the terminal, or a sentence if there are no rows."""
    if not rows:
        print_line(nothing)
        return
    kept, cells, widths = fit_columns(columns, rows, terminal_width())
    print_row([column.name for column in kept], kept, widths, style="bold")
    for row in cells:
        print_row(row, kept, widths)


def fit_columns(
    columns: Sequence[Column], rows: Sequence[Sequence[Cell]], width: int
) -> tuple[list[Column], list[list[str]], list[int]]:
    """Return the columns to show, their cells and their widths."""
    full = [[cell_text(cell, short=False) for cell in row] for row in rows]
    short = [[cell_text(cell, short=True) for cell in row] for row in rows]
    shown = [
        number
        for number, column in enumerate(columns)
        if not (column.optional and all(row[number] in NOTHING for row in full))
    ]
    while True:
        kept = [columns[number] for number in shown]
        for texts in (full, short):
            cells = [[row[number] for number in shown] for row in texts]
            widths = natural_widths(kept, cells)
            if table_width(widths) <= width:
                return kept, cells, widths
        droppable = sorted((columns[number].rank, number) for number in shown)[::-1]
        widths = folded_widths([each if each.rank else Column("") for each in kept], widths, width)
        if table_width(widths) > width and droppable[0][0] < EXTRA:
            widths = folded_widths(kept, widths, width)
        if table_width(widths) <= width or not droppable[0][0]:
            return kept, cells, widths
        shown.remove(droppable[0][1])


def cell_text(cell: Cell, *, short: bool) -> str:
    """Return the text of a cell."""
    return escape_control_codes(str(cell[short] if isinstance(cell, tuple) else cell))


def natural_widths(columns: Sequence[Column], cells: Sequence[Sequence[str]]) -> list[int]:
    """Return the widths of unfolded columns."""
    headed = [[column.name for column in columns], *cells]
    return [max(map(cell_len, column)) for column in zip(*headed, strict=True)]


def table_width(widths: Sequence[int]) -> int:
    """Return the width of a table."""
    return sum(widths) + GAP * (len(widths) - 1)


def folded_widths(columns: Sequence[Column], widths: Sequence[int], most: int) -> list[int]:
    """Return narrower widths, shrinking the widest foldable column first."""
    found = list(widths)
    while table_width(found) > most:
        wide = [n for n, column in enumerate(columns) if column.least and found[n] > column.least]
        if not wide:
            break
        found[max(wide, key=lambda number: found[number])] -= 1
    return found


def print_row(
    row: Sequence[str], columns: Sequence[Column], widths: Sequence[int], *, style: str = ""
) -> None:
    """Print one row, on several lines if a cell is folded."""
    folded = [fold_text(cell, width) for cell, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, folded))):
        parts = []
        for lines, column, width in zip(folded, columns, widths, strict=True):
            text = lines[number] if number < len(lines) else ""
            space = " " * (width - cell_len(text))
            parts.append(space + text if column.right else text + space)
        print_line(((" " * GAP).join(parts).rstrip(), style))


def fold_text(text: str, width: int) -> list[str]:
    """Break a text into lines, at spaces if possible."""
    if cell_len(text) <= width:
        return [text]
    return [str(line).rstrip() for line in Text(text).wrap(out, width, overflow="fold")]


# ---------------------------------------------------------------------------------------- cells


def format_size(size: int) -> str:
    """Return a size such as 1.4 MB."""
    return decimal(size)


def format_minute(at: dt.datetime) -> Cell:
    """Return a UTC time to the second, and its short form to the minute."""
    text = f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S}"
    return f"{text}Z", f"{text[:-3]}Z"


def format_tags(tags: dict[str, str]) -> str:
    """Return tags as K=V pairs."""
    return ", ".join(f"{name}={value}" for name, value in tags.items()) or "-"


def shorten_ids(ids: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return unambiguous prefixes of ids, all of one length.

    None is all digits, since a REF of digits is an event number.
    """
    for size in range(SHORT, max(map(len, ids), default=0)):
        count = Counter(id_[:size] for id_ in known)
        found = [id_[:size] for id_ in ids]
        if all(
            count[each] <= 1 and not each.isdecimal() and not each.endswith("-") for each in found
        ):
            return found
    return list(ids)
