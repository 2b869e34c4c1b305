"""Writes that are checked before the first of them is done."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.state.snapshot import to_row, validate_name
from holdfast.values.binary_encoding import encode
from holdfast.values.lowering import is_text


def encode_entry(namespace: str, key: str, value: object) -> bytes:
    """The bytes of a value; an error that also says of which entry."""
    try:
        return encode(value)
    except UnsupportedValueError as error:
        raise UnsupportedValueError(
            f"{error} (namespace {short_repr(namespace)}, key {short_repr(key)})", error.path
        ) from None


@final
class WriteBatch:
    """Writes that were all found good, as columns: no object an item for the collector to track."""

    def __init__(self, items: Iterable[object]) -> None:
        self.namespaces: list[str] = []
        self.keys: list[str] = []
        self.data: list[bytes | None] = []
        """What to set, or None where the entry is to be deleted."""
        for item in list(items):
            try:
                self._check(item)
            except UnsupportedValueError as error:
                message = f"item {len(self.data)}: {error}"
                raise UnsupportedValueError(message, error.path) from None
            except TypeError as error:
                raise TypeError(f"item {len(self.data)}: {error}") from None
        if not "".join(self.keys).isascii():
            for key in self.keys:
                validate_name_text(key, "key")
        for namespace in set(self.namespaces):
            validate_name_text(namespace, "namespace")

    def add(self, namespace: str, key: str, data: bytes | None) -> None:
        """One more write of what is known to be good."""
        self.namespaces.append(namespace)
        self.keys.append(key)
        self.data.append(data)

    def _check(self, item: object) -> None:
        triple = to_row(item)
        if len(triple) != 3:
            raise TypeError(f"expected a (namespace, key, value) triple, not {short_repr(item)}")
        namespace = validate_name(triple[0], "namespace")
        key = validate_name(triple[1], "key")
        self.add(namespace, key, encode_entry(namespace, key, triple[2]))


def validate_name_text(name: str, what: str) -> None:
    """Refuse a namespace or a key that no encoding can write down."""
    if not is_text(name):
        raise UnsupportedValueError(
            f"the {what} {short_repr(name)} has a lone surrogate; it is not text that can be stored"
        )
