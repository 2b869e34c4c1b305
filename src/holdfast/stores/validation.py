"""Validation of keys, values and conditions, before any backend sees them.

Every store rejects invalid input with the same message, before it writes anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import msgspec

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.stores.entries import Condition, Put

UNMATCHABLE_ETAG = "no store returns this"
MAX_KEY_BYTES = 8192
"""Room for two ids of 256 characters, percent-encoded (up to 3,072 bytes each), and a path."""


def validate_key(key: object) -> str:
    """Return the key as a plain str.

    Raises:
        TypeError: The key is not a str.
        ValueError: The key is empty or too long.
        UnsupportedValueError: The key contains a lone surrogate.

    """
    if type(key) is str and key.isascii() and 0 < len(key) <= MAX_KEY_BYTES:
        return key  # as nearly all are
    if not isinstance(key, str):
        raise TypeError(f"key must be a str, got {short_repr(key)}")
    key = plain_str(key)
    if not key:
        raise ValueError("key must not be empty")
    size = len(encode_text(key, "key"))
    if size > MAX_KEY_BYTES:
        raise ValueError(
            f"key must have at most {MAX_KEY_BYTES:,} bytes in UTF-8, got {size:,}: "
            f"{short_repr(key)}"
        )
    return key


def validate_keys(keys: Iterable[object]) -> list[str]:
    """Return the keys without duplicates. Raises what ``validate_key`` raises."""
    if isinstance(keys, str):
        raise TypeError(f"get_many takes several keys, got a str; use [{short_repr(keys)}]")
    return list(dict.fromkeys(validate_key(key) for key in keys))


def validate_put(key: object, value: object, if_match: object, if_absent: object) -> Put:
    """Return a write as a ``Put``.

    Raises:
        TypeError: An argument has the wrong type.
        ValueError: The key is invalid, or there are two conditions.

    """
    key = validate_key(key)
    if not isinstance(value, bytes):
        raise TypeError(f"value of key {short_repr(key)} must be bytes, got {short_repr(value)}")
    if not isinstance(if_absent, bool):
        raise TypeError(f"if_absent must be True or False, got {short_repr(if_absent)}")
    etag = validate_etag(if_match)
    if etag is not None and if_absent:
        raise ValueError(
            f"put of key {short_repr(key)} has both if_match and if_absent; pass one of them"
        )
    plain = value if type(value) is bytes else memoryview(value).tobytes()
    return Put(key, plain, etag, if_absent)


def is_plain_put(put: Put) -> bool:
    """Tell whether a write is valid as it is, as nearly all are."""
    key = put.key
    return (
        type(key) is str
        and key.isascii()
        and 0 < len(key) <= MAX_KEY_BYTES
        and type(put.value) is bytes
        and put.if_match is None
        and type(put.if_absent) is bool
    )


def validate_batch(
    puts: Iterable[object], conditions: Iterable[object]
) -> tuple[list[Put], list[Condition]]:
    """Return the writes and the conditions of a batch, which names each key once.

    Raises:
        ValueError: A key is named twice, or cannot be stored.
        TypeError: Something is not a ``Put`` or not a ``Condition``.

    """
    writes: list[Put] = []
    keys = set()
    for put in puts:
        if not isinstance(put, Put):
            raise TypeError(
                f"put_many takes Put(key, value, if_match, if_absent), got {short_repr(put)}"
            )
        write = put if is_plain_put(put) else validate_put(*msgspec.structs.astuple(put))
        if write.key in keys:
            raise ValueError(f"key {short_repr(write.key)} appears twice in the batch")
        writes.append(write)
        keys.add(write.key)
    needed: list[Condition] = []
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f"conditions must be Condition(key, etag), got {short_repr(condition)}")
        key, etag = validate_key(condition.key), validate_etag(condition.etag)
        if etag is None:
            raise TypeError(f"condition on key {short_repr(key)} must have an etag, got None")
        if key in keys:
            raise ValueError(
                f"key {short_repr(key)} appears twice in the batch; use if_match for a key that is "
                "written, and one condition for any other key"
            )
        keys.add(key)
        needed.append(Condition(key, etag))
    return writes, needed


def validate_etag(etag: object) -> str | None:
    """Return an etag, or None. Text that cannot be an etag becomes one that matches nothing."""
    if etag is None:
        return None
    if not isinstance(etag, str):
        raise TypeError(f"etag must be a str returned by a store, got {short_repr(etag)}")
    # No store returns unprintable etags, and some drivers fail on them.
    return str.__str__(etag) if etag.isprintable() else UNMATCHABLE_ETAG


def plain_str(text: str) -> str:
    """Return the content of a str subclass. ``str()`` of an enum member, say, is its name."""
    return str.__str__(text)


def encode_text(text: str, what: str) -> bytes:
    """Return text as UTF-8.

    Raises:
        UnsupportedValueError: The text contains a lone surrogate.

    """
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UnsupportedValueError(
            f"{what} {short_repr(text)} contains a lone surrogate, which cannot be stored"
        ) from None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys of a listing: those with a prefix, and greater than ``after``."""

    prefix: str
    after: str = ""

    @property
    def low(self) -> str:
        """The lower bound, excluded if ``exclusive``."""
        return self.after if self.exclusive else self.prefix

    @property
    def exclusive(self) -> bool:
        """Whether ``low`` itself is outside the range."""
        return self.after >= self.prefix and self.after != ""

    @property
    def high(self) -> str | None:
        """The upper bound, excluded, or None if there is none."""
        return prefix_successor(self.prefix)

    def contains(self, key: str) -> bool:
        """Return whether the key is in the range."""
        return key.startswith(self.prefix) and key > self.after

    def rest_after(self, key: str) -> KeyRange:
        """Return the part of the range after a key."""
        return replace(self, after=key)


def validate_range(prefix: object, start_after: object) -> KeyRange:
    """Return the range of a listing. Raises what ``validate_bound`` raises."""
    return KeyRange(validate_bound(prefix, "prefix"), validate_bound(start_after, "start_after"))


def validate_bound(text: object, what: str) -> str:
    """Return a text that keys are compared with.

    Raises:
        TypeError: It is not a str.
        UnsupportedValueError: It contains a lone surrogate.

    """
    if not isinstance(text, str):
        raise TypeError(f"{what} must be a str, got {short_repr(text)}")
    encode_text(text, what)
    return plain_str(text)


def validate_limit(limit: object) -> int | None:
    """Return the maximum number of keys of a listing, or None.

    Raises:
        TypeError: It is not an int.
        ValueError: It is negative.

    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit must be an int or None, got {short_repr(limit)}")
    if limit < 0:
        raise ValueError(f"limit must be 0 or more, got {limit}")
    return limit


def prefix_successor(prefix: str) -> str | None:
    """Return the least text greater than every text with the prefix, or None."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    point = ord(rest[-1]) + 1
    # Skip the surrogates, which no key contains.
    return rest[:-1] + chr(0xE000 if point == 0xD800 else point)
