"""A frozen state: one pointer to a version of the trie, and what is known about it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, final

from holdfast.errors import short_repr
from holdfast.state.diff import Changes, Diff, Pair, find_differences, to_changes, to_diff
from holdfast.state.names import Text
from holdfast.state.trie import Trie, hash_key, list_leaves, lookup
from holdfast.values.binary_encoding import canonicalize, decode, encode

if TYPE_CHECKING:
    from mypy_extensions import i64

_CHUNK: Final = 4096


@final
class Snapshot:
    """A frozen `Store`. It never changes, whatever is written to the store afterwards.

    Made by `Store.snapshot`. Any thread may read it, and any store may be restored to it.
    """

    def __init__(
        self, number: int, timestamp: float, parent: int | None, root: Trie, count: i64, size: i64
    ) -> None:
        self._id = number
        self._timestamp = timestamp
        self._parent = parent
        self._root = root
        self._count: i64 = count
        self._size: i64 = size
        self._digest: str | None = None

    @property
    def id(self) -> int:
        """A number that grows with every snapshot taken in this process, of any store."""
        return self._id

    @property
    def timestamp(self) -> float:
        """When it was taken, in seconds since the epoch."""
        return self._timestamp

    @property
    def parent(self) -> int | None:
        """The id of the snapshot that the store came from: the last one taken or restored."""
        return self._parent

    @property
    def size_bytes(self) -> int:
        """Bytes of all encoded values together."""
        return self._size

    @property
    def keys(self) -> list[Pair]:
        """All ``(namespace, key)`` pairs, sorted."""
        return [(name, key) for name, trie in _spaces(self._root) for key in sorted_keys(trie)]

    @property
    def digest(self) -> str:
        """``sha256:…`` of the content: equal exactly when the content is, in any process.

        Computed when first asked for, and kept.
        """
        known = self._digest
        if known is None:
            known = self._digest = compute_digest(self._root)
        return known

    def get(self, namespace: Text, key: Text, default: Any = None) -> Any:
        """A fresh copy of the value, or ``default``."""
        data = find_value(
            self._root, validate_name(namespace, "namespace"), validate_name(key, "key")
        )
        return default if data is None else decode(data)

    def contains(self, namespace: Text, key: Text) -> bool:
        """Whether there is such an entry."""
        return (
            find_value(self._root, validate_name(namespace, "namespace"), validate_name(key, "key"))
            is not None
        )

    def namespaces(self) -> list[str]:
        """The namespaces that hold anything, sorted."""
        return sorted_keys(self._root)

    def items(self, namespace: Text | None = None) -> Iterator[tuple[str, str, Any]]:
        """Every ``(namespace, key, value)``, of one namespace or all, sorted, one by one."""
        spaces = _spaces(self._root)
        if namespace is not None:
            name = validate_name(namespace, "namespace")
            found = lookup(self._root, hash_key(name), name)
            spaces = [] if found is None else [(name, cast("Trie", found))]
        for space, trie in spaces:
            for key, value in sorted_items(trie):
                yield space, key, decode(cast("bytes", value))

    def values(self, namespace: Text) -> list[Any]:
        """The values of one namespace, in the order of their keys, all at once."""
        name = validate_name(namespace, "namespace")
        found = lookup(self._root, hash_key(name), name)
        if found is None:
            return []
        return [decode(cast("bytes", value)) for _, value in sorted_items(cast("Trie", found))]

    def count(self, namespace: Text) -> int:
        """How many entries a namespace has."""
        name = validate_name(namespace, "namespace")
        found = lookup(self._root, hash_key(name), name)
        if found is None:
            return 0
        number = 0
        for leaf in list_leaves(cast("Trie", found).root):
            number += len(leaf)
        return number

    def diff(self, base: Snapshot) -> Diff:
        """Which entries were added, removed and changed since ``base``, as sorted pairs.

        Costs what changed, not what there is. The order of a dict's keys is not a change.
        """
        return to_diff(find_differences(self._root, validate_snapshot(base)._root))

    def changes(self, base: Snapshot) -> Changes:
        """What to set and what to delete to come from ``base`` to here; `Store.apply` takes it."""
        return to_changes(find_differences(self._root, validate_snapshot(base)._root))

    def __contains__(self, pair: object) -> bool:
        namespace, key = validate_pair(pair)
        return find_value(self._root, namespace, key) is not None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Snapshot {self._id}: {self._count} entries, {self._size} bytes>"

    def __copy__(self) -> Snapshot:
        return self

    def __deepcopy__(self, memo: object) -> Snapshot:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Snapshot cannot be pickled; its changes() and items() are plain data")


def find_value(root: Trie, namespace: str, key: str) -> bytes | None:
    """The encoded value of an entry."""
    trie = lookup(root, hash_key(namespace), namespace)
    if trie is None:
        return None
    return cast("bytes | None", lookup(cast("Trie", trie), hash_key(key), key))


def sorted_keys(trie: Trie) -> list[str]:
    """The keys of one map, in order."""
    keys: list[str] = []
    for leaf in list_leaves(trie.root):
        keys.extend(leaf)
    keys.sort()
    return keys


def sorted_items(trie: Trie) -> list[tuple[str, object]]:
    """The entries of one map, in the order of their keys."""
    items: list[tuple[str, object]] = []
    for leaf in list_leaves(trie.root):
        items.extend(leaf.items())
    items.sort()
    return items


def _spaces(root: Trie) -> list[tuple[str, Trie]]:
    return cast("list[tuple[str, Trie]]", sorted_items(root))


def compute_digest(root: Trie) -> str:
    """sha256 over the packed ``[namespace, key, canonical value]`` of every entry, in order."""
    sha = hashlib.sha256()
    parts: list[bytes] = []
    for namespace, trie in _spaces(root):
        # b"\x93" opens a msgpack array of three.
        opening = b"\x93" + encode(namespace)
        for key, value in sorted_items(trie):
            parts.append(opening)
            parts.append(encode(key))
            parts.append(canonicalize(cast("bytes", value)))
            if len(parts) > _CHUNK:
                sha.update(b"".join(parts))
                parts.clear()
    sha.update(b"".join(parts))
    return "sha256:" + sha.hexdigest()


def validate_name(value: object, what: str) -> str:
    """A namespace or a key as a plain str; an error that says which of them is not."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"the {what} must be a str, not {type(value).__name__}: {short_repr(value)}")


def to_row(value: object) -> tuple[Any, ...]:
    """A tuple, also of a list; an empty one for anything else, which is of no use to the caller."""
    if type(value) is tuple:
        return value
    return tuple(value) if isinstance(value, (tuple, list)) else ()


def validate_pair(value: object) -> Pair:
    """A ``(namespace, key)`` pair, checked."""
    row = to_row(value)
    if len(row) != 2:
        raise TypeError(f"expected a (namespace, key) pair, not {short_repr(value)}")
    return validate_name(row[0], "namespace"), validate_name(row[1], "key")


def validate_snapshot(value: object) -> Snapshot:
    """A snapshot, or an error that says what came instead."""
    if isinstance(value, Snapshot):
        return value
    raise TypeError(
        f"expected a Snapshot, as Store.snapshot() returns it, not {type(value).__name__}"
    )
