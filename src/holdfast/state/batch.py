"""Several writes, validated before the first is applied."""

from __future__ import annotations

from collections.abc import Iterable
from typing import final

from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.state.snapshot import to_row, validate_name
from holdfast.values.binary_encoding import encode
from holdfast.values.lowering import is_text


def encode_entry(namespace: str, key: str, value: object) -> bytes:
    """Encode a value; an error names its entry."""
    try:
        return encode(value)
    except UnsupportedValueError as error:
        raise UnsupportedValueError(
            f"{error} (namespace {short_repr(namespace)}, key {short_repr(key)})", error.path
        ) from None


@final
class WriteBatch:
    """Validated writes, stored as columns to avoid one tracked object per item."""

    def __init__(self, items: Iterable[object]) -> None:
        self.namespaces: list[str] = []
        self.keys: list[str] = []
        self.data: list[bytes | None] = []
        """The encoded value to set, or None to delete the entry."""
        rows = list(items)
        if not rows:
            return
        for item in rows:
            try:
                self._add_item(item)
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
        """Add a write that is known to be valid."""
        self.namespaces.append(namespace)
        self.keys.append(key)
        self.data.append(data)

    def _add_item(self, item: object) -> None:
        triple = to_row(item)
        if len(triple) != 3:
            raise TypeError(f"expected a (namespace, key, value) triple, got {short_repr(item)}")
        namespace = validate_name(triple[0], "namespace")
        key = validate_name(triple[1], "key")
        self.add(namespace, key, encode_entry(namespace, key, triple[2]))


def validate_name_text(name: str, what: str) -> None:
    """Raise UnsupportedValueError for a namespace or a key that UTF-8 cannot encode."""
    if not is_text(name):
        raise UnsupportedValueError(
            f"{what} {short_repr(name)} contains a lone surrogate, which UTF-8 cannot encode"
        )
