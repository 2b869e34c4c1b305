"""A document of Holdfast itself, as ``holdfast state export`` writes it."""

from __future__ import annotations

from holdfast.documents.document import Document
from holdfast.documents.files import decode_document
from holdfast.importers.source import Source

NAME = "holdfast"
DOCUMENT_FIELDS = frozenset(("agent_id", "session_id", "state", "digest", "event_log_count"))


def recognises(source: Source) -> bool:
    """Whether it is an object with the version of our schema, or with most of our fields."""
    if not source.is_json or not isinstance(source.json, dict):
        return False
    version = source.json.get("schema_version")
    return isinstance(version, int) or len(DOCUMENT_FIELDS & source.json.keys()) >= 3


def read(source: Source) -> Document:
    """The document, with its digest and the chain of its events checked."""
    return decode_document(source.json, allow_modified=source.allow_modified)
