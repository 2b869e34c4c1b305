"""Content types that are served as they are, and names of downloads."""

from __future__ import annotations

import re
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.server.media_types import BINARY, content_disposition, select_content_type

DIGEST = "ab" * 32
HEADER = re.compile(r"attachment; filename=\"([^\"\\/]+)\"(?:; filename\*=UTF-8''(\S+))?")


@pytest.mark.parametrize(
    "media_type",
    [
        None,
        "",
        "text/html",
        "TEXT/HTML",
        "application/xhtml+xml",
        "image/svg+xml",
        "text/xml",
        "application/xml",
        "text/javascript",
        "text/css",
        "application/pdf",
        "multipart/x-mixed-replace",
        "image/png, text/html",
        "image/png\r\nX-Evil: 1",
    ],
)
def test_types_that_a_browser_may_run_are_served_as_binary(media_type):
    assert select_content_type(media_type) == BINARY


def test_safe_types_are_kept_without_parameters():
    assert select_content_type("image/PNG; foo=bar") == "image/png"
    assert select_content_type("text/plain; charset=utf-7") == "text/plain; charset=utf-8"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("chart.png", 'inline; filename="chart.png"'),
        (None, 'inline; filename="abababababababab"'),
        ("../../etc/passwd", 'inline; filename="_.._etc_passwd"'),
        ("caf\u00e9.txt", "inline; filename=\"caf_.txt\"; filename*=UTF-8''caf%C3%A9.txt"),
        (
            'a"; x="b.exe',
            "inline; filename=\"a__ x=_b.exe\"; filename*=UTF-8''a_%3B%20x%3D_b.exe",
        ),
    ],
)
def test_name_of_a_download(name, expected):
    assert content_disposition(name, DIGEST, "image/png") == expected


@given(st.text(max_size=300))
def test_any_name_gives_one_valid_header(name):
    found = content_disposition(name, DIGEST, BINARY)
    assert found.isascii()
    assert found.isprintable()
    match = re.fullmatch(
        r"attachment; filename=\"([^\"\\/]+)\"(?:; filename\*=UTF-8''(\S+))?", found
    )
    assert match is not None
    given_name = unquote(match[2] or match[1])
    assert not given_name.startswith(".")
    assert not set(given_name) & set('/\\:"<>|?*\n\r\x00')
