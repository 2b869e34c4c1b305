"""Values in fewer bytes, by zstd.

What is kept of a value begins with one byte that no text in UTF-8 begins with: ``c1``, and the
value as it is, where it would not get smaller; ``fe``, and one zstd frame with a checksum and the
size of its content. As a small frame can claim more than there is memory, that is looked at first.
"""

from __future__ import annotations

from holdfast.errors import IntegrityError, StateStoreError, short_repr
from holdfast.extras import require_extra
from holdfast.stores.base import StateStore
from holdfast.stores.wrappers.base import TransformedStateStore

with require_extra("compression"):
    import zstandard

AS_IS = b"\xc1"
ZSTD = b"\xfe"
LEVEL = 3
MAX_VALUE_BYTES = 1 << 30


class CompressedStateStore(TransformedStateStore):
    """Keeps values compressed.

    ``level`` is zstd's, 1 (fast) to 22 (small). No value has more than ``max_value_bytes`` before
    it is compressed; one that claims to is not read.
    """

    def __init__(
        self, inner: StateStore, level: int = LEVEL, *, max_value_bytes: int = MAX_VALUE_BYTES
    ) -> None:
        super().__init__(inner)
        self.level = _whole("level", level, zstandard.MAX_COMPRESSION_LEVEL)
        self.max_value_bytes = _whole("max_value_bytes", max_value_bytes, None)

    def _stored(self, key: str, value: bytes) -> bytes:
        if len(value) > self.max_value_bytes:
            raise StateStoreError(
                f"the value for the key {short_repr(key)} has {len(value):,} bytes, more than the "
                f"{self.max_value_bytes:,} that compression is set to give back: raise "
                "max_value_bytes wherever it is read, or divide the value"
            )
        # One a call: a compressor serves one thread at a time.
        frame = zstandard.ZstdCompressor(level=self.level, write_checksum=True).compress(value)
        return ZSTD + frame if len(frame) < len(value) else AS_IS + value

    def _given(self, key: str, stored: bytes) -> bytes:
        mark, frame = stored[:1], stored[1:]
        if mark == AS_IS:
            return frame
        if mark != ZSTD:
            raise IntegrityError(
                f"the value of the key {short_repr(key)} was not written through compression, or is "
                "damaged: open the store without compress to read it"
            )
        try:
            size = zstandard.get_frame_parameters(frame).content_size
            if size <= self.max_value_bytes:
                return self._decompressed(key, frame, size)
        except zstandard.ZstdError as error:
            raise damaged(key, str(error)) from error
        if size == zstandard.CONTENTSIZE_UNKNOWN:
            raise damaged(key, "it does not tell its size")
        raise IntegrityError(
            f"the value of the key {short_repr(key)} claims to have {size:,} bytes once decompressed, "
            f"more than the {self.max_value_bytes:,} allowed: it is damaged or hostile, or "
            "max_value_bytes is too low"
        )

    def _decompressed(self, key: str, frame: bytes, size: int) -> bytes:
        # zstd's own Python module takes a size of 0 on trust; what is empty is kept as it is.
        if size == 0:
            raise damaged(key, "it claims to be empty")
        return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)

    def _effort(self, stored: bytes) -> int:
        if not stored.startswith(ZSTD):
            return len(stored)
        try:
            return zstandard.get_frame_parameters(stored[1:64]).content_size
        except zstandard.ZstdError:
            return len(stored)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} level {self.level} around {self.inner!r}>"


def damaged(key: str, why: str) -> IntegrityError:
    """The error for a frame that is not as it was written."""
    return IntegrityError(
        f"the value of the key {short_repr(key)} cannot be decompressed ({why}): it was damaged. "
        "Restore it from a backup"
    )


def _whole(name: str, number: object, most: int | None) -> int:
    """A whole number from 1 up, or a refusal."""
    if isinstance(number, bool) or not isinstance(number, int):
        raise TypeError(f"{name} is an int, not {short_repr(number)}")
    if number < 1 or (most is not None and number > most):
        bounds = "1 or more" if most is None else f"1 to {most}"
        raise ValueError(f"{name} is {bounds}, not {number}")
    return number
