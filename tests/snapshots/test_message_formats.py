"""Texts of messages whose large parts are references."""

from __future__ import annotations

import pytest

from holdfast.snapshots.message_formats import message_texts
from holdfast.values.references import Attachment, BlobReference

TEXT = BlobReference("ab" * 32, 70_000, "str")
BYTES = BlobReference("cd" * 32, 5_000_000, "bytes")
CHART = Attachment("ef" * 32, 48_213, "image/png", "chart.png")
TEXT_LINE = "<text, 70.0 kB, sha256:abababab…>"
CHART_LINE = '<image/png "chart.png", 48.2 kB>'


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "user", "content": TEXT}, [TEXT_LINE]),
        ({"role": "user", "content": CHART}, [CHART_LINE]),
        ({"role": "user", "content": ["Look:", CHART]}, ["Look:", CHART_LINE]),
        ({"role": "user", "content": [{"type": "text", "text": TEXT}]}, [TEXT_LINE]),
        ({"type": "function_call_output", "call_id": "c", "output": TEXT}, [TEXT_LINE]),
        ({"role": "user", "parts": [{"part_kind": "user-prompt", "content": TEXT}]}, [TEXT_LINE]),
        (
            {"role": "tool", "tool_returns": [{"tool_call_id": "c", "func_response": TEXT}]},
            [TEXT_LINE],
        ),
    ],
)
def test_large_texts_and_attachments(message, expected):
    assert list(message_texts(message)) == expected


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": TEXT},
            },
            "<image/png, 70.0 kB>",
        ),
        ({"type": "image_url", "image_url": {"url": TEXT}}, "<image_url, 70.0 kB>"),
        ({"type": "input_audio", "input_audio": {"data": TEXT}}, "<input_audio, 70.0 kB>"),
        ({"type": "image", "base64": TEXT, "mime_type": "image/gif"}, "<image/gif, 70.0 kB>"),
        ({"inlineData": {"mimeType": "image/webp", "data": BYTES}}, "<image/webp, 5.0 MB>"),
        ({"image": {"format": "png", "source": {"bytes": BYTES}}}, "<image, 5.0 MB>"),
        ({"type": "file", "file": CHART}, CHART_LINE),
    ],
)
def test_image_or_file_is_described(part, expected):
    message = {"role": "user", "content": [{"type": "text", "text": "see"}, part]}
    assert list(message_texts(message)) == ["see", expected]


def test_other_parts_with_references_are_shown_as_they_are():
    part = {"type": "tool_result", "tool_use_id": "c", "content": TEXT}
    assert list(message_texts({"role": "user", "content": [part]})) == [part]
    small = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    assert list(message_texts({"role": "user", "content": [small]})) == [small]
