"""References as short texts, for people: ``<image/png "chart.png", 5.0 MB>``."""

from __future__ import annotations

from typing import Any

from holdfast.values.extensions import CODES
from holdfast.values.references import TEXT, Attachment, BlobReference, build_reference

UNITS = ("kB", "MB", "GB", "TB")
MAX_NAME = 80


def describe_reference(reference: BlobReference | Attachment) -> str:
    """Return a reference as text, such as ``<bytes, 5.0 MB, sha256:ab12cd34…>``."""
    size = format_size(reference.size)
    if isinstance(reference, BlobReference):
        kind = "text" if reference.kind == TEXT else "bytes"
        return f"<{kind}, {size}, sha256:{reference.digest[:8]}…>"
    what = reference.media_type or "attachment"
    name = reference.name
    if name is not None:
        what += f' "{name if len(name) <= MAX_NAME else f"{name[:MAX_NAME]}…"}"'
    return f"<{what}, {size}>"


def read_json_reference(tree: Any) -> BlobReference | Attachment | None:
    """Return the reference that JSON data is the encoding of, or None for other data."""
    if isinstance(tree, dict) and len(tree) == 1:
        for tag in ("$blob", "$attachment"):
            if isinstance(items := tree.get(tag), list):
                return build_reference(CODES[tag], items)
    return None


def format_size(size: int) -> str:
    """Return a size such as 5.0 MB."""
    if size < 1000:
        return "1 byte" if size == 1 else f"{size} bytes"
    scaled, step = size / 1000, 0
    while scaled >= 999.95 and step < len(UNITS) - 1:
        scaled, step = scaled / 1000, step + 1
    return f"{scaled:,.1f} {UNITS[step]}"
