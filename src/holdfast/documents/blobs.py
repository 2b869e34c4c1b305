"""The blobs of a document: embedded, in files beside it, still in a store, or omitted.

A document refers to its large values and attachments by digest. Its ``blobs`` yield the contents,
which are verified when they are read. One that was omitted is an error only where its value is
read, so that a conversation can be moved without its files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, get_args

from holdfast.blobs.contents import BlobContents, run_blocking
from holdfast.blobs.reader import BlobReader, StoredSource
from holdfast.blobs.source import BlobSource, BytesSource, ContentSources
from holdfast.documents.errors import DocumentTooLargeError
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.errors import NotFoundError, short_repr
from holdfast.log.event import EventDraft
from holdfast.state.batch import WriteBatch
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot, encoded_entries, find_containing, find_referring
from holdfast.state.store import Store, write_batch
from holdfast.values.binary_encoding import decode, encode
from holdfast.values.references import (
    BLOB_SIZE,
    REFERENCE_MARK,
    ReferringData,
    externalize,
    find_sizes,
    has_references,
)

Attachments: TypeAlias = Literal["embed", "folder", "omit"]
"""Where the blobs of a document go: into it, into a folder beside its file, or nowhere."""
EMBED: Final = "embed"
FOLDER: Final = "folder"
OMIT: Final = "omit"

# The start of a reference in JSON text; inside of a string, its quotes are escaped.
REFERENCE: Final = re.compile(
    rb'"\$(?:blob|attachment)"\s*:\s*\[\s*"([0-9a-f]{64})"\s*,\s*([0-9]{1,18})(?![0-9])'
)


def validate_attachments(mode: object, known: Iterable[str] = get_args(Attachments)) -> str:
    """Return a mode of attachments.

    Raises:
        ValueError: It is unknown.

    """
    modes = tuple(known)
    if mode in modes:
        return str(mode)
    raise ValueError(f"attachments must be one of {', '.join(modes)}, got {short_repr(mode)}")


class DocumentBlob(ABC):
    """One blob of a document."""

    is_omitted = False

    def __init__(self, digest: str, size: int) -> None:
        self.digest = digest
        self.size = size

    @abstractmethod
    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks; the last one only if it matches the digest.

        Raises:
            NotFoundError: The content was omitted or deleted.
            InvalidDocumentError, IntegrityError: It does not match the digest.

        """

    @abstractmethod
    def source(self) -> BlobSource:
        """Return the content as a source of `BlobWriter`.

        Raises:
            NotFoundError: The content was omitted or deleted.
            InvalidDocumentError: It does not match the digest.

        """

    def read(self) -> bytes:
        """Return the content. Raises as `chunks`."""
        return b"".join(self.chunks())


class EmbeddedBlob(DocumentBlob):
    """A content in memory, which was verified."""

    def __init__(self, content: bytes, digest: str | None = None) -> None:
        super().__init__(digest or hashlib.sha256(content).hexdigest(), len(content))
        self._content = content

    def chunks(self) -> Iterator[bytes]:
        """Yield the content."""
        yield self._content

    def source(self) -> BlobSource:
        """Return the content as a source of `BlobWriter`."""
        return BytesSource(self._content, self.digest)


class StoredBlob(DocumentBlob):
    """A content in the store that the document was exported from, read on demand."""

    def __init__(self, reader: BlobReader, digest: str, size: int) -> None:
        super().__init__(digest, size)
        self._reader = reader

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks, blocking while it is read."""
        chunks = self._reader.stream(self.digest)
        while (chunk := run_blocking(self._reader.state_store, read_next(chunks))) is not None:
            yield chunk

    def source(self) -> BlobSource:
        """Return the content as a source of `BlobWriter`."""
        return StoredSource(self._reader, self.digest, self.size)


class OmittedBlob(DocumentBlob):
    """A content that the document does not have; ``reason`` is for the error."""

    is_omitted = True

    def __init__(self, digest: str, size: int, reason: str = "") -> None:
        super().__init__(digest, size)
        self._reason = reason

    def chunks(self) -> Iterator[bytes]:
        """Raise NotFoundError."""
        raise omitted_error(self.digest, self._reason)

    def source(self) -> BlobSource:
        """Raise NotFoundError."""
        raise omitted_error(self.digest, self._reason)


class DocumentBlobs(ContentSources):
    """The blobs of a document by digest. As a mapping, it has those that were not omitted."""

    def __init__(self, blobs: Iterable[DocumentBlob] = ()) -> None:
        self._blobs = {each.digest: each for each in blobs}

    def __getitem__(self, digest: str) -> bytes:
        return self._find(digest).read()

    def __iter__(self) -> Iterator[str]:
        return (each.digest for each in self._blobs.values() if not each.is_omitted)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, digest: object) -> bool:
        found = self._blobs.get(digest) if isinstance(digest, str) else None
        return found is not None and not found.is_omitted

    def source(self, digest: str) -> BlobSource:
        """Return a content as a source of `BlobWriter`. Raises as `DocumentBlob.source`."""
        return self._find(digest).source()

    def find(self, digest: str) -> DocumentBlob | None:
        """Return a blob, or None."""
        return self._blobs.get(digest)

    @property
    def entries(self) -> list[DocumentBlob]:
        """All blobs, sorted by digest, with those that were omitted."""
        return [self._blobs[digest] for digest in sorted(self._blobs)]

    def __or__(self, others: Iterable[DocumentBlob]) -> DocumentBlobs:
        """Return these and other blobs; a content takes the place of an omitted one."""
        joined = DocumentBlobs(self._blobs.values())
        for each in others:
            known = joined._blobs.get(each.digest)
            if known is None or known.is_omitted:
                joined._blobs[each.digest] = each
        return joined

    def __repr__(self) -> str:
        return f"<DocumentBlobs: {len(self)} of {len(self._blobs)}>"

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def _find(self, digest: str) -> DocumentBlob:
        found = self._blobs.get(digest)
        if found is None:
            raise omitted_error(digest)
        return found


async def read_next(chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk, or None at the end."""
    return await anext(chunks, None)


def omitted_error(digest: str, reason: str = "") -> NotFoundError:
    """Return the error for a content that a document does not have."""
    return NotFoundError(
        f"the document does not contain blob {digest}: {reason or 'it was omitted'}; export the "
        "session again with attachments embedded or in a folder, or import the document into a "
        "session that has it"
    )


# ------------------------------------------------------------------------------------ collecting


def find_text_sizes(text: bytes) -> dict[str, int]:
    """Return the sizes of the blobs that the JSON text of events refers to, by digest."""
    if b'"$blob"' not in text and b'"$attachment"' not in text:
        return {}
    return {found[1].decode(): int(found[2]) for found in REFERENCE.finditer(text)}


def collect_blobs(state: Snapshot) -> list[DocumentBlob]:
    """Return the blobs that the values of a state refer to, from where their contents are."""
    found: dict[str, DocumentBlob] = {}
    for data in find_referring(state):
        contents = data.contents if isinstance(data, ReferringData) else {}
        for digest, size in find_sizes(data).items():
            if digest not in found or found[digest].is_omitted:
                found[digest] = find_content(contents, digest, size)
    return list(found.values())


def find_content(contents: Mapping[str, bytes], digest: str, size: int) -> DocumentBlob:
    """Return a blob of one of the mappings that states have their contents from."""
    if isinstance(contents, BlobContents):
        return StoredBlob(contents.reader, digest, size)
    if isinstance(contents, DocumentBlobs):
        return contents.find(digest) or OmittedBlob(digest, size)
    if digest in contents:
        return EmbeddedBlob(contents[digest], digest)
    return OmittedBlob(digest, size)


def bind_contents(state: Snapshot, contents: Mapping[str, bytes]) -> Snapshot:
    """Return a state whose values get the contents of their blobs from a mapping."""
    batch, removed = WriteBatch([]), WriteBatch([])
    for namespace, key, data in find_containing(state, REFERENCE_MARK):
        if has_references(data):
            # An equal value would not be replaced, so it is deleted first.
            removed.add(namespace, key, None)
            batch.add(namespace, key, ReferringData(bytes(data), contents))
    return state if not batch.keys else write_over(state, removed, batch)


def externalize_state(state: Snapshot) -> tuple[Snapshot, list[DocumentBlob]]:
    """Return a state with references in place of large inline values, and their contents."""
    batch, removed = WriteBatch([]), WriteBatch([])
    blobs: dict[str, DocumentBlob] = {}
    if state.size_bytes >= BLOB_SIZE:
        for namespace in state.namespaces():
            for key, data in encoded_entries(state, namespace):
                if len(data) >= BLOB_SIZE and type(data) is bytes:
                    stored = externalize(data)
                    if isinstance(stored, ReferringData):
                        removed.add(namespace, key, None)
                        batch.add(namespace, key, stored)
                        for digest, content in stored.contents.items():
                            blobs[digest] = EmbeddedBlob(content, digest)
    state = state if not batch.keys else write_over(state, removed, batch)
    return state, list(blobs.values())


def write_over(state: Snapshot, *batches: WriteBatch) -> Snapshot:
    """Return a state with batches applied."""
    store = Store(max_history=0)
    store.restore(state)
    for batch in batches:
        write_batch(store, batch)
    return store.snapshot()


def externalize_value(value: Any, contents: dict[str, bytes]) -> Any:
    """Return a value with references in place of large parts, and add their contents."""
    data = encode(value)
    stored = externalize(data)
    if not isinstance(stored, ReferringData):
        return value
    contents.update(stored.contents)
    return decode(bytes(stored))


def externalize_draft(draft: EventDraft, contents: dict[str, bytes]) -> EventDraft:
    """Return an event with references in place of large values, and add their contents."""
    changes: Changes = {
        "set": [
            (space, key, externalize_value(value, contents))
            for space, key, value in draft.changes["set"]
        ],
        "delete": draft.changes["delete"],
    }
    data = externalize_value(draft.data, contents)
    return EventDraft(draft.id, draft.type, draft.at, data, changes, draft.extra)


# -------------------------------------------------------------------------------------- encoding


def check_embedded_size(
    blobs: Iterable[DocumentBlob], limits: DocumentLimits = DEFAULT_LIMITS
) -> None:
    """Reject blobs that are too large to be embedded together.

    Raises:
        DocumentTooLargeError: They exceed ``max_embedded_bytes``.

    """
    sizes = sorted((each.size for each in blobs if not each.is_omitted), reverse=True)
    if sum(sizes) > limits.max_embedded_bytes:
        raise DocumentTooLargeError(
            f"the blobs of the document have {sum(sizes):,} bytes (the largest "
            f"{', '.join(f'{each:,}' for each in sizes[:3])}), and at most "
            f"{limits.max_embedded_bytes:,} bytes can be embedded; export them to a folder "
            '(--attachments folder, or attachments="folder"), or omit them'
        )


def encode_blobs(blobs: DocumentBlobs) -> dict[str, Any]:
    """Return the field ``blobs`` of a document as JSON data, with all contents embedded.

    Raises:
        DocumentTooLargeError: There is too much to embed.

    """
    check_embedded_size(blobs.entries)
    return {
        each.digest: {"size": each.size}
        if each.is_omitted
        else {"size": each.size, "data": base64.b64encode(each.read()).decode()}
        for each in blobs.entries
    }


class BlobsText:
    """The field ``blobs`` as JSON text, in chunks: one blob is in memory at a time, or less."""

    def __init__(
        self,
        blobs: DocumentBlobs,
        mode: str,
        folder: str | None,
        limits: DocumentLimits = DEFAULT_LIMITS,
    ) -> None:
        if mode == EMBED:
            check_embedded_size(blobs.entries, limits)
        self._entries = blobs.entries
        self._mode = mode
        self._folder = folder

    def __iter__(self) -> Iterator[bytes]:
        opening = b"{\n  "
        for each in self._entries:
            yield opening + f'"{each.digest}": {{"size": {each.size}'.encode()
            opening = b",\n  "
            if self._mode == FOLDER and not each.is_omitted:
                yield b', "file": ' + quote_json(f"{self._folder}/{each.digest}")
            elif self._mode == EMBED and not each.is_omitted:
                yield b', "data": "'
                yield from encode_base64(each.chunks())
                yield b'"'
            yield b"}"
        yield b"}"


def encode_base64(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the base64 of a content that is given in chunks."""
    rest = b""
    for chunk in chunks:
        whole = rest + chunk
        end = len(whole) - len(whole) % 3
        rest = whole[end:]
        yield base64.b64encode(whole[:end])
    yield base64.b64encode(rest)


def quote_json(text: str) -> bytes:
    """Return a text as JSON."""
    return json.dumps(text, ensure_ascii=True).encode()
