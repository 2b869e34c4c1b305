r"""How a key and its value become an object: what it is called, and how its body begins.

The name is that of ``naming.to_name``, in parts that all services take: where one between slashes
has more than 180 characters, ``~-/`` stands after each 180. A name that has more than 700 is cut
there, and goes on with ``~~`` (which no other name has) and the SHA-256 of the key. Names that were
cut after the same beginning stand together in a listing, at the place of their keys, but in no
order of their own: whoever lists them reads the keys from the bodies and sorts.

Every body begins with the token of its write. So no two writes of a key have the same etag, even
where a service makes etags of the content, and a writer whose answer got lost can tell whether what
is there is its own:

    holdfast 1 entry <token, 32 hex digits> <bytes of the key, 4 digits>\n<key><value>
    holdfast 1 ended <token, 16 bytes><token of the entry that it ended, 16 bytes>
    holdfast 1 going <the same>

The key is there where the name was cut. The second form is a key that was deleted, and the third
one whose mark is about to be removed: see ``sweeping.py``. They are shorter than any of the first,
so that a listing, which tells sizes, passes them over unread.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.stores.key_names import decode_key_name, encode_key_name
from holdfast.stores.validation import MAX_KEY_BYTES, KeyRange

if TYPE_CHECKING:
    from datetime import datetime

    from obstore import ObjectMeta

LONG_PART = re.compile("([^/]{180})(?=[^/])")
JOINT = "~-/"
LONGEST = 700
CUT = "~~"
CUT_SIZE = len(CUT) + 64
LAST = "\U0010ffff"

ENTRY = re.compile(rb"holdfast 1 entry ([0-9a-f]{32}) ([0-9]{4})\n")
ENTRY_SIZE = 55
TOMBSTONE = b"holdfast 1 ended "
EXPIRING_TOMBSTONE = b"holdfast 1 going "
TOMBSTONE_SIZE = len(TOMBSTONE) + 32
HEAD_SIZE = ENTRY_SIZE + MAX_KEY_BYTES


# ---- names -----------------------------------------------------------------------------------


def object_name(key: str) -> str:
    """What the object of a key is called."""
    name = split_long_parts(encode_key_name(key))
    return name if len(name) <= LONGEST else name[:LONGEST] + CUT + sha256(key.encode()).hexdigest()


def object_key(name: str) -> str | None:
    """The key that a name stands for; None where it is nobody's, or was cut."""
    key = decode_key_name(name.replace(JOINT, ""))
    return key if key is not None and object_name(key) == name else None


def split_long_parts(name: str) -> str:
    """A name in parts that are not too long."""
    return LONG_PART.sub(rf"\1{JOINT}", name)


def is_shortened(name: str) -> bool:
    """Whether it does not tell its key."""
    return name[-CUT_SIZE:].startswith(CUT)


@dataclass(frozen=True, slots=True)
class ListingWindow:
    """Where the names of a span are: in a folder and all below it, after another name."""

    folder: str
    after: str | None


def listing_window(span: KeyRange) -> ListingWindow:
    """The part of all names to read for a span. It may begin a little before it."""
    # With one more character, as the end of a name differs from its middle.
    stem = encode_key_name(span.prefix + "-")[:-1]
    folder = split_long_parts(stem)[:LONGEST].rpartition("/")[0]
    after = split_long_parts(
        encode_key_name(span.after if span.exclusive else key_before(span.prefix))
    )
    if len(after) > LONGEST:
        after = after[:LONGEST] + CUT[0]  # before all that were cut there
    inside = after.startswith(f"{folder}/") if folder else after != ""
    return ListingWindow(folder, after if inside else None)


def key_before(key: str) -> str:
    """A key that hardly any other stands between it and this one; nothing before the first."""
    if not key:
        return ""
    point = ord(key[-1])
    if point == 0:
        return key[:-1]
    # No text has a code point of the surrogates' range.
    return key[:-1] + chr(0xD7FF if point == 0xE000 else point - 1) + 4 * LAST


async def iterate_keys(
    listing: AsyncGenerator[Sequence[ObjectMeta], None],
    root: str,
    uncut: Callable[[list[str]], Awaitable[list[str]]],
) -> AsyncGenerator[str, None]:
    """The keys of a listing under a root, without those deleted and what is nobody's.

    ``uncut`` finds the keys of names that were cut; it is given all that begin alike.
    """
    cut: list[str] = []
    async with aclosing(listing):
        async for objects in listing:
            for one in objects:
                name = one["path"].removeprefix(root)
                if one["size"] == TOMBSTONE_SIZE:
                    continue
                if cut and name[:LONGEST] != cut[0][:LONGEST]:
                    for key in sorted(await uncut(cut)):
                        yield key
                    cut = []
                if is_shortened(name):
                    cut.append(name)
                elif (known := object_key(name)) is not None:
                    yield known
    for key in sorted(await uncut(cut)):
        yield key


# ---- bodies ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BodyHeader:
    """What a body begins with. ``ended`` is the token of the entry that was deleted, if one was.

    ``going`` says that its mark is about to be removed.
    """

    token: str
    size: int
    key: str = ""
    ended: str = ""
    going: bool = False


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as it is now, all of it or its beginning."""

    etag: str
    head: BodyHeader
    body: memoryview
    written: datetime

    @property
    def entry(self) -> str | None:
        """The etag of the entry; None where it was deleted."""
        return None if self.head.ended else self.etag


def new_token() -> str:
    """What no other write has."""
    return secrets.token_hex(16)


def entry_body(key: str, value: bytes, token: str) -> bytes:
    """The body of an entry."""
    name = key.encode() if is_shortened(object_name(key)) else b""
    return b"holdfast 1 entry %b %04d\n%b%b" % (token.encode(), len(name), name, value)


def tombstone_body(ended: str, token: str, *, going: bool = False) -> bytes:
    """The body of what was an entry."""
    return (
        (EXPIRING_TOMBSTONE if going else TOMBSTONE) + bytes.fromhex(token) + bytes.fromhex(ended)
    )


def parse_header(body: bytes) -> BodyHeader | None:
    """How a body, or the first ``HEAD_SIZE`` bytes of it, begins; None where it is not ours."""
    if body.startswith((TOMBSTONE, EXPIRING_TOMBSTONE)) and len(body) == TOMBSTONE_SIZE:
        tokens = body[len(TOMBSTONE) :].hex()
        going = body.startswith(EXPIRING_TOMBSTONE)
        return BodyHeader(tokens[:32], TOMBSTONE_SIZE, ended=tokens[32:], going=going)
    found = ENTRY.match(body)
    if found is None:
        return None
    size = ENTRY_SIZE + int(found[2])
    return BodyHeader(found[1].decode(), size, key=body[ENTRY_SIZE:size].decode())
