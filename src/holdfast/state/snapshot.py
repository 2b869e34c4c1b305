"""A frozen state: a pointer to one version of the trie, with its counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, final

from holdfast.errors import short_repr
from holdfast.state.diff import Changes, Diff, Pair, find_differences, to_changes, to_diff
from holdfast.state.names import Text, mypyc_attr
from holdfast.state.trie import Trie, hash_key, list_leaves, lookup
from holdfast.values.binary_encoding import canonicalize, decode, encode
from holdfast.values.references import BLOB_SIZE, ReferringData, externalize

if TYPE_CHECKING:
    from mypy_extensions import i64

_CHUNK: Final = 4096


@mypyc_attr(acyclic=True)
@final
class Snapshot:
    """A frozen `Store`, created by `Store.snapshot`.

    It is immutable. Any thread may read it, and any store may be restored to it.
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
        self._is_shared = False
        """Whether its nodes may outlive it, because a store was restored to it or reads it."""

    @property
    def id(self) -> int:
        """A number that increases with every snapshot taken in this process."""
        return self._id

    @property
    def timestamp(self) -> float:
        """When the snapshot was taken, in seconds since the epoch."""
        return self._timestamp

    @property
    def parent(self) -> int | None:
        """The id of the snapshot last taken from, or restored to, the store before this one."""
        return self._parent

    @property
    def size_bytes(self) -> int:
        """The total size of all encoded values."""
        return self._size

    @property
    def keys(self) -> list[Pair]:
        """All ``(namespace, key)`` pairs, sorted."""
        return [(name, key) for name, trie in _list_tries(self._root) for key in sorted_keys(trie)]

    @property
    def digest(self) -> str:
        """``sha256:…`` of the content: equal exactly when the content is equal, in any process.

        Computed on first use.
        """
        digest = self._digest
        if digest is None:
            digest = self._digest = compute_digest(self._root)
        return digest

    def get(self, namespace: Text, key: Text, default: Any = None) -> Any:
        """Return a new copy of a value, or ``default``.

        Raises:
            UnsupportedValueError: The value has a registered type that is not registered here.

        """
        data = find_value(
            self._root, validate_name(namespace, "namespace"), validate_name(key, "key")
        )
        return default if data is None else decode(data)

    def contains(self, namespace: Text, key: Text) -> bool:
        """Return whether an entry exists."""
        return (
            find_value(self._root, validate_name(namespace, "namespace"), validate_name(key, "key"))
            is not None
        )

    def namespaces(self) -> list[str]:
        """Return the namespaces that have entries, sorted."""
        return sorted_keys(self._root)

    def items(self, namespace: Text | None = None) -> Iterator[tuple[str, str, Any]]:
        """Yield each ``(namespace, key, value)`` of one namespace or of all, sorted."""
        self._is_shared = True  # a generator may be suspended for any time
        tries = _list_tries(self._root)
        if namespace is not None:
            name = validate_name(namespace, "namespace")
            found = find_namespace(self._root, name)
            tries = [] if found is None else [(name, found)]
        for name, trie in tries:
            for key, value in sorted_items(trie):
                yield name, key, decode(cast("bytes", value))

    def values(self, namespace: Text) -> list[Any]:
        """Return the values of a namespace in the order of their keys."""
        trie = find_namespace(self._root, validate_name(namespace, "namespace"))
        if trie is None:
            return []
        return [decode(cast("bytes", value)) for _, value in sorted_items(trie)]

    def count(self, namespace: Text) -> int:
        """Return the number of entries in a namespace."""
        trie = find_namespace(self._root, validate_name(namespace, "namespace"))
        count = 0
        if trie is not None:
            for leaf in list_leaves(trie.root):
                count += len(leaf)
        return count

    def diff(self, base: Snapshot) -> Diff:
        """Return the entries that were added, removed and changed since ``base``.

        The cost depends on what changed, not on the size of the state. The order of dict keys does
        not matter.
        """
        return to_diff(find_differences(self._root, validate_snapshot(base)._root))

    def changes(self, base: Snapshot) -> Changes:
        """Return what to set and to delete to get from ``base`` to here, for `Store.apply`."""
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
        raise TypeError("cannot pickle a Snapshot; use changes() or items() to get plain data")


def find_namespace(root: Trie, namespace: str) -> Trie | None:
    """Return the trie of a namespace, or None."""
    return cast("Trie | None", lookup(root, hash_key(namespace), namespace))


def find_value(root: Trie, namespace: str, key: str) -> bytes | None:
    """Return the encoded value of an entry, or None."""
    trie = lookup(root, hash_key(namespace), namespace)
    if trie is None:
        return None
    return cast("bytes | None", lookup(cast("Trie", trie), hash_key(key), key))


def sorted_keys(trie: Trie) -> list[str]:
    """Return the keys of a trie in order."""
    keys: list[str] = []
    for leaf in list_leaves(trie.root):
        keys.extend(leaf)
    keys.sort()
    return keys


def sorted_items(trie: Trie) -> list[tuple[str, object]]:
    """Return the entries of a trie in the order of their keys."""
    items: list[tuple[str, object]] = []
    for leaf in list_leaves(trie.root):
        items.extend(leaf.items())
    items.sort()
    return items


def _list_tries(root: Trie) -> list[tuple[str, Trie]]:
    return cast("list[tuple[str, Trie]]", sorted_items(root))


def compute_digest(root: Trie) -> str:
    """Return the sha256 of the packed ``[namespace, key, canonical value]`` of all entries."""
    sha = hashlib.sha256()
    parts: list[bytes] = []
    for namespace, trie in _list_tries(root):
        # b"\x93" is the header of a msgpack array of three.
        opening = b"\x93" + encode(namespace)
        for key, value in sorted_items(trie):
            parts.append(opening)
            parts.append(encode(key))
            data = cast("bytes", value)
            if len(data) >= BLOB_SIZE:
                data = externalize(data)  # whether a large value is a blob does not matter
            parts.append(canonicalize(data))
            if len(parts) > _CHUNK:
                sha.update(b"".join(parts))
                parts.clear()
    sha.update(b"".join(parts))
    return "sha256:" + sha.hexdigest()


def changes_size(later: Snapshot, base: Snapshot) -> int:
    """Return the size in bytes of the entries that differ, without decoding them."""
    size = 0
    for namespace, key, value, _ in find_differences(later._root, base._root):
        size += len(namespace) + len(key)
        if value is not None:
            size += len(value)
    return size


def changes_with_references(later: Snapshot, base: Snapshot) -> Changes:
    """Return the changes between two states; blobs stay references and are not read."""
    return to_changes(
        [
            (namespace, key, None if value is None else bytes(value), None)
            for namespace, key, value, _ in find_differences(later._root, base._root)
        ]
    )


def encoded_changes(later: Snapshot, base: Snapshot) -> list[tuple[str, str, bytes | None]]:
    """Return the entries that differ, with their encoded values, or None if they were deleted."""
    return [
        (namespace, key, value)
        for namespace, key, value, _ in find_differences(later._root, base._root)
    ]


def stored_changes(later: Snapshot, base: Snapshot) -> list[tuple[str, str, bytes | None]]:
    """Like `encoded_changes`, with blobs for large values."""
    return [
        (namespace, key, None if data is None else externalize(data))
        for namespace, key, data in encoded_changes(later, base)
    ]


def encoded_entries(state: Snapshot, namespace: str) -> list[tuple[str, bytes]]:
    """Return the keys and the encoded values of a namespace, in the order of their keys."""
    trie = find_namespace(state._root, namespace)
    return [] if trie is None else cast("list[tuple[str, bytes]]", sorted_items(trie))


def find_containing(state: Snapshot, part: bytes) -> list[tuple[str, str, bytes]]:
    """Return the entries whose encoded values contain some bytes, in no particular order."""
    found: list[tuple[str, str, bytes]] = []
    for namespace, trie in _list_tries(state._root):
        for leaf in list_leaves(trie.root):
            for key, value in leaf.items():
                data = cast("bytes", value)
                if part in data:
                    found.append((namespace, key, data))
    return found


def find_referring(state: Snapshot, base: Snapshot | None = None) -> list[bytes]:
    """Return the encoded values that refer to blobs in a store; with ``base``, the changed ones."""
    if base is not None:
        return [
            value
            for _, _, value in encoded_changes(state, base)
            if value is not None and type(value) is ReferringData
        ]
    found: list[bytes] = []
    for _, trie in _list_tries(state._root):
        for leaf in list_leaves(trie.root):
            for value in leaf.values():
                if type(value) is ReferringData:
                    found.append(cast("bytes", value))
    return found


def validate_name(value: object, what: str) -> str:
    """Return a namespace or a key as a plain str, or raise a TypeError that names it."""
    if type(value) is str:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    raise TypeError(f"{what} must be a str, got {type(value).__name__}: {short_repr(value)}")


def to_row(value: object) -> tuple[Any, ...]:
    """Convert a tuple or a list to a tuple; return an empty one for anything else."""
    if type(value) is tuple:
        return value
    return tuple(value) if isinstance(value, (tuple, list)) else ()


def validate_pair(value: object) -> Pair:
    """Return a ``(namespace, key)`` pair, or raise TypeError."""
    row = to_row(value)
    if len(row) != 2:
        raise TypeError(f"expected a (namespace, key) pair, got {short_repr(value)}")
    return validate_name(row[0], "namespace"), validate_name(row[1], "key")


def validate_snapshot(value: object) -> Snapshot:
    """Return a snapshot, or raise TypeError for any other type."""
    if isinstance(value, Snapshot):
        return value
    raise TypeError(
        f"expected a Snapshot as returned by Store.snapshot(), got {type(value).__name__}"
    )
