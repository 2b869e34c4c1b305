"""The mutable version of the state: a trie of namespaces, each a trie of encoded values.

It tracks node ownership, the number of entries and their size. Locking is up to the store. Freezing
returns the root and takes a new owner number: from then on no existing node is owned, and the first
write to each node copies it.

Unless the snapshot is gone by then. The live state keeps the last snapshot until the next write: if
nothing else refers to it, and no other store was restored to it, its nodes are not shared, and the
write takes the previous owner number again. A snapshot that is taken and dropped copies nothing.
"""

from __future__ import annotations

import itertools
import sys
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

HAS_GIL: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
_count_references: Final = sys.getrefcount


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
        self.last: Snapshot | None = None
        """The last snapshot, if nothing was written since."""
        self.last_owner: i64 = 0
        """The owner before it was taken."""

    def set_in_place(self, namespace: str, key: str, data: bytes) -> bool:
        """Set an entry if that needs no new node; return whether it was set."""
        found = lookup(self.root, hash_key(namespace), namespace)
        if found is None:
            return False
        trie = cast("Trie", found)
        if trie.owner != self.owner:
            self.reclaim()
            if trie.owner != self.owner:
                return False
        previous = set_in_place(trie, hash_key(key), key, data)
        if previous is NEEDS_NEW_NODE:
            return False
        self._account(previous, data)
        return True

    def put(self, namespace: str, key: str, data: bytes) -> None:
        """Set an entry, copying shared nodes."""
        self.reclaim()
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
        self.reclaim()
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
        if self.is_last_dropped():
            # Nothing was written since: the same object serves as the new snapshot.
            last = cast("Snapshot", self.last)
            last._id, last._timestamp, last._parent = number, timestamp, parent
            return last
        owner: i64 = next_number()
        previous: i64 = self.owner
        root, count, size = self.root, self.count, self.size
        self.owner = owner
        self.last = None
        # Creating an object may start the garbage collector, and with it any code.
        snapshot = Snapshot(number, timestamp, parent, root, count, size)
        if self.owner == owner:
            self.last = snapshot
            self.last_owner = previous
        return snapshot

    def reclaim(self) -> None:
        """Own the nodes of the last snapshot again, if nothing refers to it; then forget it."""
        if self.last is not None:
            if self.is_last_dropped():
                self.owner = self.last_owner
            self.last = None

    def is_last_dropped(self) -> bool:
        """Return whether there is a last snapshot that nothing else refers to or shares."""
        # No local variable: it would be one more reference.
        if self.last is None or self.last._is_shared:
            return False
        return self.count_references() <= OWN_REFERENCES

    def count_references(self) -> int:
        """Return the number of references to the last snapshot, as seen from here."""
        return _count_references(self.last)

    def reset_to(self, state: Snapshot) -> None:
        """Replace the state by a snapshot."""
        state._is_shared = True
        self.last = None
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


def count_own_references() -> int:
    """Return the number of references to the last snapshot if nothing else refers to it."""
    live = LiveState()
    live.freeze(0, 0.0, None)
    count = live.count_references()
    live.last = None  # so that it was alive until here, also when compiled
    return count if HAS_GIL else 0


OWN_REFERENCES: Final[int] = count_own_references()
