"""The differences between two tries, entries by walking only the nodes they do not share."""

from __future__ import annotations

from operator import itemgetter
from typing import Any, Final, TypedDict, cast

from holdfast.state.trie import EMPTY_LEAF, Trie, compare_nodes
from holdfast.values.binary_encoding import decode, is_same_value
from holdfast.values.references import BLOB_SIZE, externalize, has_references

Pair = tuple[str, str]
"""A namespace and a key."""

EncodedChange = tuple[str, str, bytes | None, bytes | None]
"""Namespace, key, and the encoded values in the later state and in the base, or None."""


class Diff(TypedDict):
    """The entries that differ, each list sorted."""

    added: list[Pair]
    removed: list[Pair]
    changed: list[Pair]


class Changes(TypedDict):
    """What to set and what to delete to get from one state to another, each list sorted."""

    set: list[tuple[str, str, Any]]
    delete: list[Pair]


_first: Final = itemgetter(0)


def find_differences(later: Trie, base: Trie) -> list[EncodedChange]:
    """Return the entries that differ, sorted by namespace and key."""
    namespaces: list[tuple[str, object | None, object | None]] = []
    compare_nodes(later.root, base.root, namespaces)
    namespaces.sort(key=_first)
    result: list[EncodedChange] = []
    for namespace, new, old in namespaces:
        entries: list[tuple[str, object | None, object | None]] = []
        compare_nodes(_root(new), _root(old), entries)
        entries.sort(key=_first)
        for key, value, previous in entries:
            if (
                value is None
                or previous is None
                or not is_equal(cast("bytes", value), cast("bytes", previous))
            ):
                result.append(
                    (namespace, key, cast("bytes | None", value), cast("bytes | None", previous))
                )
    return result


def is_equal(value: bytes, other: bytes) -> bool:
    """Return whether two encodings represent equal values, each inline or with references."""
    if is_same_value(value, other):
        return True
    if len(value) < BLOB_SIZE and len(other) < BLOB_SIZE:
        return False
    if not has_references(value) and not has_references(other):
        return False
    return is_same_value(externalize(value), externalize(other))


def _root(trie: object | None) -> object:
    return EMPTY_LEAF if trie is None else cast("Trie", trie).root


def to_diff(differences: list[EncodedChange]) -> Diff:
    """Return the names of the entries that differ."""
    added: list[Pair] = []
    removed: list[Pair] = []
    changed: list[Pair] = []
    for namespace, key, value, previous in differences:
        if previous is None:
            added.append((namespace, key))
        elif value is None:
            removed.append((namespace, key))
        else:
            changed.append((namespace, key))
    return {"added": added, "removed": removed, "changed": changed}


def to_changes(differences: list[EncodedChange]) -> Changes:
    """Return what to set and to delete to get to the later state."""
    sets: list[tuple[str, str, Any]] = []
    deletes: list[Pair] = []
    for namespace, key, value, _ in differences:
        if value is None:
            deletes.append((namespace, key))
        else:
            sets.append((namespace, key, decode(value)))
    return {"set": sets, "delete": deletes}
