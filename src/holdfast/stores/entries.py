"""What a key holds, what is written to one, and what a batch of writes depends on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Entry:
    """What a key holds. The etag names this very write: it is compared, and never interpreted."""

    value: bytes
    etag: str


@dataclass(frozen=True, slots=True)
class Put:
    """One write of several: as the arguments of ``StateStore.put``."""

    key: str
    value: bytes
    if_match: str | None = None
    if_absent: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """A requirement of a batch on a key that it does not write: it must still have this etag."""

    key: str
    etag: str
