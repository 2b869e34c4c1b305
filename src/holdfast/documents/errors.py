"""The errors of documents, grouped by what a caller does about them."""

from __future__ import annotations

from holdfast.errors import InvalidDocumentError


class UnreadableDocumentError(InvalidDocumentError):
    """The bytes are not JSON, or cannot be decompressed: get another copy."""


class DocumentTooLargeError(InvalidDocumentError):
    """The document exceeds a limit: raise the limit if its origin is trusted."""


class ModifiedDocumentError(InvalidDocumentError):
    """The document was changed after it was written: get another copy, or pass allow_modified."""


class SignatureError(InvalidDocumentError):
    """The document is not signed by a trusted key, or was changed after it was signed."""
