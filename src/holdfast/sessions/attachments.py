"""Attach files and other large contents to a session, and read them.

An attachment is pending until the commit that refers to it, like everything else in a session.
Until then its content is in memory, or in a temporary file.
"""

from __future__ import annotations

import mimetypes
import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from pathlib import PurePath
from typing import TypeAlias, cast

from holdfast.blobs.source import BlobSource, BytesSource, SpooledSource, read_file
from holdfast.blobs.writer import BlobWriter
from holdfast.errors import short_repr
from holdfast.stores.local import run_in_thread
from holdfast.values.references import Attachment

AttachmentContent: TypeAlias = (
    bytes | bytearray | memoryview | str | os.PathLike[str] | AsyncIterable[bytes] | Iterable[bytes]
)
"""Bytes, the path of a file, or an iterator of bytes, async or not."""
END = object()


async def offer_attachment(
    blobs: BlobWriter, content: AttachmentContent, media_type: str | None, name: str | None
) -> Attachment:
    """Keep a content until an event refers to it, and return its attachment.

    Raises:
        HoldfastError: The file cannot be read.
        TypeError: The content is neither bytes, nor a path, nor an iterator of bytes.

    """
    for what, text in (("media_type", media_type), ("name", name)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{what} must be a str, got {short_repr(text)}")
    source: BlobSource
    if isinstance(content, bytes | bytearray | memoryview):
        source = BytesSource(bytes(content))
    elif isinstance(content, str | os.PathLike):
        # A name in another encoding than UTF-8 has surrogates, which cannot be stored.
        name = name or os.fsencode(PurePath(content).name).decode(errors="replace")
        source = await SpooledSource.spool(read_file(content))
    elif isinstance(content, AsyncIterable):
        source = await SpooledSource.spool(content)
    elif isinstance(content, Iterable):
        source = await SpooledSource.spool(iterate_in_threads(content))
    else:
        raise TypeError(
            "content must be bytes, the path of a file or an iterator of bytes, got "
            f"{short_repr(content)}"
        )
    if media_type is None and name is not None:
        media_type = mimetypes.guess_type(name)[0]
    blobs.offered.setdefault(source.digest, source)
    return Attachment(source.digest, source.size, media_type, name)


async def iterate_in_threads(content: Iterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the items of an iterable that may block."""
    items: Iterator[object] = iter(content)
    while (item := await run_in_thread(next, items, END)) is not END:
        yield cast("bytes", item)  # the caller checks it


async def stream_attachment(blobs: BlobWriter, attachment: Attachment) -> AsyncIterator[bytes]:
    """Yield the content of an attachment in chunks; the last one only if its digest matches.

    Raises:
        NotFoundError: The content is not stored in this session.
        IntegrityError: It is damaged.

    """
    source = blobs.offered.get(validate_attachment(attachment).digest)
    chunks = blobs.reader.stream(attachment.digest) if source is None else source.chunks()
    async for chunk in chunks:
        yield chunk


async def read_attachment(blobs: BlobWriter, attachment: Attachment) -> bytes:
    """Return the content of an attachment.

    Raises:
        NotFoundError: The content is not stored in this session.
        IntegrityError: It is damaged.

    """
    if validate_attachment(attachment).digest in blobs.offered:
        return b"".join([chunk async for chunk in stream_attachment(blobs, attachment)])
    return await blobs.reader.read(attachment.digest, attachment.size)


def validate_attachment(attachment: object) -> Attachment:
    """Return an attachment, or raise TypeError for any other type."""
    if isinstance(attachment, Attachment):
        return attachment
    raise TypeError(
        f"expected an Attachment as returned by session.attach(), got {short_repr(attachment)}"
    )
