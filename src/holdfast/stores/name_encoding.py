r"""Keys as names of files and objects: readable, reversible, and in the same order.

Most characters stand for themselves. The others are escaped:

    controls, space, !     !00 to !21       unprintable, or trimmed by some systems
    /                      .~/              the parts of a key are folders, whose names end in .~
    @ and A to Z           @- and @a to @z  where names are compared without case
    [ and \                [5b and [5c      some servers treat a backslash as a slash
    } and all above        }7d to }ff       each byte of the character in UTF-8

A name that would be empty or end in a dot gets ``!-`` at its end. So no part of a name is empty,
``.`` or ``..``, and no name is both a folder and a file.

Names sort like keys, both by bytes and part by part, as some servers list: each escape sorts where
its characters do, and a slash always follows ``.~``, so it is only compared with another slash.
"""

from __future__ import annotations

import re

SLASH = ".~/"
END = "!-"


def _build_table(*, fold_case: bool) -> dict[int, str]:
    table = {point: f"!{point:02x}" for point in range(0x22)}
    table[ord("/")] = SLASH
    table |= {ord(mark): f"[{ord(mark):02x}" for mark in "[\\"}
    table |= {point: f"}}{point:02x}" for point in range(0x7D, 0x100)}
    if fold_case:
        table[ord("@")] = "@-"
        table |= {point: f"@{chr(point).lower()}" for point in range(ord("A"), ord("Z") + 1)}
    return table


CASE_SENSITIVE = _build_table(fold_case=False)
CASE_FOLDED = _build_table(fold_case=True)
ESCAPES = re.compile(r"!-\Z|[!\[}]([0-9a-f]{2})|\.~/|@([-a-z])")


def encode_key_name(key: str, *, fold_case: bool = False) -> str:
    """Return the name of a key, with slashes between folders.

    ``fold_case`` escapes capital letters, for systems that compare names without case.
    """
    # Each byte of UTF-8 as one character: byte order is code point order.
    name = key.encode().decode("latin-1").translate(CASE_FOLDED if fold_case else CASE_SENSITIVE)
    return name + END if name.endswith((".", "/")) else name


def decode_key_name(name: str, *, fold_case: bool = False) -> str | None:
    """Return the key of a name, or None if it is not the name of a key."""

    def unescape(escape: re.Match[str]) -> str:
        if escape[1]:
            return chr(int(escape[1], 16))
        if escape[2]:
            if not fold_case:
                return escape[0]
            return "@" if escape[2] == "-" else escape[2].upper()
        return "/" if escape[0] == SLASH else ""

    try:
        key = ESCAPES.sub(unescape, name).encode("latin-1").decode()
    except UnicodeError:
        return None
    return key if key and encode_key_name(key, fold_case=fold_case) == name else None
