"""How a key-value bucket of NATS holds our entries: the subjects of keys, and what headers tell.

A key's parts are the tokens of its subject, so that the server itself picks out what lies below a
prefix, and a person finds the way with any tool of NATS:

    agents/7/état   ->   agents.7.=C3=A9tat

Letters, digits, ``-`` and ``_`` are themselves, every other byte of UTF-8 is ``=`` and two digits,
and an empty part is a lone ``=``. Of a key that is too long for a subject the first parts are kept
and the others become ``=-`` and a digest; its true name is in a header. The pieces of a value that
is too long for a message lie below ``=chunk``. No part of a key reads as one of these.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

ROOM = 512
"""The most bytes of a subject's tokens. A line of the protocol has 4,096, for subject and reply."""

MOST_TOKENS = 32

DIGEST = "=-"
CHUNK = "=chunk"

KEY = "Holdfast-Key"
WRITE = "Holdfast-Write"
PIECES = "Holdfast-Pieces"
OPERATION = "KV-Operation"
REASON = "Nats-Marker-Reason"

SPECIAL = re.compile(rb"[^A-Za-z0-9_-]")
ESCAPE = re.compile(rb"=([0-9A-F]{2})")
ETAG = re.compile(r"([1-9][0-9]{0,18})(?:-([0-9a-f]{32}))?")


def key_to_subject(key: str) -> str:
    """The subject of a key, without that of the bucket before it."""
    tokens = [token(part) for part in key.split("/")]
    kept = take_leading(tokens)
    if len(kept) < len(tokens):
        kept = [*kept, DIGEST + sha256(key.encode()).hexdigest()]
    return ".".join(kept)


def subject_to_key(subject: str, headers: Mapping[str, str]) -> str | None:
    """The key of a subject, or None where it is no key of ours."""
    try:
        if subject.rpartition(".")[2].startswith(DIGEST):
            key = b64decode(headers.get(KEY, "")).decode()
        else:
            key = "/".join(part(text) for text in subject.split("."))
    except (binascii.Error, UnicodeDecodeError):
        return None
    return key if key and key_to_subject(key) == subject else None


def key_headers(key: str, subject: str) -> dict[str, str]:
    """What a message needs to tell its key, beside its subject."""
    if subject.rpartition(".")[2].startswith(DIGEST):
        return {KEY: b64encode(key.encode()).decode()}
    return {}


def prefix_pattern(prefix: str) -> str:
    """A pattern for the subjects of all keys with a prefix: theirs, and maybe of others too."""
    whole = [token(part) for part in prefix.split("/")[:-1]]
    # As many as every such key keeps, however long it is.
    return ".".join([*take_leading(whole), ">"])


def token(part: str) -> str:
    """A part of a key as a token."""
    return SPECIAL.sub(lambda found: b"=%02X" % found[0][0], part.encode()).decode() or "="


def part(text: str) -> str:
    """The part of a key that a token stands for."""
    if text == "=":
        return ""
    return ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), text.encode()).decode()


def take_leading(tokens: Sequence[str]) -> list[str]:
    """The first tokens, as many as there is room for: it depends on nothing that follows them."""
    kept: list[str] = []
    size = -1
    for text in tokens[:MOST_TOKENS]:
        size += 1 + len(text)
        if size > ROOM:
            break
        kept.append(text)
    return kept


def chunk_subject(mark: str, number: int | str) -> str:
    """Where a piece of a write's value is; with ``>`` all of them."""
    return f"{CHUNK}.{mark}.{number}"


def chunk_write_token(subject: str) -> str | None:
    """The mark of the write that a piece belongs to, or None where it is no piece."""
    first, _, rest = subject.partition(".")
    return rest.partition(".")[0] if first == CHUNK else None


@dataclass(frozen=True, slots=True)
class Etag:
    """Which message holds an entry, and whose pieces it refers to.

    The pieces are named so that whoever writes over an entry can remove them unread.
    """

    revision: int
    pieces: str | None = None

    def __str__(self) -> str:
        return f"{self.revision}-{self.pieces}" if self.pieces else f"{self.revision}"


NOTHING = Etag(0)
"""Where there is no message. No etag reads as this one."""


def parse_etag(text: str) -> Etag | None:
    """An etag as it was given to a caller, or None for one that never was."""
    found = ETAG.fullmatch(text)
    return None if found is None else Etag(int(found[1]), found[2])


@dataclass(frozen=True, slots=True)
class Message:
    """The last message of a subject."""

    subject: str
    revision: int
    headers: Mapping[str, str]
    value: bytes = b""
    time: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it is an entry, and not the mark of one that was removed."""
        return self.headers.get(OPERATION) not in ("DEL", "PURGE") and REASON not in self.headers

    @property
    def mark(self) -> str | None:
        """The mark of the write that it comes from."""
        return self.headers.get(WRITE)

    @property
    def pieces(self) -> tuple[int, int] | None:
        """How many pieces its value is in and how many bytes they have, or None: it is whole."""
        text = self.headers.get(PIECES)
        if text is None:
            return None
        count, size = text.split()
        return int(count), int(size)

    @property
    def etag(self) -> Etag:
        """The etag of the entry."""
        return Etag(self.revision, self.mark if PIECES in self.headers else None)
