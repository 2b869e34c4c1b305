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
from holdfast.log.changes import as_changes, changes_json
from holdfast.log.event import ChangesForm
from holdfast.state.diff import Changes

FORMAT = 1
SURELY_FINE = 1 << 26
HIGHEST_RATIO = 200
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


class KeyframeForm(msgspec.Struct):
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


def encoded(seq: int, hash_: str, chain: Sequence[int], changes: Changes) -> tuple[bytes, int]:
    """The bytes of a keyframe, and the size of its changes."""
    raw = msgspec.json.encode(changes_json(changes))
    digest = hashlib.sha256(raw).hexdigest()
    form = KeyframeForm(FORMAT, seq, hash_, list(chain), digest, msgspec.Raw(raw))
    return packed(msgspec.json.encode(form)), len(raw)


def decoded(key: str, data: bytes) -> Keyframe:
    """A keyframe from its bytes. ``IntegrityError`` names the key of one that is damaged."""
    try:
        form = msgspec.json.decode(unpacked(data), type=KeyframeForm)
    except (zlib.error, *MALFORMED) as error:
        raise damaged(key, str(error)) from error
    if form.format > FORMAT:
        raise InvalidDocumentError(
            f"{key} was written by a newer Holdfast (format {form.format}, known is {FORMAT}): "
            "upgrade this one"
        )
    try:
        if hashlib.sha256(form.changes).hexdigest() != form.digest:
            raise damaged(key, "its content does not match its digest")
        written = msgspec.json.decode(form.changes, type=ChangesForm)
        changes = as_changes(written.set, written.delete)
    except (HoldfastError, *MALFORMED) as error:
        if isinstance(error, IntegrityError | UnsupportedValueError):
            raise
        raise damaged(key, str(error)) from error
    return Keyframe(form.seq, form.hash, tuple(form.chain), changes, len(form.changes))


def packed(text: bytes) -> bytes:
    """A text packed by gzip, but not so well that whoever unpacks it would take it for a trap."""
    # The time is left out, so that the same state gives the same bytes.
    data = gzip.compress(text, 1, mtime=0)
    return data if len(text) <= most_of(data) else gzip.compress(text, 0, mtime=0)


def unpacked(data: bytes) -> bytes:
    """What gzip packed. An end that is cut off, or more after it, is an error."""
    work = zlib.decompressobj(zlib.MAX_WBITS | 16)
    text = work.decompress(data, most_of(data))
    if work.unconsumed_tail:
        raise ValueError(f"it has {len(data):,} bytes and far too many when it is unpacked")
    if not work.eof or work.unused_data:
        raise ValueError("it is cut short, or goes on after its end")
    return text


def most_of(data: bytes) -> int:
    """How many bytes are unpacked of these at most."""
    return max(SURELY_FINE, HIGHEST_RATIO * len(data))


def damaged(key: str, problem: str) -> KeyframeError:
    """The error for a keyframe that is not as it was written."""
    return KeyframeError(
        f"the keyframe {key} is damaged: {problem:.400}. The log gives the same state: delete the "
        "keyframe, or restore it from a backup"
    )
