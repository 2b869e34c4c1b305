"""Limits on what a document may cost to read, enforced before any of it is built.

A few kilobytes of gzip can hold millions of empty lists, and each costs hundreds of bytes once it
is a Python object. So the text is bounded while it is decompressed, and what it holds is counted in
the text itself, chunk by chunk: reading stops at the first chunk that exceeds a limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors import InvalidDocumentError, short_repr

SAFE_BYTES = 1 << 26
"""Decompressed bytes below which the compression ratio does not matter."""
MAX_RATIO = 200
SAFE_OBJECTS = 250_000
"""Objects that a compressed document may have, whatever its size."""
OBJECTS_PER_PACKED_BYTE = 4
"""And those for each compressed byte. Hashes alone keep a real document below one."""

STRUCTURE = b'",:[{'
NOT_STRUCTURE = bytes(set(range(256)) - set(STRUCTURE))


class DocumentTooLargeError(InvalidDocumentError):
    """A document exceeds a limit on what is read."""


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """What a document may hold at most.

    ``max_bytes`` bounds its JSON text after decompression. ``max_objects`` bounds the number of
    values and names in that text. A compressed document is also bounded in relation to its
    compressed size, so that a small file cannot cost much.
    """

    max_bytes: int = 1 << 30
    max_objects: int = 50_000_000

    def __post_init__(self) -> None:
        for name in ("max_bytes", "max_objects"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} must be an int from 1, got {short_repr(value)}")


DEFAULT_LIMITS = DocumentLimits()


class DocumentMeter:
    """Measures the text of one document as it is read or written, in chunks.

    The objects are the commas, colons and opening brackets outside of strings: one for each value
    and each name, whether or not the text is valid JSON.
    """

    def __init__(self, source: str, limits: DocumentLimits = DEFAULT_LIMITS) -> None:
        self.bytes = 0
        self.objects = 0
        self._source = source
        self._limits = limits
        self._in_string = False
        self._pending = b""
        """Backslashes at the end of a chunk, which belong to what follows."""

    def read(self, chunk: bytes | bytearray, packed: int) -> None:
        """Count a chunk that was decompressed from a file of so many bytes.

        Raises:
            DocumentTooLargeError: A limit is exceeded.

        """
        self.bytes += len(chunk)
        limits = self._limits
        if self.bytes > limits.max_bytes:
            raise DocumentTooLargeError(
                f"{self._source} has more than {limits.max_bytes:,} bytes when it is decompressed; "
                "it is not a document, or needs a larger max_bytes"
            )
        if is_decompression_bomb(self.bytes, packed):
            raise DocumentTooLargeError(
                f"{self._source} has {packed:,} bytes and more than {self.bytes:,} when it is "
                f"decompressed; the compression ratio exceeds {MAX_RATIO}:1, and it is not read"
            )
        self.count(chunk)
        if self.objects > limits.max_objects:
            raise DocumentTooLargeError(
                f"{self._source} has more than {limits.max_objects:,} values and names; it is not "
                "a document, or needs a larger max_objects"
            )
        if self.objects > max_compressed_objects(packed) and self.bytes > packed:
            raise DocumentTooLargeError(
                f"{self._source} has {packed:,} bytes and more than {max_compressed_objects(packed):,} "
                "values and names when it is decompressed; no document compresses so well. If it "
                "is one, decompress it first"
            )

    def count(self, chunk: bytes | bytearray) -> None:
        """Count the objects of a chunk. The cost is linear in its size."""
        text = self._pending + chunk
        tail = len(text) - len(text.rstrip(b"\\"))
        self._pending = text[len(text) - tail :]
        # A run of backslashes begins with one that escapes: in pairs, then one before a quote.
        text = text[: len(text) - tail].replace(b"\\\\", b"").replace(b'\\"', b"")
        # Every second part between quotes is outside of strings.
        parts = text.translate(None, NOT_STRUCTURE).split(b'"')
        outside = b"".join(parts[1 if self._in_string else 0 :: 2])
        self._in_string ^= len(parts) % 2 == 0
        self.objects += len(outside)


def max_compressed_objects(packed: int) -> int:
    """Return how many objects a compressed document of so many bytes may have."""
    return SAFE_OBJECTS + OBJECTS_PER_PACKED_BYTE * packed


def is_decompression_bomb(size: int, packed: int) -> bool:
    """Whether so many decompressed bytes cannot be those of a document of so few."""
    return size > SAFE_BYTES and size > MAX_RATIO * packed
