"""Read Holdfast's own documents, as ``holdfast state export`` writes them."""

from __future__ import annotations

import msgspec

from holdfast.documents.document import Document
from holdfast.documents.files import decode_document_text
from holdfast.importers.source import Source

NAME = "holdfast"
ABSENT = msgspec.Raw(b"")


class DocumentFields(msgspec.Struct):
    """Fields of a document as text. The others are skipped."""

    schema_version: msgspec.Raw = ABSENT
    agent_id: msgspec.Raw = ABSENT
    session_id: msgspec.Raw = ABSENT
    state: msgspec.Raw = ABSENT
    digest: msgspec.Raw = ABSENT
    event_log_count: msgspec.Raw = ABSENT


def recognises(source: Source) -> bool:
    """Return whether this is an object with a schema version, or with most of the fields.

    A version that is text, in a document without a digest, is that of another format.
    """
    if not source.is_text:
        return False
    try:
        found = msgspec.json.decode(source.text, type=DocumentFields)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return False
    version, *others = msgspec.structs.astuple(found)
    if bytes(version).startswith(b'"') and found.digest == ABSENT:
        return False
    is_version = bytes(version).lstrip(b"-").isdigit()
    return is_version or sum(each != ABSENT for each in others) >= 3


def read(source: Source) -> Document:
    """Return the document, with its signature, digest and hash chain verified.

    Raises:
        InvalidDocumentError: It is not a valid document, or was modified.
        SignatureError: No trusted key signed it.

    """
    return decode_document_text(
        source.text,
        source.name,
        allow_modified=source.allow_modified,
        trusted=source.trusted,
        folder=None if source.path is None else source.path.parent,
    )
