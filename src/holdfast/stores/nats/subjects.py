"""How a key-value bucket stores entries: the subjects of keys, and the headers of messages.

The parts of a key are the tokens of its subject, so the server itself selects what is below a
prefix, and every NATS tool can be used:

    agents/7/état   ->   agents.7.=C3=A9tat

Letters, digits, ``-`` and ``_`` stand for themselves, every other byte of UTF-8 is ``=`` and two
digits, and an empty part is ``=``. A key that is too long for a subject keeps its first parts,
followed by ``=-`` and a digest; the full key is in a header. The chunks of a value that is too
large for a message are below ``=chunk``. No part of a key looks like one of these.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

MAX_SUBJECT = 512
"""Bytes of a subject's tokens. A line of the protocol has 4,096, for the subject and the reply."""

MAX_TOKENS = 32

DIGEST = "=-"
CHUNK = "=chunk"

KEY = "Holdfast-Key"
WRITE = "Holdfast-Write"
CHUNKS = "Holdfast-Pieces"
OPERATION = "KV-Operation"
REASON = "Nats-Marker-Reason"

SPECIAL = re.compile(rb"[^A-Za-z0-9_-]")
ESCAPE = re.compile(rb"=([0-9A-F]{2})")
ETAG = re.compile(r"([1-9][0-9]{0,18})(?:-([0-9a-f]{32}))?")


def key_to_subject(key: str) -> str:
    """Return the subject of a key, without the prefix of the bucket."""
    tokens = [encode_token(part) for part in key.split("/")]
    kept = take_leading(tokens)
    if len(kept) < len(tokens):
        kept = [*kept, DIGEST + sha256(key.encode()).hexdigest()]
    return ".".join(kept)


def subject_to_key(subject: str, headers: Mapping[str, str]) -> str | None:
    """Return the key of a subject, or None if it is not a key's."""
    try:
        if subject.rpartition(".")[2].startswith(DIGEST):
            key = b64decode(headers.get(KEY, "")).decode()
        else:
            key = "/".join(decode_token(token) for token in subject.split("."))
    except (binascii.Error, UnicodeDecodeError):
        return None
    return key if key and key_to_subject(key) == subject else None


def key_headers(key: str, subject: str) -> dict[str, str]:
    """Return the headers that a message needs to identify its key."""
    if subject.rpartition(".")[2].startswith(DIGEST):
        return {KEY: b64encode(key.encode()).decode()}
    return {}


def prefix_pattern(prefix: str) -> str:
    """Return a pattern for the subjects of all keys with a prefix, which may match others too."""
    complete = [encode_token(part) for part in prefix.split("/")[:-1]]
    # Only the tokens that every such key keeps, however long it is.
    return ".".join([*take_leading(complete), ">"])


def encode_token(part: str) -> str:
    """Return the token of a part of a key."""
    return SPECIAL.sub(lambda found: b"=%02X" % found[0][0], part.encode()).decode() or "="


def decode_token(token: str) -> str:
    """Return the part of a key that a token stands for."""
    if token == "=":  # noqa: S105 - not a password
        return ""
    return ESCAPE.sub(lambda found: bytes.fromhex(found[1].decode()), token.encode()).decode()


def take_leading(tokens: Sequence[str]) -> list[str]:
    """Return the first tokens that fit, independently of those that follow."""
    kept: list[str] = []
    size = -1
    for token in tokens[:MAX_TOKENS]:
        size += 1 + len(token)
        if size > MAX_SUBJECT:
            break
        kept.append(token)
    return kept


def chunk_subject(write_token: str, number: int | str) -> str:
    """Return the subject of a chunk of a write's value; with ``>``, of all its chunks."""
    return f"{CHUNK}.{write_token}.{number}"


def chunk_write_token(subject: str) -> str | None:
    """Return the token of the write that a chunk belongs to, or None if it is not a chunk."""
    first, _, rest = subject.partition(".")
    return rest.partition(".")[0] if first == CHUNK else None


@dataclass(frozen=True, slots=True)
class Etag:
    """The sequence of an entry's message, and the write token of its chunks, if any.

    The token is included so that a writer that replaces the entry can remove its chunks unread.
    """

    revision: int
    chunks: str | None = None

    def __str__(self) -> str:
        return f"{self.revision}-{self.chunks}" if self.chunks else f"{self.revision}"


ABSENT = Etag(0)
"""For a subject without messages. No etag of an entry equals it."""


def parse_etag(text: str) -> Etag | None:
    """Return an etag from its text, or None if no store returned it."""
    etag = ETAG.fullmatch(text)
    return None if etag is None else Etag(int(etag[1]), etag[2])


@dataclass(frozen=True, slots=True)
class Message:
    """The last message of a subject."""

    subject: str
    revision: int
    headers: Mapping[str, str]
    value: bytes = b""
    time: float = 0.0

    @property
    def is_entry(self) -> bool:
        """Whether it is an entry, and not the marker of a deleted one."""
        return self.headers.get(OPERATION) not in ("DEL", "PURGE") and REASON not in self.headers

    @property
    def write_token(self) -> str | None:
        """The token of the write that it comes from."""
        return self.headers.get(WRITE)

    @property
    def chunks(self) -> tuple[int, int] | None:
        """The number and total size of the value's chunks, or None if it has none."""
        text = self.headers.get(CHUNKS)
        if text is None:
            return None
        count, size = text.split()
        return int(count), int(size)

    @property
    def etag(self) -> Etag:
        """The etag of the entry."""
        return Etag(self.revision, self.write_token if CHUNKS in self.headers else None)
