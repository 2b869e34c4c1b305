"""Limits on what a document may cost to read, enforced before any of it is parsed.

A few kilobytes of gzip can hold millions of empty lists, each of which costs hundreds of bytes as a
Python object. So values are counted in the text while it is decompressed, and reading stops at the
first chunk that exceeds a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.documents.errors import DocumentTooLargeError
from holdfast.errors import short_repr

SAFE_BYTES = 1 << 26
"""Decompressed bytes below which the compression ratio does not matter."""
MAX_RATIO = 200
SAFE_OBJECTS = 250_000
"""Values and names that a compressed document of any size may have."""
OBJECTS_PER_COMPRESSED_BYTE = 4
"""How many more it may have per byte. Its hashes keep a real document below one."""

STRUCTURE = b'",:[{'
NOT_STRUCTURE = bytes(set(range(256)) - set(STRUCTURE))


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """Limits on the size of a document.

    ``max_bytes`` limits its JSON text after decompression, ``max_objects`` the number of values and
    names in it. A compressed document is also limited relative to its compressed size.
    ``max_embedded_bytes`` limits the blobs that are embedded when a document is written.
    """

    max_bytes: int = 1 << 30
    max_objects: int = 50_000_000
    max_embedded_bytes: int = 1 << 26

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_objects", "max_embedded_bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be a positive int, got {short_repr(value)}")


DEFAULT_LIMITS = DocumentLimits()


class DocumentMeter:
    """Measures the text of one document as it is read or written, in chunks.

    The number of objects is that of commas, colons and opening brackets outside of strings: one for
    each value and each name, whether or not the text is valid JSON.
    """

    def __init__(self, name: str, limits: DocumentLimits = DEFAULT_LIMITS) -> None:
        self.bytes = 0
        self.objects = 0
        self._name = name
        self._limits = limits
        self._in_string = False
        self._pending = b""
        """Backslashes at the end of the last chunk, which escape what follows."""

    def read(self, chunk: bytes | bytearray, compressed: int) -> None:
        """Count a chunk that was decompressed from a file of ``compressed`` bytes.

        Raises:
            DocumentTooLargeError: A limit is exceeded.

        """
        self.bytes += len(chunk)
        limits = self._limits
        if self.bytes > limits.max_bytes:
            raise DocumentTooLargeError(
                f"{self._name} has more than {limits.max_bytes:,} bytes when decompressed; raise "
                "max_bytes if it is a document"
            )
        if is_decompression_bomb(self.bytes, compressed):
            raise DocumentTooLargeError(
                f"{self._name} has {compressed:,} bytes and more than {self.bytes:,} when "
                f"decompressed; the compression ratio exceeds {MAX_RATIO}:1"
            )
        self.count(chunk)
        if self.objects > limits.max_objects:
            raise DocumentTooLargeError(
                f"{self._name} has more than {limits.max_objects:,} values and names; raise "
                "max_objects if it is a document"
            )
        if self.objects > max_compressed_objects(compressed) and self.bytes > compressed:
            raise DocumentTooLargeError(
                f"{self._name} has {compressed:,} bytes, but more than "
                f"{max_compressed_objects(compressed):,} values and names when decompressed; "
                "decompress it first if it is a document"
            )

    def count(self, chunk: bytes | bytearray) -> None:
        """Count the objects of a chunk, in time linear in its size."""
        text = self._pending + chunk
        tail = len(text) - len(text.rstrip(b"\\"))
        self._pending = text[len(text) - tail :]
        if b"\\" in text:
            # In a run of them, each pair is one escaped backslash; one left escapes a quote.
            text = text[: len(text) - tail].replace(b"\\\\", b"").replace(b'\\"', b"")
        # Every second part between quotes is outside of strings.
        parts = text.translate(None, NOT_STRUCTURE).split(b'"')
        outside = b"".join(parts[1 if self._in_string else 0 :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.objects += len(outside)


def max_compressed_objects(compressed: int) -> int:
    """Return the number of values and names that a file of this many bytes may have."""
    return SAFE_OBJECTS + OBJECTS_PER_COMPRESSED_BYTE * compressed


def is_decompression_bomb(size: int, compressed: int) -> bool:
    """Return whether a file decompresses to more than any document does."""
    return size > SAFE_BYTES and size > MAX_RATIO * compressed
