"""The input of a reader: a file, or a database named by a URL.

Files are not trusted: they are read within the limits that documents have. A file is read only when
a reader asks for its text, and parsed once for all readers.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, TypeVar

from holdfast.documents.json_file import (
    BOM,
    BoundedStream,
    parse_json,
    read_decompressed,
)
from holdfast.documents.limits import DEFAULT_LIMITS, DocumentLimits
from holdfast.documents.signing_keys import PublicKey
from holdfast.errors import HoldfastError, InvalidDocumentError
from holdfast.snapshots.keys import MAX_ID_LENGTH
from holdfast.stores.urls import StoreURL

DEFAULT_AGENT_ID = "imported"
"""The agent of a source that names none."""

URL_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
COMPRESSED_SUFFIX = re.compile(r"\.(?:gz|zst)\Z", re.IGNORECASE)
FIRST_BYTES = 64
SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
T = TypeVar("T")


@dataclass(frozen=True)
class Source:
    """A file or a database to read, and the options of the import."""

    name: str
    """The file or URL as errors show it, without a password."""
    path: Path | None = None
    url: str | None = field(default=None, repr=False)
    """The URL of a database, with its password."""
    thread: str | None = None
    """The thread of a database to read; None for all of them."""
    agent_id: str | None = None
    session_id: str | None = None
    allow_modified: bool = False
    """Whether to accept a Holdfast document that was edited."""
    limits: DocumentLimits = DEFAULT_LIMITS
    trusted: Sequence[PublicKey] | None = None
    """The keys one of which must have signed a Holdfast document; None requires no signature."""
    file: IO[bytes] | None = field(default=None, repr=False)

    @cached_property
    def start(self) -> bytes:
        """The first bytes of a file as they are on disk; empty for a database."""
        if self.file is None:
            return b""
        self.file.seek(0)
        return self.file.read(FIRST_BYTES)

    @property
    def text(self) -> bytes:
        """The content of a JSON or JSON Lines file, decompressed."""
        return value_or_raise(self._text)

    @property
    def json(self) -> Any:
        """The parsed JSON. Readers share it and must not change it."""
        return value_or_raise(self._json)

    @property
    def is_text(self) -> bool:
        """Whether this is a file that starts like JSON."""
        return not isinstance(self._text, InvalidDocumentError)

    @property
    def is_json(self) -> bool:
        """Whether the whole text is one JSON value."""
        return not isinstance(self._json, InvalidDocumentError)

    @cached_property
    def _text(self) -> bytes | InvalidDocumentError:
        """The text, or the error of reading it: cached, as every reader asks."""
        if self.file is None:
            return InvalidDocumentError(f"{self.name} is a database, not a text file")
        try:
            data = read_decompressed(self.file, self.name, self.limits)
        except InvalidDocumentError as error:
            return error
        return bytes(data.removeprefix(BOM))

    @cached_property
    def _json(self) -> Any:
        """The JSON data, or the error of parsing it."""
        try:
            return parse_json(self.text, self.name)
        except InvalidDocumentError as error:
            if self.is_text and has_lone_surrogate(self.text):
                return InvalidDocumentError(
                    f"{self.name} has a lone surrogate such as \\ud800, which is not text"
                )
            return error

    def lines(self) -> Iterator[tuple[int, Any]]:
        """Yield the non-empty lines of a JSON Lines file, parsed, with their numbers.

        Raises:
            InvalidDocumentError: This is not a text file, or a line is not JSON.

        """
        for number, line in enumerate(self.text.split(b"\n"), 1):
            if line and not line.isspace():
                yield number, parse_json(line, f"line {number} of {self.name}")

    @property
    def stem(self) -> str:
        """The file name without its suffixes, cut to the length of a session id."""
        name = self.path.name if self.path is not None else self.name
        # The bytes of a file name need not be valid UTF-8.
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
    trusted: Sequence[PublicKey] | None = None,
) -> Iterator[Source]:
    """Open a file or a database URL for the block.

    Raises:
        InvalidDocumentError: The file cannot be opened or read.

    """
    options: dict[str, Any] = {
        "thread": thread,
        "agent_id": agent_id,
        "session_id": session_id,
        "allow_modified": allow_modified,
        "limits": limits,
        "trusted": trusted,
    }
    if URL_PATTERN.match(name):
        yield Source(str(StoreURL(name)), url=name, **options)
        return
    with ExitStack() as stack:
        try:
            file: IO[bytes] = stack.enter_context(Path(name).open("rb"))
            if not file.seekable():
                # A pipe can be read only once, and readers look at the first bytes again.
                pipe, file = file, stack.enter_context(tempfile.TemporaryFile())
                shutil.copyfileobj(BoundedStream(pipe, limits.max_bytes), file)
        except FileNotFoundError:
            raise InvalidDocumentError(f"no such file: {name}") from None
        except IsADirectoryError:
            raise InvalidDocumentError(f"{name} is a directory, not a document") from None
        except OSError as error:
            raise unreadable_error(name, error) from error
        try:
            yield Source(name, Path(name), file=file, **options)
        except HoldfastError:
            raise
        except OSError as error:
            raise unreadable_error(name, error) from error


def value_or_raise(found: T | InvalidDocumentError) -> T:
    """Return a value, or raise the error that was cached in its place."""
    if isinstance(found, InvalidDocumentError):
        raise found
    return found


def has_lone_surrogate(text: bytes) -> bool:
    """Return whether a lone surrogate is why a text is not valid JSON.

    Python's own parser accepts them.
    """
    if not SURROGATE.search(text):
        return False
    try:
        json.loads(text)
    except (RecursionError, ValueError):
        return False
    return True


def unreadable_error(name: str, error: OSError) -> InvalidDocumentError:
    """Return the error for a file that the operating system cannot read."""
    return InvalidDocumentError(f"cannot read {name}: {error.strerror or error}")
