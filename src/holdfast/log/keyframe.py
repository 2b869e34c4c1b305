"""Keyframes: the state at a position, so that a load need not fold the whole log.

    <prefix>keyframes/<incarnation>/<seq, 12 digits>.json.gz

    {"format": 1, "seq": 900, "hash": "…", "chain": [300, 600], "digest": "…",
     "changes": {"set": [[namespace, key, value], …], "delete": [[namespace, key], …]}}

A keyframe holds the whole state, or the changes since the keyframes of its ``chain``, which are
applied first, oldest first. A session that only grows thus stores each message once in its log and
once in a keyframe, however many keyframes it has. ``hash`` binds the keyframe to the log.
``digest`` is the sha256 of the text of ``changes``. Keyframes are derived: the log yields the same
state.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.errors import (
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    UnsupportedValueError,
)
from holdfast.log.changes import changes_from_rows, changes_to_json
from holdfast.log.event import StoredChanges
from holdfast.state.diff import Changes

KEYFRAME_FORMAT = 1
ALWAYS_ALLOWED_SIZE = 1 << 26
MAX_COMPRESSION_RATIO = 200
"""The limit for the decompressed size, beyond `ALWAYS_ALLOWED_SIZE`."""
MALFORMED = (
    msgspec.DecodeError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


class KeyframeError(IntegrityError):
    """A keyframe is damaged or missing. An older one, or the log alone, yields the same state."""


class StoredKeyframe(msgspec.Struct):
    """The JSON object of a keyframe."""

    format: int
    seq: int
    hash: str
    chain: list[int]
    digest: str
    changes: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Keyframe:
    """The state after an event, as changes to the state of its chain."""

    seq: int
    hash: str
    chain: tuple[int, ...]
    changes: Changes
    size: int
    """The decompressed size of the changes in bytes."""


def encode_keyframe(
    seq: int, hash_: str, chain: Sequence[int], changes: Changes
) -> tuple[bytes, int]:
    """Return the bytes of a keyframe, and the decompressed size of its changes."""
    raw = msgspec.json.encode(changes_to_json(changes))
    digest = hashlib.sha256(raw).hexdigest()
    stored = StoredKeyframe(KEYFRAME_FORMAT, seq, hash_, list(chain), digest, msgspec.Raw(raw))
    return compress(msgspec.json.encode(stored)), len(raw)


def decode_keyframe(key: str, data: bytes) -> Keyframe:
    """Decode a keyframe and verify its digest.

    Raises:
        KeyframeError: It is damaged.
        InvalidDocumentError: It was written by a newer version of Holdfast.
        UnsupportedValueError: A value has a registered type that is not registered here.

    """
    stored = decode_stored_keyframe(key, data)
    try:
        rows = msgspec.json.decode(stored.changes, type=StoredChanges)
        changes = changes_from_rows(rows.set, rows.delete)
    except (HoldfastError, *MALFORMED) as error:
        if isinstance(error, IntegrityError | UnsupportedValueError):
            raise
        raise damaged_keyframe_error(key, str(error)) from error
    return Keyframe(stored.seq, stored.hash, tuple(stored.chain), changes, len(stored.changes))


def decode_stored_keyframe(key: str, data: bytes) -> StoredKeyframe:
    """Decode a keyframe and verify its digest; its changes stay text.

    Raises:
        KeyframeError: It is damaged.
        InvalidDocumentError: It was written by a newer version of Holdfast.

    """
    try:
        stored = msgspec.json.decode(decompress(data), type=StoredKeyframe)
    except (zlib.error, *MALFORMED) as error:
        raise damaged_keyframe_error(key, str(error)) from error
    if stored.format > KEYFRAME_FORMAT:
        raise InvalidDocumentError(
            f"{key} has format {stored.format}, but this version supports {KEYFRAME_FORMAT}; "
            "upgrade Holdfast"
        )
    if hashlib.sha256(stored.changes).hexdigest() != stored.digest:
        raise damaged_keyframe_error(key, "its content does not match its digest")
    return stored


def compress(text: bytes) -> bytes:
    """Compress text with gzip, within the ratio that `decompress` accepts."""
    # Without a timestamp, the same state gives the same bytes.
    data = gzip.compress(text, 1, mtime=0)
    return data if len(text) <= max_decompressed_size(data) else gzip.compress(text, 0, mtime=0)


def decompress(data: bytes) -> bytes:
    """Decompress gzip data.

    Raises:
        ValueError: It is truncated, followed by other data, or decompresses to too much.

    """
    decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
    text = decompressor.decompress(data, max_decompressed_size(data))
    if decompressor.unconsumed_tail:
        raise ValueError(f"its {len(data):,} bytes decompress to too much data")
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError("it is truncated, or followed by other data")
    return text


def max_decompressed_size(data: bytes) -> int:
    """Return the limit for the decompressed size of data."""
    return max(ALWAYS_ALLOWED_SIZE, MAX_COMPRESSION_RATIO * len(data))


def damaged_keyframe_error(key: str, problem: str) -> KeyframeError:
    """Return the error for a damaged keyframe."""
    return KeyframeError(
        f"keyframe {key} is damaged: {problem:.400}; delete it if the log is complete, or restore "
        "it from a backup"
    )
