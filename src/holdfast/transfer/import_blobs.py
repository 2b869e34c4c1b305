"""Verify the blobs of a document before an import writes anything.

An omitted blob is not an error here: the session may have it already, and what does not need it can
still be read. Any other that is missing, damaged, or not what the document says, is one.
"""

from __future__ import annotations

import codecs
import hashlib
import re
from typing import Final

from holdfast.blobs.source import BlobSource
from holdfast.documents.blobs import DocumentBlob
from holdfast.documents.document import Document
from holdfast.documents.export import PACKED_DIGEST, find_referred, list_texts
from holdfast.errors import InvalidDocumentError
from holdfast.state.snapshot import Snapshot, find_containing
from holdfast.values.binary_encoding import decode
from holdfast.values.references import REFERENCE_MARK, TEXT, find_references, has_references

TEXT_REFERENCE: Final = re.compile(
    rb'"\$blob"\s*:\s*\[\s*"([0-9a-f]{64})"\s*,\s*[0-9]+\s*,\s*"str"\s*\]'
)


def verify_blobs(document: Document) -> dict[str, BlobSource]:
    """Read and verify all blobs of a document; return those that it refers to, by digest.

    Raises:
        InvalidDocumentError: A blob does not match its digest or its size.
        NotFoundError: A file of a blob is missing.
        IntegrityError: A blob is damaged in the store that the document was exported from.

    """
    sizes, tokens = find_referred(document)
    texts = find_text_blobs(document) if sizes else set()
    for blob in document.blobs.entries:
        if sizes.get(blob.digest, blob.size) != blob.size:
            raise InvalidDocumentError(
                f"blob {blob.digest} of the document has {blob.size:,} bytes, but a reference to "
                f"it says {sizes[blob.digest]:,}; get another copy"
            )
        if not blob.is_omitted:
            verify_blob(blob, is_text=blob.digest in texts)
    return {
        blob.digest: blob.source()
        for blob in document.blobs.entries
        if not blob.is_omitted and blob.digest in tokens
    }


def verify_blob(blob: DocumentBlob, *, is_text: bool) -> None:
    """Read a blob and compare it with its digest and size; one of a str must be UTF-8."""
    sha = hashlib.sha256()
    decoder = codecs.getincrementaldecoder("utf-8")()
    size = 0
    for chunk in blob.chunks():
        sha.update(chunk)
        size += len(chunk)
        if is_text:
            try:
                decoder.decode(chunk, final=size == blob.size)
            except UnicodeDecodeError as error:
                raise InvalidDocumentError(
                    f"blob {blob.digest} of the document is a str, but not UTF-8: {error}; get "
                    "another copy"
                ) from None
    if size != blob.size or sha.hexdigest() != blob.digest:
        raise InvalidDocumentError(
            f"blob {blob.digest} of the document has {size:,} bytes that do not match its digest "
            f"and its size of {blob.size:,}; get another copy"
        )


def find_text_blobs(document: Document) -> set[str]:
    """Return the digests of the blobs that are read as str."""
    found = {
        reference.digest
        for state in (document.snapshot, document.base)
        for data in find_digest_values(state)
        if has_references(data)
        for reference in find_references(decode(bytes(data)))
        if reference.kind == TEXT
    }
    for text in list_texts(document.events):
        found.update(digest.decode() for digest in TEXT_REFERENCE.findall(text))
    return found


def find_state_digests(state: Snapshot) -> set[str]:
    """Return everything in the values of a state that may be the digest of a blob."""
    return {
        digest.decode()
        for data in find_digest_values(state)
        for digest in PACKED_DIGEST.findall(data)
    }


def find_digest_values(state: Snapshot | None) -> list[bytes]:
    """Return the encoded values of a state that may contain digests."""
    return [] if state is None else [data for *_, data in find_containing(state, REFERENCE_MARK)]
