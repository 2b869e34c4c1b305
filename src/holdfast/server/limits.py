"""Limits on what one request may cost."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may cost: bytes of its body, and seconds until the response starts.

    ``attachment_bytes`` is for the body of an upload, which gets more time the more of it arrived.

    Raises:
        ValueError: A limit is not positive.

    """

    body_bytes: int = 64 * MEGABYTE
    seconds: float = 60.0
    attachment_bytes: int = 1024 * MEGABYTE

    def __post_init__(self) -> None:
        if self.body_bytes < 1 or self.attachment_bytes < 1 or not self.seconds > 0:
            raise ValueError(
                f"limits must be positive, got {self.body_bytes} and {self.attachment_bytes} bytes "
                f"and {self.seconds} s"
            )
