"""The live state: ``(namespace, key) -> value``, frozen in constant time, safe between threads.

A store is a trie of namespaces, each of which is a trie of encoded values. ``snapshot`` hands out
the root and takes a new owner's number; from then on no node below that root belongs to anybody,
and the first write to each is a copy.

Locking. Every operation that makes nodes or spans several steps holds one reentrant lock. A single
``get``, or a ``set`` that edits a leaf in place, is one step anyway when it runs compiled under the
GIL: no bytecode runs and nothing is allocated that could start the garbage collector, so no other
thread can see or disturb it half-way. Such a step takes the lock only while somebody holds it.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, final

from holdfast.errors import UnsupportedValueError
from holdfast.state.diff import Changes, Diff, Pair, as_diff
from holdfast.state.merge import Resolution, resolved
from holdfast.state.names import Text
from holdfast.state.snapshot import (
    Snapshot,
    as_name,
    as_pair,
    as_row,
    as_snapshot,
    find,
    sorted_keys,
)
from holdfast.state.trie import (
    COMPILED,
    REFUSED,
    Trie,
    copy_trie,
    edit,
    hashed,
    is_empty,
    lookup,
    new_trie,
    owned_leaf,
    remove,
)
from holdfast.values.binary import decode, encode

if TYPE_CHECKING:
    from mypy_extensions import i64

# Numbers of snapshots and of owners come from one counter, so that no number ever serves twice.
_next_number: Final = itertools.count(1).__next__
_now: Final = time.time
_has_gil: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
_ONE_STEP: Final = COMPILED and _has_gil


@final
class Store:
    """Live state in memory. Values go in and out as copies: no caller can reach what is kept.

    ``max_history`` is how many snapshots `history` retains, the latest ones; None keeps all.
    A retained snapshot keeps its state alive: give a number where snapshots are taken for ever.
    """

    def __init__(self, max_history: int | None = None) -> None:
        if max_history is not None and max_history < 0:
            raise ValueError(f"max_history must be 0 or more, or None for all, not {max_history}")
        lock = threading.RLock()
        self._acquire = lock.acquire
        self._release = lock.release
        self._busy: i64 = 0
        """How many times the lock is held."""
        self._writing = False
        """Whether a write is half-way done."""
        owner: i64 = _next_number()
        self._owner: i64 = owner
        self._root = new_trie(owner)
        self._count: i64 = 0
        self._size: i64 = 0
        self._parent: int | None = None
        self._max_history = max_history
        self._history: deque[Snapshot] = deque(maxlen=max_history)

    # ------------------------------------------------------------------ entries

    def set(self, namespace: Text, key: Text, value: object) -> None:
        """Keep a copy of ``value`` under ``(namespace, key)``."""
        space = as_name(namespace, "namespace")
        name = as_name(key, "key")
        data = _encoded(space, name, value)
        if _ONE_STEP and self._busy == 0:
            found = lookup(self._root, hashed(space), space)
            if found is not None:
                trie = cast("Trie", found)
                if trie.owner == self._owner:
                    former = edit(trie, hashed(name), name, data)
                    if former is not REFUSED:
                        self._account(former, data)
                        return
        self._enter()
        try:
            self._put(space, name, data)
        finally:
            self._leave()

    def get(self, namespace: Text, key: Text, default: Any = None) -> Any:
        """A fresh copy of the value, or ``default``."""
        space = as_name(namespace, "namespace")
        name = as_name(key, "key")
        if _ONE_STEP and self._busy == 0:
            data = find(self._root, space, name)
        else:
            data = self._find(space, name)
        if data is None:
            return default
        return decode(data)

    def delete(self, namespace: Text, key: Text) -> bool:
        """Remove an entry; True if there was one."""
        space = as_name(namespace, "namespace")
        name = as_name(key, "key")
        self._enter()
        try:
            return self._remove(space, name)
        finally:
            self._leave()

    def contains(self, namespace: Text, key: Text) -> bool:
        """Whether there is such an entry."""
        return self._find(as_name(namespace, "namespace"), as_name(key, "key")) is not None

    def set_many(self, items: Iterable[tuple[str, str, object]]) -> None:
        """Set all ``(namespace, key, value)`` items as one step, or none if one of them is bad."""
        batch = Batch(items)
        self._enter()
        try:
            self._write(batch)
        finally:
            self._leave()

    def get_many(self, pairs: Iterable[Pair]) -> list[Any]:
        """The values of all ``(namespace, key)`` pairs at one moment; None for a missing one."""
        wanted: list[object] = list(pairs)
        found: list[bytes | None] = []
        self._hold()
        try:
            root = self._root
            for pair in wanted:
                namespace, key = as_pair(pair)
                found.append(find(root, namespace, key))
        finally:
            self._let_go()
        return [None if data is None else decode(data) for data in found]

    def apply(self, changes: Changes) -> None:
        """Do what `Snapshot.changes` says, as one step: its sets, then its deletes."""
        if not isinstance(changes, dict) or changes.keys() != {"set", "delete"}:
            raise TypeError(
                'changes must be a dict of "set" and "delete", as Snapshot.changes() returns it, '
                f"not {changes!r}"
            )
        batch = Batch(changes["set"])
        unwanted: list[object] = list(changes["delete"])
        deletes = [as_pair(pair) for pair in unwanted]
        self._enter()
        try:
            self._write(batch)
            for namespace, key in deletes:
                self._remove(namespace, key)
        finally:
            self._leave()

    def keys(self, namespace: Text) -> list[str]:
        """The keys of a namespace, sorted; none if there is no such namespace."""
        space = as_name(namespace, "namespace")
        self._hold()
        try:
            found = lookup(self._root, hashed(space), space)
            return [] if found is None else sorted_keys(cast("Trie", found))
        finally:
            self._let_go()

    def namespaces(self) -> list[str]:
        """The namespaces that hold anything, sorted."""
        self._hold()
        try:
            return sorted_keys(self._root)
        finally:
            self._let_go()

    def clear(self) -> None:
        """Remove every entry. Snapshots keep theirs."""
        self._enter()
        try:
            self._root = new_trie(self._owner)
            self._count = 0
            self._size = 0
        finally:
            self._leave()

    # ---------------------------------------------------------------- snapshots

    def snapshot(self) -> Snapshot:
        """Freeze the state as it is now. Costs the same whatever the store holds."""
        self._enter()
        try:
            number = _next_number()
            snapshot = Snapshot(number, _now(), self._parent, self._root, self._count, self._size)
            self._owner = number
            self._parent = number
            if self._max_history != 0:
                self._history.append(snapshot)
            return snapshot
        finally:
            self._leave()

    def restore(self, snapshot: Snapshot) -> None:
        """Make the whole store what ``snapshot`` holds; it may come from another store."""
        self._go_to(as_snapshot(snapshot), snapshot.id)

    def fork(self) -> Store:
        """An independent store with the same content and no history."""
        other = Store(self._max_history)
        self._enter()
        try:
            self._owner = _next_number()
            other._root = self._root
            other._count = self._count
            other._size = self._size
            other._parent = self._parent
        finally:
            self._leave()
        return other

    @property
    def history(self) -> list[Snapshot]:
        """The retained snapshots, oldest first, at most ``max_history``."""
        self._hold()
        try:
            return list(self._history)
        finally:
            self._let_go()

    def transaction(self) -> Transaction:
        """A ``with`` block whose writes count as one step, undone if it raises.

        Other threads wait for its end, with reading too, so keep it short and do not ``await`` in
        it. Blocks may be nested; an inner one that raises undoes only its own writes.
        """
        return Transaction(self)

    def merge(
        self, theirs: Store | Snapshot, base: Snapshot, on_conflict: Resolution = "raise"
    ) -> Diff:
        """Take in what ``theirs`` changed since ``base``, as one step; returns what that did here.

        Where both sides changed an entry in different ways, ``"raise"`` raises `ConflictError`
        with all of them and writes nothing, ``"ours"`` and ``"theirs"`` choose a side, and a
        function gets the `Conflict` and returns the value to keep, or `MISSING` to delete it.
        """
        other = theirs._frozen() if isinstance(theirs, Store) else as_snapshot(theirs)
        origin = as_snapshot(base)
        self._hold()
        try:
            writes = resolved(self._root, other._root, origin._root, on_conflict)
            self._enter()
            try:
                for namespace, key, data, _ in writes:
                    if data is None:
                        self._remove(namespace, key)
                    else:
                        self._put(namespace, key, data)
            finally:
                self._leave()
        finally:
            self._let_go()
        return as_diff(writes)

    def __contains__(self, pair: object) -> bool:
        namespace, key = as_pair(pair)
        return self._find(namespace, key) is not None

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<Store: {self._count} entries, {self._size} bytes>"

    def __copy__(self) -> Store:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Store:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Store cannot be pickled; take a snapshot and use its items()")

    # ---------------------------------------------------- under the lock from here on

    def _hold(self) -> None:
        self._acquire()
        self._busy += 1

    def _let_go(self) -> None:
        self._busy -= 1
        self._release()

    def _enter(self) -> None:
        self._hold()
        if self._writing:
            # The lock lets its own thread in again, which here can only be a finalizer or a signal
            # handler that Python ran in the middle of a write: going on would lose one of the two.
            self._let_go()
            raise RuntimeError(
                "the store is in the middle of a write; a finalizer (__del__) or a signal handler "
                "must not change it: let it leave a note for the program to act on"
            )
        self._writing = True

    def _leave(self) -> None:
        self._writing = False
        self._let_go()

    def _find(self, namespace: str, key: str) -> bytes | None:
        self._hold()
        try:
            return find(self._root, namespace, key)
        finally:
            self._let_go()

    def _write(self, batch: Batch) -> None:
        at: i64 = 0
        while at < len(batch.data):
            self._put(batch.namespaces[at], batch.keys[at], batch.data[at])
            at += 1

    def _put(self, namespace: str, key: str, data: bytes) -> None:
        bits = hashed(key)
        found = lookup(self._root, hashed(namespace), namespace)
        former: object | None = None
        if found is None:
            _check_text(namespace, "namespace")
            _check_text(key, "key")
            trie = new_trie(self._owner)
            self._adopt(namespace, trie)
        else:
            trie = cast("Trie", found)
            former = lookup(trie, bits, key)
            if former is None:
                _check_text(key, "key")
            elif former == data:
                return
            if trie.owner != self._owner:
                trie = copy_trie(trie, self._owner)
                self._adopt(namespace, trie)
        owned_leaf(trie, bits, for_new_key=former is None)[key] = data
        self._account(former, data)

    def _remove(self, namespace: str, key: str) -> bool:
        found = lookup(self._root, hashed(namespace), namespace)
        if found is None:
            return False
        trie = cast("Trie", found)
        bits = hashed(key)
        if lookup(trie, bits, key) is None:
            return False
        if trie.owner != self._owner:
            trie = copy_trie(trie, self._owner)
            self._adopt(namespace, trie)
        former = cast("bytes", remove(trie, bits, key))
        if is_empty(trie):
            remove(self._own_root(), hashed(namespace), namespace)
        self._count -= 1
        self._size -= len(former)
        return True

    def _own_root(self) -> Trie:
        root = self._root
        if root.owner != self._owner:
            root = self._root = copy_trie(root, self._owner)
        return root

    def _adopt(self, namespace: str, trie: Trie) -> None:
        root = self._own_root()
        bits = hashed(namespace)
        is_new = lookup(root, bits, namespace) is None
        owned_leaf(root, bits, for_new_key=is_new)[namespace] = trie

    def _account(self, former: object | None, data: bytes) -> None:
        if former is None:
            self._count += 1
            self._size += len(data)
        else:
            self._size += len(data) - len(cast("bytes", former))

    def _frozen(self) -> Snapshot:
        """The state as it is now, without a place in the history."""
        self._enter()
        try:
            self._owner = _next_number()
            return Snapshot(0, _now(), self._parent, self._root, self._count, self._size)
        finally:
            self._leave()

    def _go_to(self, state: Snapshot, parent: int | None) -> None:
        self._enter()
        try:
            self._owner = _next_number()
            self._root = state._root
            self._count = state._count
            self._size = state._size
            self._parent = parent
        finally:
            self._leave()


@final
class Transaction:
    """What `Store.transaction` returns; it holds the store's lock for the length of the block."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: list[Snapshot] = []

    def __enter__(self) -> Store:
        self._store._hold()
        try:
            self._before.append(self._store._frozen())
        except BaseException:
            self._store._let_go()
            raise
        return self._store

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        before = self._before.pop()
        try:
            if kind is not None:
                self._store._go_to(before, before.parent)
        finally:
            self._store._let_go()


def _encoded(namespace: str, key: str, value: object) -> bytes:
    try:
        return encode(value)
    except UnsupportedValueError as error:
        raise UnsupportedValueError(
            f"{error} (namespace {namespace!r}, key {key!r})", error.path
        ) from None


@final
class Batch:
    """Writes that were all found good, as columns: no object an item for the collector to track."""

    def __init__(self, items: Iterable[object]) -> None:
        self.namespaces: list[str] = []
        self.keys: list[str] = []
        self.data: list[bytes] = []
        for item in list(items):
            try:
                self._add(item)
            except UnsupportedValueError as error:
                message = f"item {len(self.data)}: {error}"
                raise UnsupportedValueError(message, error.path) from None
            except TypeError as error:
                raise TypeError(f"item {len(self.data)}: {error}") from None
        if not "".join(self.keys).isascii():
            for key in self.keys:
                _check_text(key, "key")
        for namespace in set(self.namespaces):
            _check_text(namespace, "namespace")

    def _add(self, item: object) -> None:
        triple = as_row(item)
        if len(triple) != 3:
            raise TypeError(f"expected a (namespace, key, value) triple, not {item!r}")
        namespace = as_name(triple[0], "namespace")
        key = as_name(triple[1], "key")
        self.data.append(_encoded(namespace, key, triple[2]))
        self.namespaces.append(namespace)
        self.keys.append(key)


def _check_text(name: str, what: str) -> None:
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise UnsupportedValueError(
                f"the {what} {name!r} has a lone surrogate; it is not text that can be stored"
            ) from None
