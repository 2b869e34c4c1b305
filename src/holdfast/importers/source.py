"""What a reader reads from: a file, or a database that a URL names.

A file is not trusted. Its first bytes tell what it is; all of it is read only where a reader asks
for its text, with the bounds that documents have, and parsed once for all readers that look at it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

from holdfast.documents.json_file import (
    BOM,
    BoundedStream,
    parse_json,
    read_text,
)
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.errors import HoldfastError, InvalidDocumentError
from holdfast.snapshots.keys import MAX_ID_LENGTH
from holdfast.stores.urls import StoreURL

DEFAULT_AGENT_ID = "imported"
"""The agent of what names none."""

URL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
COMPRESSED_SUFFIX = re.compile(r"\.(?:gz|zst)\Z", re.IGNORECASE)
FIRST_BYTES = 64
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A file or a database, and what the one who imports it said about it."""

    name: str
    """The file or the URL for errors: without its password."""
    path: Path | None = None
    """The file, where it is one."""
    url: str | None = field(default=None, repr=False)
    """The URL with its password, where it is a database."""
    thread: str | None = None
    """Which of several conversations; all of them without one."""
    agent_id: str | None = None
    session_id: str | None = None
    allow_modified: bool = False
    """Whether a Holdfast document may have been edited."""
    limits: DocumentLimits = DEFAULT_LIMITS
    file: IO[bytes] | None = field(default=None, repr=False)

    @cached_property
    def start(self) -> bytes:
        """The first few bytes of a file as they are on disk; nothing of a database."""
        if self.file is None:
            return b""
        self.file.seek(0)
        return self.file.read(FIRST_BYTES)

    @property
    def text(self) -> bytes:
        """All of a file that is JSON or JSON Lines, unpacked if it was packed."""
        return value_or_raise(self._text)

    @property
    def json(self) -> Any:
        """What the text says as JSON. Readers share it, and must not change it."""
        return value_or_raise(self._json)

    @property
    def is_text(self) -> bool:
        """Whether it is a file that begins like JSON."""
        return not isinstance(self._text, InvalidDocumentError)

    @property
    def is_json(self) -> bool:
        """Whether the whole text is one value of JSON."""
        return not isinstance(self._json, InvalidDocumentError)

    @cached_property
    def _text(self) -> bytes | InvalidDocumentError:
        """The text, or why there is none: many readers ask, and it is read once."""
        if self.file is None:
            return InvalidDocumentError(f"{self.name} is a database, and no file with a text")
        try:
            data = read_text(self.file, self.name, self.limits)
        except InvalidDocumentError as error:
            return error
        return bytes(data.removeprefix(BOM))

    @cached_property
    def _json(self) -> Any:
        """The JSON data, or why there is none."""
        try:
            return parse_json(self.text, self.name)
        except InvalidDocumentError as error:
            if self.is_text and has_lone_surrogate(self.text):
                return InvalidDocumentError(
                    f"{self.name} has half of a surrogate pair, as in \\ud800, which is no text"
                )
            return error

    def lines(self) -> Iterator[tuple[int, Any]]:
        """The lines of JSON Lines that are not empty, with their numbers."""
        for number, line in enumerate(self.text.split(b"\n"), 1):
            if not line.isspace() and line:
                yield number, parse_json(line, f"line {number} of {self.name}")

    @property
    def stem(self) -> str:
        """The name of the file without its folder, its suffix, and what says how it is packed."""
        name = self.path.name if self.path is not None else self.name
        # A name on disk may be no text at all.
        readable = Path(COMPRESSED_SUFFIX.sub("", name)).stem.encode(errors="replace").decode()
        return (readable or DEFAULT_AGENT_ID)[:MAX_ID_LENGTH]


@contextmanager
def open_source(
    name: str,
    *,
    thread: str | None = None,
    agent_id: str | None = None,
    session_id: str | None = None,
    allow_modified: bool = False,
    limits: DocumentLimits = DEFAULT_LIMITS,
) -> Iterator[Source]:
    """A file or a database to read from; the file is closed at the end."""
    said: dict[str, Any] = {
        "thread": thread,
        "agent_id": agent_id,
        "session_id": session_id,
        "allow_modified": allow_modified,
        "limits": limits,
    }
    if URL_PATTERN.match(name):
        yield Source(str(StoreURL(name)), url=name, **said)
        return
    with ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(Path(name).open("rb"))
            if not file.seekable():
                # A pipe is read once, and its first bytes are looked at again.
                pipe, file = file, stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(BoundedStream(pipe, limits.max_bytes), file)
        except FileNotFoundError:
            raise InvalidDocumentError(f"there is no file {name}") from None
        except IsADirectoryError:
            raise InvalidDocumentError(f"{name} is a folder, not a document") from None
        except OSError as error:
            raise unreadable_error(name, error) from error
        try:
            yield Source(name, Path(name), file=file, **said)
        except HoldfastError:
            raise
        except OSError as error:
            raise unreadable_error(name, error) from error


def value_or_raise(found: T | InvalidDocumentError) -> T:
    """What was found, or the error that was found instead."""
    if isinstance(found, InvalidDocumentError):
        raise found
    return found


def has_lone_surrogate(text: bytes) -> bool:
    """Whether that is why a text is no JSON: Python's own parser would take it."""
    if not SURROGATE.search(text):
        return False
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True


def unreadable_error(name: str, error: OSError) -> InvalidDocumentError:
    """The error for a file that the system does not give."""
    return InvalidDocumentError(f"{name} cannot be read: {error.strerror or error}")
