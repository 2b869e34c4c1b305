"""The gate: what every key, value and condition passes before a backend sees it.

Nothing behind it has to doubt its input, so that a bad one is refused with the same words, and
before anything is written, whatever the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.stores.entries import Condition, Put

UNMATCHABLE_ETAG = "no store gives this"
MAX_KEY_BYTES = 8192
"""Room for two ids of 256 characters, percent-encoded (3,072 bytes each at most), and a path."""


def validate_key(key: object) -> str:
    """A key that every backend can keep, or a refusal."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {short_repr(key)}")
    key = plain_str(key)
    if not key:
        raise ValueError("a key has at least one character; this one is empty")
    size = len(encode_text(key, "key"))
    if size > MAX_KEY_BYTES:
        raise ValueError(
            f"a key has at most {MAX_KEY_BYTES:,} bytes in UTF-8; "
            f"this one has {size:,}: {short_repr(key)}"
        )
    return key


def validate_keys(keys: Iterable[object]) -> list[str]:
    """Keys, each once, or a refusal of all."""
    if isinstance(keys, str):
        raise TypeError(f"get_many takes several keys, as in [{short_repr(keys)}], not one")
    return list(dict.fromkeys(validate_key(key) for key in keys))


def validate_put(key: object, value: object, if_match: object, if_absent: object) -> Put:
    """A write that every backend can do, or a refusal."""
    key = validate_key(key)
    if not isinstance(value, bytes):
        raise TypeError(
            f"the value for the key {short_repr(key)} is bytes, not {short_repr(value)}"
        )
    if not isinstance(if_absent, bool):
        raise TypeError(f"if_absent is True or False, not {short_repr(if_absent)}")
    match = validate_etag(if_match)
    if match is not None and if_absent:
        raise ValueError(
            f"the key {short_repr(key)} cannot both have an etag and be absent: "
            "give if_match or if_absent, not both"
        )
    return Put(key, memoryview(value).tobytes(), match, if_absent)


def validate_puts(puts: Iterable[object]) -> list[Put]:
    """Writes to as many keys, or a refusal of all."""
    checked = []
    keys = set()
    for put in puts:
        if not isinstance(put, Put):
            raise TypeError(
                f"put_many takes Put(key, value, if_match, if_absent), not {short_repr(put)}"
            )
        good = validate_put(put.key, put.value, put.if_match, put.if_absent)
        if good.key in keys:
            raise ValueError(
                f"put_many writes each key once; {short_repr(good.key)} is there twice"
            )
        checked.append(good)
        keys.add(good.key)
    return checked


def validate_batch(
    puts: Iterable[object], conditions: Iterable[object]
) -> tuple[list[Put], list[Condition]]:
    """Return the writes and the conditions of a batch, which concern each key once.

    Raises:
        ValueError: A key is named twice, or cannot be stored.
        TypeError: Something is not a ``Put`` or not a ``Condition``.

    """
    writes = validate_puts(puts)
    keys = {put.key for put in writes}
    valid = []
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f"conditions must be Condition(key, etag), got {short_repr(condition)}")
        key = validate_key(condition.key)
        etag = validate_etag(condition.etag)
        if etag is None:
            raise TypeError(f"condition on the key {short_repr(key)} must have an etag, got None")
        if key in keys:
            raise ValueError(
                f"key {short_repr(key)} appears twice in the batch; give a key that is written its "
                "condition with if_match, and every other key one condition"
            )
        keys.add(key)
        valid.append(Condition(key, etag))
    return writes, valid


def validate_etag(etag: object) -> str | None:
    """An etag as a store gave it, or None. Any other text is one that matches nothing."""
    if etag is None:
        return None
    if not isinstance(etag, str):
        raise TypeError(f"an etag is the str that a store gave, not {short_repr(etag)}")
    # No store gives what cannot be written down, and drivers stumble over it.
    return plain_str(etag) if etag.isprintable() else UNMATCHABLE_ETAG


def plain_str(text: str) -> str:
    """A text as itself. ``str()`` of an enum's member, say, is another one."""
    return str.__str__(text)


def encode_text(text: str, what: str) -> bytes:
    """Text as UTF-8, or a refusal of what cannot be written down."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UnsupportedValueError(
            f"the {what} {short_repr(text)} has a lone surrogate; it is not text that can be stored"
        ) from None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys that a listing asks for: those with a prefix that come after another key."""

    prefix: str
    after: str = ""

    @property
    def low(self) -> str:
        """Where to begin: with this one excluded if ``exclusive``."""
        return self.after if self.exclusive else self.prefix

    @property
    def exclusive(self) -> bool:
        """Whether ``low`` itself is not one of them."""
        return self.after >= self.prefix and self.after != ""

    @property
    def high(self) -> str | None:
        """What all of them come before, or None where nothing bounds them."""
        return prefix_successor(self.prefix)

    def holds(self, key: str) -> bool:
        """Whether it is one of them."""
        return key.startswith(self.prefix) and key > self.after

    def beyond(self, key: str) -> KeyRange:
        """What is left after a key."""
        return replace(self, after=key)


def validate_range(prefix: object, start_after: object) -> KeyRange:
    """What to list, or a refusal."""
    return KeyRange(validate_bound(prefix, "prefix"), validate_bound(start_after, "start_after"))


def validate_bound(text: object, what: str) -> str:
    """A text to compare keys with, or a refusal."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {short_repr(text)}")
    encode_text(text, what)
    return plain_str(text)


def validate_limit(limit: object) -> int | None:
    """How many keys at most, or None."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit is an int or None, not {short_repr(limit)}")
    if limit < 0:
        raise ValueError(f"limit is 0 or more, not {limit}")
    return limit


def prefix_successor(prefix: str) -> str | None:
    """The first text, in the order of code points, after all that start with the prefix."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    point = ord(rest[-1]) + 1
    # No text has a code point of the surrogates' range.
    return rest[:-1] + chr(0xE000 if point == 0xD800 else point)
