"""What a server tells other processes about a write: which keys, and who wrote them.

A notification is JSON, so that it has no characters that a server would reject:

    ["5f3c…", ["sessions/ses_1/scopes/agent/bot/log/…"]]    the writing process, and the keys
    ["5f3c…", "sessions/ses_1/"]                            for many keys: what all start with

The writes of a process wake its own watches without a server, so it ignores what it sent itself.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

MAX_SIZE = 7900
"""Bytes of a notification. PostgreSQL allows 7,999."""
MAX_PREFIX = 1000
"""Characters of a prefix, each of which takes at most 6 bytes in JSON."""

_process_ids: dict[int, str] = {}
_decoder = msgspec.json.Decoder(tuple[str, list[str] | str])


@dataclass(frozen=True, slots=True)
class Notification:
    """A write: its keys, or None if only their common ``prefix`` is known."""

    process_id: str
    keys: Sequence[str] | None
    prefix: str = ""


def get_process_id() -> str:
    """Return 16 digits that identify this process, also among those of other machines."""
    pid = os.getpid()  # another one in a forked child
    known = _process_ids.get(pid)
    if known is None:
        known = _process_ids[pid] = secrets.token_hex(8)
    return known


def encode_notification(keys: Sequence[str]) -> bytes:
    """Return the notification of a write by this process."""
    encoded = msgspec.json.encode((get_process_id(), keys))
    if len(encoded) <= MAX_SIZE:
        return encoded
    return msgspec.json.encode((get_process_id(), find_common_prefix(keys)[:MAX_PREFIX]))


def find_common_prefix(keys: Sequence[str]) -> str:
    """Return what all of some keys start with."""
    first, last = min(keys), max(keys)  # all others are between them
    for at, character in enumerate(first):
        if last[at] != character:
            return first[:at]
    return first


def decode_notification(encoded: bytes) -> Notification:
    """Return a notification. One that Holdfast did not send may stand for any write."""
    try:
        process_id, written = _decoder.decode(encoded)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Notification("", None)
    if isinstance(written, str):
        return Notification(process_id, None, written)
    return Notification(process_id, written)
