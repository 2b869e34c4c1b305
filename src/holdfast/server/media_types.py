"""Which media types a browser may display, and the names that it saves files under.

A blob is untrusted. It is served with the type that the client asks for only if a browser cannot
run anything in it; as HTML or SVG, for example, it could.
"""

from __future__ import annotations

import re
from urllib.parse import quote

BINARY = "application/octet-stream"
TEXT = "text/plain; charset=utf-8"
SAFE_TYPES = frozenset(
    (
        "application/json",
        "audio/aac",
        "audio/flac",
        "audio/mpeg",
        "audio/ogg",
        "audio/wav",
        "audio/webm",
        "image/avif",
        "image/bmp",
        "image/gif",
        "image/jpeg",
        "image/png",
        "image/webp",
        "video/mp4",
        "video/ogg",
        "video/webm",
    )
)
MEDIA_TYPE = r"^[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}/[A-Za-z0-9][A-Za-z0-9!#$&^_.+-]{0,126}$"
"""A media type without parameters (RFC 6838)."""
UNSAFE_NAME = re.compile(r"[^A-Za-z0-9._ ()+,=@-]|^[. ]+|[. ]+$")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069/\\:*?\"<>|]")
"""Characters that file names must not have, and those that change how a name is displayed."""
MAX_NAME = 150


def select_content_type(media_type: str | None) -> str:
    """Return the content type to serve a blob with, given its declared type."""
    wanted = (media_type or "").partition(";")[0].strip().lower()
    if wanted == "text/plain":
        return TEXT
    return wanted if wanted in SAFE_TYPES else BINARY


def content_disposition(name: str | None, digest: str, content_type: str) -> str:
    """Return the header that names a download; what a browser can display is not saved at once."""
    kind = "attachment" if content_type == BINARY else "inline"
    cleaned = CONTROL.sub("_", name or "").strip(". ")[-MAX_NAME:] or digest[:16]
    plain = UNSAFE_NAME.sub("_", cleaned)
    header = f'{kind}; filename="{plain}"'
    if plain != cleaned:
        header += f"; filename*=UTF-8''{quote(cleaned.encode('utf-8', 'replace'), safe='')}"
    return header
