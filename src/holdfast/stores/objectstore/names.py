"""The object names of keys, and how a listing of objects becomes a listing of keys.

A name is that of ``encode_key_name``, in parts that all services accept: in a part of more than 180
characters, ``~-/`` follows each 180. A name of more than 700 characters is shortened there, and
ends in ``~~``, which no other name contains, and the SHA-256 of the key. Shortened names with the
same beginning are adjacent in a listing, at the position of their keys, but in no order: their keys
are read from the bodies and sorted.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from holdfast.stores.name_encoding import decode_key_name, encode_key_name
from holdfast.stores.objectstore.bodies import TOMBSTONE_SIZE
from holdfast.stores.validation import KeyRange

if TYPE_CHECKING:
    from obstore import ObjectMeta

LONG_PART = re.compile("([^/]{180})(?=[^/])")
JOINT = "~-/"
MAX_NAME = 700
SHORTENED = "~~"
SHORTENED_SIZE = len(SHORTENED) + 64
MAX_CHARACTER = "\U0010ffff"


def object_name(key: str) -> str:
    """Return the object name of a key."""
    name = split_long_parts(encode_key_name(key))
    if len(name) <= MAX_NAME:
        return name
    return name[:MAX_NAME] + SHORTENED + sha256(key.encode()).hexdigest()


def object_key(name: str) -> str | None:
    """Return the key of an object name, or None if it has none or is shortened."""
    key = decode_key_name(name.replace(JOINT, ""))
    return key if key is not None and object_name(key) == name else None


def split_long_parts(name: str) -> str:
    """Return a name whose parts between slashes are short enough."""
    return LONG_PART.sub(rf"\1{JOINT}", name)


def is_shortened(name: str) -> bool:
    """Whether a name is shortened, so that its key is in the body."""
    return name[-SHORTENED_SIZE:].startswith(SHORTENED)


@dataclass(frozen=True, slots=True)
class ListingWindow:
    """The part of a bucket to list: a folder and everything below it, after a name."""

    folder: str
    after: str | None


def listing_window(key_range: KeyRange) -> ListingWindow:
    """Return the part of the bucket to list for a range. It may start slightly before it."""
    # With one more character, because a name ends differently than it continues.
    stem = encode_key_name(key_range.prefix + "-")[:-1]
    folder = split_long_parts(stem)[:MAX_NAME].rpartition("/")[0]
    first = key_range.after if key_range.exclusive else key_before(key_range.prefix)
    after = split_long_parts(encode_key_name(first))
    if len(after) > MAX_NAME:
        after = after[:MAX_NAME] + SHORTENED[0]  # before all names shortened there
    inside = after.startswith(f"{folder}/") if folder else after != ""
    return ListingWindow(folder, after if inside else None)


def key_before(key: str) -> str:
    """Return a key shortly before another one, empty if there is none."""
    if not key:
        return ""
    point = ord(key[-1])
    if point == 0:
        return key[:-1]
    # Skip the surrogates, which no key contains.
    return key[:-1] + chr(0xD7FF if point == 0xE000 else point - 1) + 4 * MAX_CHARACTER


async def iterate_keys(
    listing: AsyncGenerator[Sequence[ObjectMeta], None],
    root: str,
    read_keys: Callable[[list[str]], Awaitable[list[str]]],
) -> AsyncGenerator[str, None]:
    """Yield the keys of a listing in order, without tombstones and other programs' objects.

    ``read_keys`` returns the keys of shortened names; it is called with all that start alike.
    """
    shortened: list[str] = []
    async with aclosing(listing):
        async for objects in listing:
            for one in objects:
                name = one["path"].removeprefix(root)
                if one["size"] == TOMBSTONE_SIZE:
                    continue
                if shortened and name[:MAX_NAME] != shortened[0][:MAX_NAME]:
                    for key in sorted(await read_keys(shortened)):
                        yield key
                    shortened = []
                if is_shortened(name):
                    shortened.append(name)
                elif (known := object_key(name)) is not None:
                    yield known
    for key in sorted(await read_keys(shortened)):
        yield key
