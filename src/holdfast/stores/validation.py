"""The gate: what every key, value and condition passes before a backend sees it.

Nothing behind it has to doubt its input, so that a bad one is refused with the same words, and
before anything is written, whatever the store.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from holdfast.errors import UnsupportedValueError, shown
from holdfast.stores.entries import Condition, Put

NO_ETAG = "no store gives this"
MAX_KEY_BYTES = 8192
"""Room for two ids of 256 characters, percent-encoded (3,072 bytes each at most), and a path."""


def checked_key(key: object) -> str:
    """A key that every backend can keep, or a refusal."""
    if not isinstance(key, str):
        raise TypeError(f"a key is a str, not {shown(key)}")
    key = plain(key)
    if not key:
        raise ValueError("a key has at least one character; this one is empty")
    size = len(encoded(key, "key"))
    if size > MAX_KEY_BYTES:
        raise ValueError(
            f"a key has at most {MAX_KEY_BYTES:,} bytes in UTF-8; "
            f"this one has {size:,}: {shown(key)}"
        )
    return key


def checked_keys(keys: Iterable[object]) -> list[str]:
    """Keys, each once, or a refusal of all."""
    if isinstance(keys, str):
        raise TypeError(f"get_many takes several keys, as in [{shown(keys)}], not one")
    return list(dict.fromkeys(checked_key(key) for key in keys))


def checked_put(key: object, value: object, if_match: object, if_absent: object) -> Put:
    """A write that every backend can do, or a refusal."""
    key = checked_key(key)
    if not isinstance(value, bytes):
        raise TypeError(f"the value for the key {shown(key)} is bytes, not {shown(value)}")
    if not isinstance(if_absent, bool):
        raise TypeError(f"if_absent is True or False, not {shown(if_absent)}")
    match = checked_etag(if_match)
    if match is not None and if_absent:
        raise ValueError(
            f"the key {shown(key)} cannot both have an etag and be absent: "
            "give if_match or if_absent, not both"
        )
    return Put(key, memoryview(value).tobytes(), match, if_absent)


def checked_puts(puts: Iterable[object]) -> list[Put]:
    """Writes to as many keys, or a refusal of all."""
    checked = []
    keys = set()
    for put in puts:
        if not isinstance(put, Put):
            raise TypeError(
                f"put_many takes Put(key, value, if_match, if_absent), not {shown(put)}"
            )
        good = checked_put(put.key, put.value, put.if_match, put.if_absent)
        if good.key in keys:
            raise ValueError(f"put_many writes each key once; {shown(good.key)} is there twice")
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
    writes = checked_puts(puts)
    keys = {put.key for put in writes}
    valid = []
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise TypeError(f"conditions must be Condition(key, etag), got {shown(condition)}")
        key = checked_key(condition.key)
        etag = checked_etag(condition.etag)
        if etag is None:
            raise TypeError(f"condition on the key {shown(key)} must have an etag, got None")
        if key in keys:
            raise ValueError(
                f"key {shown(key)} appears twice in the batch; give a key that is written its "
                "condition with if_match, and every other key one condition"
            )
        keys.add(key)
        valid.append(Condition(key, etag))
    return writes, valid


def checked_etag(etag: object) -> str | None:
    """An etag as a store gave it, or None. Any other text is one that matches nothing."""
    if etag is None:
        return None
    if not isinstance(etag, str):
        raise TypeError(f"an etag is the str that a store gave, not {shown(etag)}")
    # No store gives what cannot be written down, and drivers stumble over it.
    return plain(etag) if etag.isprintable() else NO_ETAG


def plain(text: str) -> str:
    """A text as itself. ``str()`` of an enum's member, say, is another one."""
    return str.__str__(text)


def encoded(text: str, what: str) -> bytes:
    """Text as UTF-8, or a refusal of what cannot be written down."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise UnsupportedValueError(
            f"the {what} {shown(text)} has a lone surrogate; it is not text that can be stored"
        ) from None


@dataclass(frozen=True, slots=True)
class Span:
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
        return after_all_with(self.prefix)

    def holds(self, key: str) -> bool:
        """Whether it is one of them."""
        return key.startswith(self.prefix) and key > self.after

    def beyond(self, key: str) -> Span:
        """What is left after a key."""
        return replace(self, after=key)


def checked_span(prefix: object, start_after: object) -> Span:
    """What to list, or a refusal."""
    return Span(checked_bound(prefix, "prefix"), checked_bound(start_after, "start_after"))


def checked_bound(text: object, what: str) -> str:
    """A text to compare keys with, or a refusal."""
    if not isinstance(text, str):
        raise TypeError(f"{what} is a str, not {shown(text)}")
    encoded(text, what)
    return plain(text)


def checked_limit(limit: object) -> int | None:
    """How many keys at most, or None."""
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int):
        raise TypeError(f"limit is an int or None, not {shown(limit)}")
    if limit < 0:
        raise ValueError(f"limit is 0 or more, not {limit}")
    return limit


def after_all_with(prefix: str) -> str | None:
    """The first text, in the order of code points, after all that start with the prefix."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    point = ord(rest[-1]) + 1
    # No text has a code point of the surrogates' range.
    return rest[:-1] + chr(0xE000 if point == 0xD800 else point)
