"""Limits on what one request may cost."""

from __future__ import annotations

from dataclasses import dataclass, fields

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What requests may cost.

    Raises:
        ValueError: A limit is not positive.

    """

    body_bytes: int = 64 * MEGABYTE
    """Bytes of the body of a request."""
    seconds: float = 60.0
    """Seconds until the response starts."""
    attachment_bytes: int = 1024 * MEGABYTE
    """Bytes of the body of an upload, which gets more time the more of it arrived."""
    streams: int = 256
    """Open event streams of a process."""
    streams_per_token: int = 64
    """Open event streams of a token in a process."""
    heartbeat: float = 15.0
    """Seconds without an event after which a stream sends a comment."""

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:
                raise ValueError(f"limits must be positive, got {value} for {each.name}")
