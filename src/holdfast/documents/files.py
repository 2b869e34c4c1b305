"""Read documents from files, streams, bytes and JSON data, and write them to files.

`read_document` is the one way in, for the library, the command line and the server: it bounds what
is read, verifies signatures before anything else of the data is used, validates the document, and
migrates the user's values.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from holdfast.documents.blob_folder import write_blob_folder
from holdfast.documents.blobs import EMBED, FOLDER, Attachments, validate_attachments
from holdfast.documents.decode_text import decode_text
from holdfast.documents.document import Document, require_document
from holdfast.documents.json_file import (
    check_writable,
    parse_json,
    read_decompressed,
    read_text_file,
    write_json_file,
)
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.documents.migrations import ValueMigrations
from holdfast.documents.signing import PublicKey, record_signers, verify_signature
from holdfast.documents.value_migrations import migrate_values
from holdfast.stores.urls import mask_secrets


def read_document(
    source: str | os.PathLike[str] | IO[bytes] | bytes,
    *,
    name: str = "the document",
    allow_modified: bool = False,
    limits: DocumentLimits = DEFAULT_LIMITS,
    trusted: Iterable[PublicKey] | None = None,
    migrations: ValueMigrations | None = None,
) -> Document:
    """Read and validate a document from a path, a seekable binary stream, or bytes.

    It may be compressed with gzip or zstd.

    Args:
        source: What to read.
        name: What errors call a stream or bytes.
        allow_modified: Accept a document that was edited on purpose.
        limits: Bounds on what is read.
        trusted: Require a signature by one of these keys.
        migrations: Bring the user's values up to date.

    Raises:
        UnreadableDocumentError: It is not JSON, or cannot be decompressed.
        DocumentTooLargeError: It exceeds a limit.
        SignatureError: No trusted key signed it.
        InvalidDocumentError: There is no such file, or it is not a valid document.
        ModifiedDocumentError: It was changed after it was written.
        UnregisteredTypeError: It has values of a type that is not registered here.

    """
    if isinstance(source, bytes | bytearray):
        source = io.BytesIO(source)
    folder = None
    if isinstance(source, str | os.PathLike):
        name = mask_secrets(str(Path(source)))
        folder = Path(source).parent
    # Passed on without a name here, so that it is freed as soon as it was decoded.
    return decode_document_text(
        read_text_file(source, limits=limits)
        if isinstance(source, str | os.PathLike)
        else read_decompressed(source, name, limits),
        name,
        allow_modified=allow_modified,
        trusted=trusted,
        migrations=migrations,
        folder=folder,
    )


def decode_document_text(
    text: bytes | bytearray,
    name: str,
    *,
    allow_modified: bool = False,
    trusted: Iterable[PublicKey] | None = None,
    migrations: ValueMigrations | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Document:
    """Read and validate a document from its JSON text, as `read_document` does from a file.

    ``folder`` is where it was read from, for blobs in files beside it.

    Raises:
        UnreadableDocumentError: It is not JSON.
        SignatureError: No trusted key signed it.
        InvalidDocumentError: It is not a valid document.
        ModifiedDocumentError: It was changed after it was written.
        UnregisteredTypeError: It has values of a type that is not registered here.

    """
    decoded = decode_text(text, folder) if trusted is None and not allow_modified else None
    if decoded is None:
        return decode_document(
            parse_json(text, name),
            allow_modified=allow_modified,
            trusted=trusted,
            migrations=migrations,
            folder=folder,
        )
    del text
    document = Document(**decoded.finish())
    return document if migrations is None else migrate_values(document, migrations)


def decode_document(
    data: object,
    *,
    allow_modified: bool = False,
    trusted: Iterable[PublicKey] | None = None,
    migrations: ValueMigrations | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Document:
    """Read and validate a document from JSON data, as `read_document` does from a file.

    ``folder`` is where it was read from, for blobs in files beside it.

    Raises:
        SignatureError: No trusted key signed it.
        InvalidDocumentError: It is not a valid document.
        ModifiedDocumentError: It was changed after it was written.
        UnregisteredTypeError: It has values of a type that is not registered here.

    """
    signers = () if trusted is None else verify_signature(data, trusted)
    document = Document.from_dict(data, allow_modified=allow_modified, folder=folder)
    if migrations is not None:
        document = migrate_values(document, migrations)
    return record_signers(document, signers) if signers else document


def write_document(
    document: Document,
    path: str | os.PathLike[str],
    *,
    attachments: Attachments = EMBED,
    limits: DocumentLimits = DEFAULT_LIMITS,
) -> None:
    """Write a document atomically, compressed if the path ends in ``.gz`` or ``.zst``.

    Args:
        document: What to write.
        path: The file.
        attachments: Embed large values and attachments, write them to the folder ``<path>.blobs``
            before the document, or omit them.
        limits: How much may be embedded.

    Raises:
        StateStoreError: A file cannot be written.
        DocumentTooLargeError: The attachments are too large to be embedded.

    """
    require_document(document, "write_document")
    validate_attachments(attachments)
    folder = None
    if attachments == FOLDER:
        folder = write_blob_folder(document.blobs, check_writable(path))
    write_json_file(path, document.chunks(attachments, folder=folder, limits=limits))
