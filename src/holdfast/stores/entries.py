"""The values that a store takes and returns: entries, puts and conditions.

As structs they are made ten times faster than as frozen dataclasses.
"""

from __future__ import annotations

import msgspec


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The value of a key and the etag of the write that stored it.

    An etag is opaque: compare it, do not interpret it.
    """

    value: bytes
    etag: str


class Put(msgspec.Struct, frozen=True, gc=False):
    """One write of a batch, with the arguments of ``StateStore.put``."""

    key: str
    value: bytes
    if_match: str | None = None
    if_absent: bool = False


class Condition(msgspec.Struct, frozen=True, gc=False):
    """A requirement of a batch on a key that it does not write: it must still have this etag."""

    key: str
    etag: str
