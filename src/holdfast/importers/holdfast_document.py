"""Read Holdfast's own documents, as ``holdfast state export`` writes them."""

from __future__ import annotations

from holdfast.documents.document import Document
from holdfast.documents.files import decode_document
from holdfast.importers.source import Source

NAME = "holdfast"
DOCUMENT_FIELDS = frozenset(("agent_id", "session_id", "state", "digest", "event_log_count"))


def recognises(source: Source) -> bool:
    """Return whether this is an object with a schema version, or with most of the fields."""
    if not source.is_json or not isinstance(source.json, dict):
        return False
    version = source.json.get("schema_version")
    return isinstance(version, int) or len(DOCUMENT_FIELDS & source.json.keys()) >= 3


def read(source: Source) -> Document:
    """Return the document, with its signature, digest and hash chain verified.

    Raises:
        InvalidDocumentError: It is not a valid document, or was modified.
        SignatureError: No trusted key signed it.

    """
    return decode_document(
        source.json, allow_modified=source.allow_modified, trusted=source.trusted
    )
