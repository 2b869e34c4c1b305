"""References as short texts."""

from __future__ import annotations

import pytest

from holdfast.values import to_json
from holdfast.values.reference_text import describe_reference, format_size, read_json_reference
from holdfast.values.references import Attachment, BlobReference

DIGEST = "ab12cd34" * 8


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (65_536, "65.5 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (5_000_000, "5.0 MB"),
        (3 * 10**12, "3.0 TB"),
        (3 * 10**16, "30,000.0 TB"),
    ],
)
def test_sizes(size, expected):
    assert format_size(size) == expected


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        (BlobReference(DIGEST, 5_000_000, "bytes"), "<bytes, 5.0 MB, sha256:ab12cd34…>"),
        (BlobReference(DIGEST, 70_000, "str"), "<text, 70.0 kB, sha256:ab12cd34…>"),
        (Attachment(DIGEST, 5, "image/png", "chart.png"), '<image/png "chart.png", 5 bytes>'),
        (Attachment(DIGEST, 5, None, "x" * 100), f'<attachment "{"x" * 80}…", 5 bytes>'),
        (Attachment(DIGEST, 5), "<attachment, 5 bytes>"),
    ],
)
def test_reference_as_text_and_from_json(reference, expected):
    assert describe_reference(reference) == expected
    assert read_json_reference(to_json(reference)) == reference


@pytest.mark.parametrize(
    "value", [None, "x", [], {}, {"$blob": 1}, {"$$blob": []}, {"$blob": [], "other": 1}]
)
def test_other_data_is_no_reference(value):
    assert read_json_reference(value) is None
