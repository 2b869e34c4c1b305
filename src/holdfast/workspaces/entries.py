"""What a session stores about one file: an entry of the namespace ``files``.

    regular file     {"digest": "<sha256, 64 hex digits>", "size": 1234, "mode": 0o644}
    symbolic link    {"link": "../target", "mode": 0o777}

The key is the path relative to the folder, with ``/`` between its parts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.errors import IntegrityError, short_repr
from holdfast.state.snapshot import Snapshot
from holdfast.workspaces.paths import validate_path, validate_tree

FILES = "files"
"""The namespace of a session's state that holds the files of its workspace."""

PERMISSIONS = 0o777
LINK_MODE = 0o777
DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A regular file, or a symbolic link if ``link`` is not None."""

    digest: str = ""
    """The SHA-256 of the content, in hexadecimal; empty for a link."""
    size: int = 0
    mode: int = LINK_MODE
    """The permission bits."""
    link: str | None = None
    """The target of the link."""

    def to_value(self) -> dict[str, Any]:
        """Return the value that the session stores."""
        if self.link is not None:
            return {"link": self.link, "mode": self.mode}
        return {"digest": self.digest, "size": self.size, "mode": self.mode}

    def has_content_of(self, other: FileEntry) -> bool:
        """Return whether two entries differ in their modes at most."""
        return self.digest == other.digest and self.link == other.link


FileEntries = Mapping[str, FileEntry]
"""Files by their path."""


def decode_entry(path: str, value: object) -> FileEntry:
    """Return the entry that a session stores for a path.

    Raises:
        IntegrityError: The value is not an entry.

    """
    match value:
        case {"link": str(link), "mode": int(mode), **more} if link and not more:
            if "\0" not in link and 0 <= mode <= PERMISSIONS:
                return FileEntry(mode=mode, link=link)
        case {"digest": str(digest), "size": int(size), "mode": int(mode), **more} if not more:
            if DIGEST.fullmatch(digest) and size >= 0 and 0 <= mode <= PERMISSIONS:
                return FileEntry(digest, size, mode)
    raise IntegrityError(
        f"entry of file {path!r} is invalid: {short_repr(value)}; it must have a digest, a size "
        "and a mode, or a link and a mode"
    )


def read_entries(state: Snapshot) -> dict[str, FileEntry]:
    """Return the files of a state.

    Raises:
        IntegrityError: An entry is invalid, or its path is unsafe.

    """
    found = {
        validate_path(path): decode_entry(path, value) for _, path, value in state.items(FILES)
    }
    validate_tree(found)
    return found
