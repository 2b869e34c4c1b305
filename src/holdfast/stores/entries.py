"""What a key holds, and what is written to one."""

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
