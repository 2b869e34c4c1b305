"""The envelope around small stored JSON objects, which detects damage.

    {"format": 1, "digest": "<sha256 of the text of content>", "content": {…}}

Manifests, snapshot records and id entries are stored this way.
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


def encode_envelope(content: dict[str, Any] | msgspec.Struct) -> bytes:
    """Return the bytes of an object with its checksum."""
    raw = msgspec.json.encode(content)
    digest = hashlib.sha256(raw).hexdigest()
    return msgspec.json.encode(Envelope(FORMAT, digest, msgspec.Raw(raw)))


def decode_envelope(key: str, data: bytes, what: str) -> dict[str, Any]:
    """Return the object in an envelope after verifying its checksum.

    ``what`` names the kind of object in errors.

    Raises:
        IntegrityError: The object is damaged.
        InvalidDocumentError: A newer version of Holdfast wrote it.

    """
    try:
        envelope = msgspec.json.decode(data, type=Envelope)
        if envelope.format > FORMAT:
            raise InvalidDocumentError(
                f"{key} was written by a newer Holdfast (format {envelope.format}, this one reads "
                f"{FORMAT}); upgrade"
            )
        if hashlib.sha256(envelope.content).hexdigest() != envelope.digest:
            raise damaged_record_error(key, what, "content does not match its digest")
        return msgspec.json.decode(envelope.content, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        if isinstance(error, InvalidDocumentError):
            raise
        raise damaged_record_error(key, what, str(error)) from error


def damaged_record_error(key: str, what: str, problem: str) -> IntegrityError:
    """Return the error for a damaged object."""
    return IntegrityError(f"{what} {key} is damaged: {problem:.400}; restore it from a backup")
