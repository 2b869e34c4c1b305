"""Content-addressed large values: stored once per session, outside segments and keyframes.

    <prefix>blobs/<sha256>/<chunk, 6 digits>        512 KiB each, the last one may be shorter

A blob is written before the commit that refers to it, and is verified when it is read. A prune
deletes those that nothing refers to.
"""

from __future__ import annotations

from holdfast.values.references import BLOB_SIZE, Attachment, BlobReference, keep_references

__all__ = ["BLOB_SIZE", "Attachment", "BlobReference", "keep_references"]
