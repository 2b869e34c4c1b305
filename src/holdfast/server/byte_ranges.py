"""Single byte ranges of requests (RFC 9110, section 14)."""

from __future__ import annotations

import re
from dataclasses import dataclass

RANGE = re.compile(r"bytes=[ \t]*([0-9]{0,18})-([0-9]{0,18})[ \t]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """The bytes from ``start`` up to ``end``, which is not included."""

    start: int
    end: int

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.start

    def content_range(self, size: int) -> str:
        """Return the header ``Content-Range`` for a content of this size."""
        return f"bytes {self.start}-{self.end - 1}/{size}"


def parse_range(header: str | None) -> tuple[str, str] | None:
    """Return the first and the last position in a header, as they were sent.

    Return None for a header that is to be ignored: one that is malformed, of another unit, or has
    several ranges.
    """
    found = None if header is None else RANGE.fullmatch(header.strip())
    if found is None or found[1] == found[2] == "":
        return None
    if found[1] and found[2] and int(found[1]) > int(found[2]):
        return None
    return found[1], found[2]


def resolve_range(positions: tuple[str, str], size: int) -> ByteRange | None:
    """Return the range of a content, or None if it has none of these bytes."""
    first, last = positions
    if not first:
        start, end = max(0, size - int(last)), size
    else:
        start, end = int(first), min(size, int(last) + 1) if last else size
    return ByteRange(start, end) if start < end else None
