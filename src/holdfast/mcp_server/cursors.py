"""Cursors: opaque texts that say where the next page starts."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from holdfast.errors import short_repr

T = TypeVar("T")


class InvalidCursorError(ValueError):
    """The cursor is not from a page of the same call."""

    def __init__(self, cursor: str) -> None:
        super().__init__(
            f"invalid cursor {short_repr(cursor)}; pass next_cursor of the previous page, or none"
        )


def encode_cursor(position: object) -> str:
    """Encode a position in a list."""
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def decode_cursor(cursor: str, kind: type[T]) -> T:
    """Decode a cursor as a position of this type.

    Raises:
        InvalidCursorError: It is not such a cursor.

    """
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        data = base64.b64decode(padded, altchars=b"-_", validate=True)
        return msgspec.json.decode(data, type=kind)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        raise InvalidCursorError(cursor) from None
