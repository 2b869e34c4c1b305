"""The contents of a document's blobs during a redaction.

A text gets a new digest when a secret is removed from it, and the references follow. A content that
is not a text is not searched: it is reported, or dropped.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

from holdfast.documents.blobs import DocumentBlob, DocumentBlobs, EmbeddedBlob, OmittedBlob
from holdfast.values.references import BlobReference, read_reference

TEXT_TYPE = re.compile(r"text/.*|application/(.*[+])?(json|xml|yaml|javascript|x-sh|sql|toml)")
"""The media types of texts, which may have another encoding than UTF-8."""


class DocumentContents:
    """Reads the contents of a document's blobs, and collects the new ones."""

    def __init__(self, blobs: DocumentBlobs, *, drop_binary: bool = False) -> None:
        self.drop_binary = drop_binary
        """Whether contents that cannot be searched are dropped."""
        self.not_searched: dict[str, dict[str, Any]] = {}
        """What was not searched, by digest."""
        self._blobs = blobs
        self._new: dict[str, DocumentBlob] = {}
        self._values: dict[BlobReference, str | bytes] = {}
        self._texts: dict[str, tuple[str, str] | None] = {}

    def restore(self, value: Any) -> Any:
        """Return a value with its large parts in place of references, unless they were omitted."""
        kind = type(value)
        if kind is BlobReference:
            if value.digest not in self._blobs:
                return value
            if value not in self._values:
                self._values[value] = read_reference(value, self._blobs)
            return self._values[value]
        if kind is dict:
            return {key: self.restore(item) for key, item in value.items()}
        if kind in (list, tuple, set, frozenset):
            return kind([self.restore(item) for item in value])
        return value

    def read_text(self, digest: str, media_type: str | None) -> str | None:
        """Return a content that is a text; None if it is binary, or was omitted."""
        if digest not in self._texts:
            self._texts[digest] = self._decode(digest, media_type)
        found = self._texts[digest]
        return None if found is None else found[0]

    def _decode(self, digest: str, media_type: str | None) -> tuple[str, str] | None:
        if not self.has(digest):
            return None
        content = self._blobs[digest]
        try:
            return content.decode(), "utf-8"
        except UnicodeDecodeError:
            if media_type is None or not TEXT_TYPE.fullmatch(media_type.partition(";")[0].strip()):
                return None
        encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin-1"
        try:
            return content.decode(encoding), encoding
        except UnicodeDecodeError:
            return content.decode("latin-1"), "latin-1"

    def has(self, digest: str) -> bool:
        """Return whether the document has a content, or got it by the redaction."""
        return digest in self._blobs or digest in self._new

    def replace_text(self, digest: str, text: str) -> tuple[str, int]:
        """Add the new text of a content, and return its digest and size."""
        found = self._texts[digest]
        encoding = "utf-8" if found is None else found[1]
        content = text.encode(encoding, "backslashreplace")
        new = hashlib.sha256(content).hexdigest()
        self._new[new] = EmbeddedBlob(content, new)
        self._texts[new] = (text, encoding)
        return new, len(content)

    def note(self, path: str, digest: str, size: int, **names: str | None) -> None:
        """Note a content that was not searched."""
        known = {name: value for name, value in names.items() if value is not None}
        self.not_searched.setdefault(digest, {"path": path, "size": size, **known})

    def select(self, sizes: dict[str, int], dropped: set[str]) -> DocumentBlobs:
        """Return the blobs of the new document, given what it refers to; others are left out."""
        blobs: list[DocumentBlob] = []
        for digest, size in sizes.items():
            found = self._new.get(digest) or self._blobs.find(digest)
            if digest in dropped:
                found = OmittedBlob(digest, size, "it is binary, and was dropped by a redaction")
            if found is not None:
                blobs.append(found)
        return DocumentBlobs(blobs)
