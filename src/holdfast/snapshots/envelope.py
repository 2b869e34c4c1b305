"""Small JSON objects that notice when they were damaged.

    {"format": 1, "digest": "<sha256 of the text of content>", "content": {…}}

Records of snapshots and manifests are kept like this.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from holdfast.errors import IntegrityError, InvalidDocumentError

FORMAT = 1


class Envelope(msgspec.Struct):
    """An object as it is stored."""

    format: int
    digest: str
    content: msgspec.Raw


def encode_envelope(content: dict[str, Any]) -> bytes:
    """The bytes of an object."""
    raw = msgspec.json.encode(content)
    digest = hashlib.sha256(raw).hexdigest()
    return msgspec.json.encode(Envelope(FORMAT, digest, msgspec.Raw(raw)))


def decode_envelope(key: str, data: bytes, what: str) -> dict[str, Any]:
    """An object from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    try:
        form = msgspec.json.decode(data, type=Envelope)
        if form.format > FORMAT:
            raise InvalidDocumentError(
                f"{key} was written by a newer Holdfast (format {form.format}, known is {FORMAT}): "
                "upgrade this one"
            )
        if hashlib.sha256(form.content).hexdigest() != form.digest:
            raise damaged_record_error(key, what, "its content does not match its digest")
        return msgspec.json.decode(form.content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidDocumentError):
            raise
        raise damaged_record_error(key, what, str(error)) from error


def damaged_record_error(key: str, what: str, problem: str) -> IntegrityError:
    """The error for an object that is not as it was written."""
    return IntegrityError(f"the {what} {key} is damaged: {problem:.400}. Restore it from a backup")
