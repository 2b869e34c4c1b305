"""The mutable version of the state: a trie of namespaces, each a trie of encoded values.

It tracks node ownership, the number of entries and their size. Locking is up to the store. Freezing
returns the root and takes a new owner number: from then on no existing node is owned, and the first
write to each node copies it.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Final, cast, final

from holdfast.state.snapshot import Snapshot, sorted_keys
from holdfast.state.trie import (
    NEEDS_NEW_NODE,
    Trie,
    copy_trie,
    hash_key,
    is_empty,
    list_leaves,
    lookup,
    new_trie,
    owned_leaf,
    remove_key,
    set_in_place,
)

if TYPE_CHECKING:
    from mypy_extensions import i64

# Snapshot ids and owner numbers come from one counter and are never reused.
next_number: Final = itertools.count(1).__next__


@final
class LiveState:
    """A mutable state with ``count`` entries whose encoded values have ``size`` bytes."""

    def __init__(self) -> None:
        owner: i64 = next_number()
        self.owner: i64 = owner
        self.root = new_trie(owner)
        self.count: i64 = 0
        self.size: i64 = 0
        self.counts_stale = False
        """Whether a write was interrupted, so that the count and the size may be wrong."""

    def set_in_place(self, namespace: str, key: str, data: bytes) -> bool:
        """Set an entry if that needs no new node; return whether it was set."""
        found = lookup(self.root, hash_key(namespace), namespace)
        if found is None:
            return False
        trie = cast("Trie", found)
        if trie.owner != self.owner:
            return False
        previous = set_in_place(trie, hash_key(key), key, data)
        if previous is NEEDS_NEW_NODE:
            return False
        self._account(previous, data)
        return True

    def put(self, namespace: str, key: str, data: bytes) -> None:
        """Set an entry, copying shared nodes."""
        bits = hash_key(key)
        found = lookup(self.root, hash_key(namespace), namespace)
        previous: object | None = None
        if found is None:
            trie = new_trie(self.owner)
            self._adopt(namespace, trie)
        else:
            trie = cast("Trie", found)
            previous = lookup(trie, bits, key)
            if previous is not None and previous == data:
                return
            if trie.owner != self.owner:
                trie = copy_trie(trie, self.owner)
                self._adopt(namespace, trie)
        owned_leaf(trie, bits, for_new_key=previous is None)[key] = data
        self._account(previous, data)

    def remove(self, namespace: str, key: str) -> bool:
        """Delete an entry, and its namespace if empty; return whether the entry existed."""
        found = lookup(self.root, hash_key(namespace), namespace)
        if found is None:
            return False
        trie = cast("Trie", found)
        bits = hash_key(key)
        if lookup(trie, bits, key) is None:
            return False
        if trie.owner != self.owner:
            trie = copy_trie(trie, self.owner)
            self._adopt(namespace, trie)
        previous = cast("bytes", remove_key(trie, bits, key))
        if is_empty(trie):
            remove_key(self._own_root(), hash_key(namespace), namespace)
        self.count -= 1
        self.size -= len(previous)
        return True

    def freeze(self, number: int, timestamp: float, parent: int | None) -> Snapshot:
        """Return a snapshot of the current state, and give up ownership of its nodes."""
        self.owner = next_number()
        return Snapshot(number, timestamp, parent, self.root, self.count, self.size)

    def reset_to(self, state: Snapshot) -> None:
        """Replace the state by a snapshot."""
        self.owner = next_number()
        self.root = state._root
        self.count = state._count
        self.size = state._size
        self.counts_stale = False

    def recount(self) -> None:
        """Recompute the counts, and remove empty namespaces, after an interrupted write."""
        count = 0
        size = 0
        for namespace in sorted_keys(self.root):
            trie = cast("Trie", lookup(self.root, hash_key(namespace), namespace))
            if is_empty(trie):
                remove_key(self._own_root(), hash_key(namespace), namespace)
            for leaf in list_leaves(trie.root):
                count += len(leaf)
                size += sum(len(cast("bytes", data)) for data in leaf.values())
        self.count = count
        self.size = size
        self.counts_stale = False

    def _own_root(self) -> Trie:
        root = self.root
        if root.owner != self.owner:
            root = self.root = copy_trie(root, self.owner)
        return root

    def _adopt(self, namespace: str, trie: Trie) -> None:
        root = self._own_root()
        bits = hash_key(namespace)
        is_new = lookup(root, bits, namespace) is None
        owned_leaf(root, bits, for_new_key=is_new)[namespace] = trie

    def _account(self, previous: object | None, data: bytes) -> None:
        if previous is None:
            self.count += 1
            self.size += len(data)
        else:
            self.size += len(data) - len(cast("bytes", previous))
