r"""Keys as names of files and objects: readable, reversible, and in the same order.

Every character is written as itself, but for these:

    controls, space, !     !00 to !21       not printable, or trimmed by somebody
    /                      .~/              the parts of a key are folders, whose names end in .~
    @ and A to Z           @- and @a to @z  where names that differ in case alone would meet
    [ and \                [5b and [5c      some servers take a backslash for a slash
    } and all above        }7d to }ff       each byte of it in UTF-8

A name that would end in nothing or in a dot gets !- at its end. So no name has an empty part, none
is ``.`` or ``..``, and none is a folder and a file at once.

The order of names is the order of keys, both by bytes and by folders first, as some servers list:
each mark sorts where the characters that it stands for do, and a slash always follows ``.~``, so
that it is only ever compared with another slash.
"""

from __future__ import annotations

import re

SLASH = ".~/"
END = "!-"


def _table(*, fold_case: bool) -> dict[int, str]:
    table = {point: f"!{point:02x}" for point in range(0x22)}
    table[ord("/")] = SLASH
    table |= {ord(mark): f"[{ord(mark):02x}" for mark in "[\\"}
    table |= {point: f"}}{point:02x}" for point in range(0x7D, 0x100)}
    if fold_case:
        table[ord("@")] = "@-"
        table |= {point: f"@{chr(point).lower()}" for point in range(ord("A"), ord("Z") + 1)}
    return table


CASES_DIFFER = _table(fold_case=False)
CASES_MEET = _table(fold_case=True)
MARKS = re.compile(r"!-\Z|[!\[}]([0-9a-f]{2})|\.~/|@([-a-z])")


def encode_key_name(key: str, *, fold_case: bool = False) -> str:
    """A key as a path of names. ``fold_case``: for places where names differ by more than case."""
    # As if each byte of UTF-8 were a character: the order of bytes is that of code points.
    name = key.encode().decode("latin-1").translate(CASES_MEET if fold_case else CASES_DIFFER)
    return name + END if name.endswith((".", "/")) else name


def decode_key_name(name: str, *, fold_case: bool = False) -> str | None:
    """The key that a name stands for, or None where it is nobody's."""

    def meaning(mark: re.Match[str]) -> str:
        if mark[1]:
            return chr(int(mark[1], 16))
        if mark[2]:
            if not fold_case:
                return mark[0]
            return "@" if mark[2] == "-" else mark[2].upper()
        return "/" if mark[0] == SLASH else ""

    try:
        key = MARKS.sub(meaning, name).encode("latin-1").decode()
    except UnicodeError:
        return None
    return key if key and encode_key_name(key, fold_case=fold_case) == name else None
