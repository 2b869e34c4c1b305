"""The values that a store takes and returns: entries, puts and conditions."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """The value of a key and the etag of the write that stored it.

    An etag is opaque: compare it, do not interpret it.
    """

    value: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Put:
    """One write of a batch, with the arguments of ``StateStore.put``."""

    key: str
    value: bytes
    if_match: str | None = None
    if_absent: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A requirement of a batch on a key that it does not write: it must still have this etag."""

    key: str
    etag: str
