"""References to blobs: large values and attachments whose content is stored on its own.

A str or bytes of `BLOB_SIZE` bytes or more is replaced by a `BlobReference` when its value is
encoded for storage. The encoded value is then a `ReferringData`: the bytes, and the mapping that
yields the contents when the value is decoded. An `Attachment` is a reference that the caller holds;
its content is read on demand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Self, cast

import msgspec
from msgspec.msgpack import Ext

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.values.extensions import ATTACHMENT, BLOB, CUSTOM, FROZENSET, MAP, SET, TUPLE

BLOB_SIZE: Final = 1 << 16
"""The size in bytes from which a str or bytes inside a value is stored as a blob."""
DIGEST: Final = re.compile("[0-9a-f]{64}")
MAX_SIZE: Final = 1 << 53
SCANNED: Final = frozenset((TUPLE, SET, FROZENSET, MAP))
"""The containers whose members may be blobs. Registered types get their content inline."""
FILES: Final = "files"
"""The namespace of a state whose values are the files of a workspace."""
TEXT: Final = "str"
BYTES: Final = "bytes"

# The end of the header of an extension type, and the header of its payload: a list that starts with
# a digest. It is found in every encoded value with a reference, and in hardly any other.
_REFERENCE: Final = re.compile(rb"[\x15\x16][\x93\x94]\xd9@([0-9a-f]{64})")

REFERENCE_MARK: Final = b"\xd9@"
"""The header of a digest, which is in every encoded value with a reference."""
_TOKEN: Final = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")

_pack: Final = msgspec.msgpack.Encoder().encode
_unpack: Final = msgspec.msgpack.Decoder().decode


_keep_references: ContextVar[bool] = ContextVar("holdfast_keep_references", default=False)


@contextmanager
def keep_references() -> Iterator[None]:
    """Decode large values as `BlobReference` in this block, so that no blob is read.

    Use it to read a session of which a content is missing, or that is too large for memory.
    """
    token = _keep_references.set(True)
    try:
        yield
    finally:
        _keep_references.reset(token)


def is_keeping_references() -> bool:
    """Return whether large values are decoded as references."""
    return _keep_references.get()


@dataclass(frozen=True, slots=True)
class BlobReference:
    """A large str or bytes inside a value, by the sha256 of its content."""

    digest: str
    size: int
    """The size in bytes, of a str in UTF-8."""
    kind: str
    """``"str"`` or ``"bytes"``."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file or other large content that belongs to a session, as returned by `Session.attach`.

    It is a value: put it into a message, an event or the state. Read its content with
    `Session.read_attachment` or `Session.stream_attachment`.
    """

    digest: str
    """The sha256 of the content in hexadecimal."""
    size: int
    """The size of the content in bytes."""
    media_type: str | None = None
    """For example ``"image/png"``."""
    name: str | None = None
    """For example ``"chart.png"``."""


class ReferringData(bytes):
    """An encoded value with references, and where to get the contents of its blobs by digest."""

    contents: Mapping[str, bytes]

    def __new__(cls, data: bytes, contents: Mapping[str, bytes]) -> Self:
        """Return encoded data with its contents."""
        this = super().__new__(cls, data)
        this.contents = contents
        return this


def externalize(data: bytes) -> bytes:
    """Replace the large str and bytes in an encoded value by references.

    Return `ReferringData`, or the same object if there are none.
    """
    if len(data) < BLOB_SIZE or type(data) is not bytes:
        return data
    contents: dict[str, bytes] = {}
    tree = _externalize(_unpack(data), contents)
    return ReferringData(_pack(tree), contents) if contents else data


def _externalize(tree: object, contents: dict[str, bytes]) -> object:
    kind = type(tree)
    if kind is str:
        text = cast("str", tree)
        if len(text) * 4 < BLOB_SIZE:
            return tree
        content = text.encode()
        return tree if len(content) < BLOB_SIZE else _refer(content, TEXT, contents)
    if kind is bytes:
        content = cast("bytes", tree)
        return tree if len(content) < BLOB_SIZE else _refer(content, BYTES, contents)
    if kind is dict:
        return {
            key: _externalize(item, contents)
            for key, item in cast("dict[object, object]", tree).items()
        }
    if kind is list:
        return [_externalize(item, contents) for item in cast("list[object]", tree)]
    if kind is Ext:
        ext = cast("Ext", tree)
        if ext.code not in SCANNED or len(bytes(ext.data)) < BLOB_SIZE:
            return ext
        items = _unpack(ext.data)
        if ext.code == MAP:  # keys are kept
            items = [
                _externalize(item, contents) if at % 2 else item for at, item in enumerate(items)
            ]
        else:
            items = [_externalize(item, contents) for item in items]
            if ext.code != TUPLE:  # members of sets are stored in order
                items.sort(key=_pack)
        return Ext(ext.code, _pack(items))
    return tree


def _refer(content: bytes, kind: str, contents: dict[str, bytes]) -> Ext:
    digest = hashlib.sha256(content).hexdigest()
    contents[digest] = content
    return encode_reference(BlobReference(digest, len(content), kind))


def encode_reference(reference: BlobReference) -> Ext:
    """Return a reference as an extension type."""
    return Ext(BLOB, _pack([reference.digest, reference.size, reference.kind]))


def build_reference(code: int, items: object) -> BlobReference | Attachment:
    """Return the reference or the attachment with the given decoded items.

    Raises:
        InvalidDocumentError: The items have the wrong form.

    """
    if not isinstance(items, list):
        raise InvalidDocumentError(
            f"a blob reference must contain a list, got {type(items).__name__}"
        )
    digest = items[0] if items else None
    size = items[1] if len(items) > 1 else None
    if (
        not isinstance(digest, str)
        or DIGEST.fullmatch(digest) is None
        or type(size) is not int
        or not 0 <= size < MAX_SIZE
    ):
        raise InvalidDocumentError(
            f"a blob reference must contain a sha256 and a size, got {short_repr(items)}"
        )
    if code == BLOB:
        if len(items) == 3 and items[2] in (TEXT, BYTES):
            return BlobReference(digest, size, items[2])
    elif len(items) == 4 and all(each is None or isinstance(each, str) for each in items[2:]):
        return Attachment(digest, size, cast("str | None", items[2]), cast("str | None", items[3]))
    raise InvalidDocumentError(f"malformed blob reference {short_repr(items)}")


def find_digests(data: bytes) -> set[str]:
    """Return the digests of the blobs that an encoded value refers to."""
    return set(find_sizes(data))


def find_file(value: object) -> tuple[str, int] | None:
    """Return the digest and the size of a file, given a value of the namespace `FILES`, or None."""
    if type(value) is not dict:
        return None
    file = cast("dict[object, object]", value)
    digest, size = file.get("digest"), file.get("size")
    if len(file) != 3 or "mode" not in file:
        return None
    if not isinstance(digest, str) or type(size) is not int:
        return None
    return None if DIGEST.fullmatch(digest) is None else (digest, size)


def find_sizes(data: bytes) -> dict[str, int]:
    """Return the sizes of the blobs that an encoded value refers to, by digest."""
    sizes: dict[str, int] = {}
    # Bytes that a user stores may look like a reference: the pattern alone does not tell.
    if REFERENCE_MARK in data and _REFERENCE.search(data) is not None:
        _collect_sizes(_unpack(data), sizes)
    return sizes


def _collect_sizes(tree: object, sizes: dict[str, int]) -> None:
    kind = type(tree)
    if kind is dict:
        for item in cast("dict[object, object]", tree).values():
            _collect_sizes(item, sizes)
    elif kind is list:
        for item in cast("list[object]", tree):
            _collect_sizes(item, sizes)
    elif kind is Ext:
        ext = cast("Ext", tree)
        if ext.code in (BLOB, ATTACHMENT):
            reference = build_reference(ext.code, _unpack(ext.data))
            sizes[reference.digest] = reference.size
        elif ext.code in SCANNED or ext.code == CUSTOM:
            _collect_sizes(_unpack(ext.data), sizes)


def find_tokens(text: bytes) -> set[str]:
    """Return everything in a text that may be the digest of a blob."""
    return {each.decode() for each in _TOKEN.findall(text)}


def has_references(data: bytes) -> bool:
    """Return whether an encoded value refers to blobs."""
    return bool(find_sizes(data))


def find_references(value: object) -> set[BlobReference]:
    """Return the references in a decoded value."""
    found: set[BlobReference] = set()
    _collect(value, found)
    return found


def _collect(value: object, found: set[BlobReference]) -> None:
    kind = type(value)
    if kind is BlobReference:
        found.add(cast("BlobReference", value))
    elif kind is dict:
        for item in cast("dict[object, object]", value).values():
            _collect(item, found)
    elif kind is list or kind is tuple or kind is set or kind is frozenset:
        for item in cast("Iterable[object]", value):
            _collect(item, found)


def restore_value(value: object, contents: Mapping[str, bytes]) -> object:
    """Return a decoded value with the contents of its blobs in place of the references."""
    kind = type(value)
    if kind is BlobReference:
        return read_reference(cast("BlobReference", value), contents)
    if kind is dict:
        return {
            key: restore_value(item, contents)
            for key, item in cast("dict[object, object]", value).items()
        }
    if kind is list:
        return [restore_value(item, contents) for item in cast("list[object]", value)]
    if kind is tuple:
        return tuple([restore_value(item, contents) for item in cast("tuple[object, ...]", value)])
    if kind is set:
        return {restore_value(item, contents) for item in cast("set[object]", value)}
    if kind is frozenset:
        return frozenset(
            [restore_value(item, contents) for item in cast("frozenset[object]", value)]
        )
    return value


def read_reference(reference: BlobReference, contents: Mapping[str, bytes]) -> str | bytes:
    """Return the value of a reference."""
    content = contents[reference.digest]
    return content.decode() if reference.kind == TEXT else content
