"""The portable document: a session at one position as one self-contained JSON file."""

from __future__ import annotations

from holdfast.documents.document import Document
from holdfast.documents.files import read_document, write_document
from holdfast.documents.limits import DocumentLimits
from holdfast.documents.migrations import ValueMigrations

__all__ = ["Document", "DocumentLimits", "ValueMigrations", "read_document", "write_document"]
