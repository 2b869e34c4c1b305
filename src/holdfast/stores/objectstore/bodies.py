r"""The body of an object: a header with the token of its write, and the value.

Because of the token no two writes of a key have the same etag, even if a service derives etags from
the content, and a writer whose response was lost can tell whether an object is its own:

    holdfast 1 entry <token, 32 hex digits> <bytes of the key, 4 digits>\n<key><value>
    holdfast 1 ended <token, 16 bytes><token of the entry that was deleted, 16 bytes>
    holdfast 1 going <the same>

The key is included if the name is shortened. The second form is a tombstone, the mark of a deleted
key, and the third a tombstone that is about to be removed: see ``sweep.py``. Both are smaller than
any entry, so a listing, which has sizes, skips them unread.
"""

from __future__ import annotations

import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.stores.validation import MAX_KEY_BYTES

if TYPE_CHECKING:
    from datetime import datetime

ENTRY = re.compile(rb"holdfast 1 entry ([0-9a-f]{32}) ([0-9]{4})\n")
ENTRY_SIZE = 55
TOMBSTONE = b"holdfast 1 ended "
EXPIRING_TOMBSTONE = b"holdfast 1 going "
TOMBSTONE_SIZE = len(TOMBSTONE) + 32
MAX_HEADER_SIZE = ENTRY_SIZE + MAX_KEY_BYTES


@dataclass(frozen=True, slots=True)
class BodyHeader:
    """The header of a body.

    ``key`` is empty unless the object's name is shortened. In a tombstone, ``deleted`` is the token
    of the entry that was deleted, and ``expiring`` whether it is about to be removed.
    """

    token: str
    size: int
    key: str = ""
    deleted: str = ""
    expiring: bool = False


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it was read, with its whole body or the beginning of it."""

    etag: str
    header: BodyHeader
    body: memoryview
    written: datetime

    @property
    def entry_etag(self) -> str | None:
        """The etag of the entry, or None if the object is a tombstone."""
        return None if self.header.deleted else self.etag


def new_token() -> str:
    """Return a token that no other write has."""
    return secrets.token_hex(16)


def entry_body(value: bytes, token: str, key: str = "") -> bytes:
    """Return the body of an entry, with its key if the name is shortened."""
    name = key.encode()
    return b"holdfast 1 entry %b %04d\n%b%b" % (token.encode(), len(name), name, value)


def tombstone_body(deleted: str, token: str, *, expiring: bool = False) -> bytes:
    """Return the body of a tombstone for the entry with the token ``deleted``."""
    kind = EXPIRING_TOMBSTONE if expiring else TOMBSTONE
    return kind + bytes.fromhex(token) + bytes.fromhex(deleted)


def parse_header(body: bytes) -> BodyHeader | None:
    """Return the header of a body, or None if it was not written by Holdfast.

    The first ``MAX_HEADER_SIZE`` bytes of the body are enough.
    """
    if body.startswith((TOMBSTONE, EXPIRING_TOMBSTONE)) and len(body) == TOMBSTONE_SIZE:
        tokens = body[len(TOMBSTONE) :].hex()
        expiring = body.startswith(EXPIRING_TOMBSTONE)
        return BodyHeader(tokens[:32], TOMBSTONE_SIZE, deleted=tokens[32:], expiring=expiring)
    entry = ENTRY.match(body)
    if entry is None:
        return None
    size = ENTRY_SIZE + int(entry[2])
    return BodyHeader(entry[1].decode(), size, key=body[ENTRY_SIZE:size].decode())
