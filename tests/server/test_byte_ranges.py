"""Parsing of single byte ranges."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.byte_ranges import parse_range, resolve_range


@pytest.mark.parametrize(
    ("header", "size", "expected"),
    [
        ("bytes=0-0", 10, (0, 1)),
        ("bytes=0-9", 10, (0, 10)),
        ("bytes=0-99", 10, (0, 10)),
        ("bytes=3-", 10, (3, 10)),
        ("bytes=-3", 10, (7, 10)),
        ("bytes=-99", 10, (0, 10)),
        ("BYTES= 1-2 ", 10, (1, 3)),
        ("bytes=10-", 10, None),
        ("bytes=10-20", 10, None),
        ("bytes=-0", 10, None),
        ("bytes=0-", 0, None),
        ("bytes=-5", 0, None),
    ],
)
def test_range_of_a_content(header, size, expected):
    found = resolve_range(parse_range(header), size)
    assert (found and (found.start, found.end)) == expected


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=5-4",
        "bytes=0-1,3-4",
        "bytes=a-b",
        "bytes=\u0661-\u0662",
        "items=0-1",
        "bytes=0-" + "9" * 40,
    ],
)
def test_malformed_and_multiple_ranges_are_ignored(header):
    assert parse_range(header) is None


@given(st.integers(0, 30), st.integers(0, 30), st.integers(0, 20))
def test_a_range_is_a_slice(first, last, size):
    content = bytes(range(size))
    positions = parse_range(f"bytes={first}-{last}")
    if first > last:
        assert positions is None
        return
    found = resolve_range(positions, size)
    assert content[first : last + 1] == (b"" if found is None else content[found.start : found.end])
