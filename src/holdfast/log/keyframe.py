"""Keyframes: the state at a place in the log, so that a load does not fold all that came before.

    <place>keyframes/<seq, 12 digits>.json.gz

    {"format": 1, "seq": 900, "hash": "…", "chain": [300, 600], "digest": "…",
     "changes": {"set": [[namespace, key, value], …], "delete": [[namespace, key], …]}}

A keyframe carries the whole state, or what changed in it since the keyframes of its ``chain``,
which are applied first, oldest first. So a session that only grows keeps each message once in its
log and once in a keyframe, however often one is written. ``hash`` binds it to the log, ``digest``
is the sha256 of the text of ``changes``. A keyframe is derived: without it the log gives the same
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
"""No more than so many times its own size is unpacked of a keyframe, beyond what is surely fine."""
MALFORMED = (
    msgspec.DecodeError,
    AttributeError,
    KeyError,
    RecursionError,
    TypeError,
    ValueError,
)


class KeyframeError(IntegrityError):
    """A keyframe is damaged or missing. Another one, or none, may do as well."""


class StoredKeyframe(msgspec.Struct):
    """A keyframe as it is stored, unpacked."""

    format: int
    seq: int
    hash: str
    chain: list[int]
    digest: str
    changes: msgspec.Raw


@dataclass(frozen=True, slots=True)
class Keyframe:
    """The state after an event, as changes to what the keyframes of its chain add up to."""

    seq: int
    hash: str
    chain: tuple[int, ...]
    changes: Changes
    size: int
    """Bytes of its changes, unpacked."""


def encode_keyframe(
    seq: int, hash_: str, chain: Sequence[int], changes: Changes
) -> tuple[bytes, int]:
    """The bytes of a keyframe, and the size of its changes."""
    raw = msgspec.json.encode(changes_to_json(changes))
    digest = hashlib.sha256(raw).hexdigest()
    form = StoredKeyframe(KEYFRAME_FORMAT, seq, hash_, list(chain), digest, msgspec.Raw(raw))
    return compress(msgspec.json.encode(form)), len(raw)


def decode_keyframe(key: str, data: bytes) -> Keyframe:
    """A keyframe from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    try:
        form = msgspec.json.decode(decompress(data), type=StoredKeyframe)
    except (zlib.error, *MALFORMED) as error:
        raise damaged_keyframe_error(key, str(error)) from error
    if form.format > KEYFRAME_FORMAT:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (format {form.format}, known is {KEYFRAME_FORMAT}): "
            "upgrade this one"
        )
    try:
        if hashlib.sha256(form.changes).hexdigest() != form.digest:
            raise damaged_keyframe_error(key, "its content does not match its digest")
        written = msgspec.json.decode(form.changes, type=StoredChanges)
        changes = changes_from_rows(written.set, written.delete)
    except (HoldfastError, *MALFORMED) as error:
        if isinstance(error, IntegrityError | UnsupportedValueError):
            raise
        raise damaged_keyframe_error(key, str(error)) from error
    return Keyframe(form.seq, form.hash, tuple(form.chain), changes, len(form.changes))


def compress(text: bytes) -> bytes:
    """A text packed by gzip, but not so well that whoever unpacks it would take it for a trap."""
    # The time is left out, so that the same state gives the same bytes.
    data = gzip.compress(text, 1, mtime=0)
    return data if len(text) <= max_decompressed_size(data) else gzip.compress(text, 0, mtime=0)


def decompress(data: bytes) -> bytes:
    """What gzip packed. An end that is cut off, or more after it, is an error."""
    work = zlib.decompressobj(zlib.MAX_WBITS | 16)
    text = work.decompress(data, max_decompressed_size(data))
    if work.unconsumed_tail:
        raise ValueError(f"it has {len(data):,} bytes and far too many when it is unpacked")
    if not work.eof or work.unused_data:
        raise ValueError("it is cut short, or goes on after its end")
    return text


def max_decompressed_size(data: bytes) -> int:
    """How many bytes are unpacked of these at most."""
    return max(ALWAYS_ALLOWED_SIZE, MAX_COMPRESSION_RATIO * len(data))


def damaged_keyframe_error(key: str, problem: str) -> KeyframeError:
    """The error for a keyframe that is not as it was written."""
    return KeyframeError(
        f"the keyframe {key} is damaged: {problem:.400}. The log gives the same state: delete the "
        "keyframe, or restore it from a backup"
    )
