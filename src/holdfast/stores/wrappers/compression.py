"""Compression of values with zstd.

A stored value starts with a byte that no UTF-8 text starts with: ``c1`` and the value itself, if
compression would not make it smaller, or ``fe`` and a zstd frame with a checksum and its content
size. The size is checked first, because a small frame can claim more than fits into memory.
"""

from __future__ import annotations

from holdfast.errors import IntegrityError, StateStoreError, short_repr
from holdfast.extras import require_extra
from holdfast.stores.base import StateStore
from holdfast.stores.wrappers.base import TransformedStateStore

with require_extra("compression"):
    import zstandard

UNCOMPRESSED = b"\xc1"
ZSTD = b"\xfe"
LEVEL = 3
MAX_VALUE_BYTES = 1 << 30


class CompressedStateStore(TransformedStateStore):
    """A store that compresses its values.

    ``level`` is zstd's, 1 (fast) to 22 (small). A value of more than ``max_value_bytes`` before
    compression is neither written nor read.
    """

    def __init__(
        self, inner: StateStore, level: int = LEVEL, *, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        super().__init__(inner)
        self.level = validate_positive("level", level, zstandard.MAX_COMPRESSION_LEVEL)
        self.max_value_bytes = validate_positive("max_value_bytes", max_value_bytes, None)

    def _encode(self, key: str, value: bytes) -> bytes:
        if len(value) > self.max_value_bytes:
            raise StateStoreError(
                f"value of key {short_repr(key)} has {len(value):,} bytes, more than "
                f"max_value_bytes ({self.max_value_bytes:,}); raise it wherever the value is read, "
                "or split the value"
            )
        # A new compressor per call, because one serves a single thread at a time.
        frame = zstandard.ZstdCompressor(level=self.level, write_checksum=True).compress(value)
        return ZSTD + frame if len(frame) < len(value) else UNCOMPRESSED + value

    def _decode(self, key: str, stored: bytes) -> bytes:
        kind, frame = stored[:1], stored[1:]
        if kind == UNCOMPRESSED:
            return frame
        if kind != ZSTD:
            raise IntegrityError(
                f"value of key {short_repr(key)} was not written with compression, or is damaged; "
                "open the store without compress to read it"
            )
        try:
            size = zstandard.get_frame_parameters(frame).content_size
            if size <= self.max_value_bytes:
                return self._decompress(key, frame, size)
        except zstandard.ZstdError as error:
            raise damaged_frame_error(key, str(error)) from error
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            raise damaged_frame_error(key, "it does not state its size")
        raise IntegrityError(
            f"value of key {short_repr(key)} claims {size:,} bytes after decompression, more than "
            f"max_value_bytes ({self.max_value_bytes:,}); it is damaged or malicious, or the limit "
            "is too low"
        )

    def _decompress(self, key: str, frame: bytes, size: int) -> bytes:
        # The library trusts a size of 0. An empty value is never stored as a frame.
        if size == 0:
            raise damaged_frame_error(key, "it claims to be empty")
        return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)

    def _decoded_size(self, stored: bytes) -> int:
        if not stored.startswith(ZSTD):
            return len(stored)
        try:
            return zstandard.get_frame_parameters(stored[1:64]).content_size
        except zstandard.ZstdError:
            return len(stored)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} level {self.level} around {self.inner!r}>"


def damaged_frame_error(key: str, problem: str) -> IntegrityError:
    """Return the error for a frame that is not as it was written."""
    return IntegrityError(
        f"value of key {short_repr(key)} cannot be decompressed: {problem}; restore it from a "
        "backup"
    )


def validate_positive(name: str, number: object, most: int | None) -> int:
    """Return an int from 1 to ``most``.

    Raises:
        TypeError: It is not an int.
        ValueError: It is out of range.

    """
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} must be an int, got {short_repr(number)}")
    if number < 1 or (most is not None and number > most):
        bounds = "1 or more" if most is None else f"1 to {most}"
        raise ValueError(f"{name} must be {bounds}, got {number}")
    return number
