"""The store: the live state behind one lock, and everything a caller does with it.

Locking. Every operation that makes nodes or spans several steps holds one reentrant lock. A single
``get``, or a ``set`` that edits a leaf in place, is one step anyway when it runs compiled under the
GIL: no bytecode runs and nothing is allocated that could start the garbage collector, so no other
thread can see or disturb it half-way. Such a step takes the lock only while a transaction or
another write is under way.

Interruption. A compiled write cannot be cut short. An interpreted one can, by Ctrl-C or any other
exception that Python raises between two bytecodes. A batch is then undone; a single write is there
or not, and the counts that it may have left wrong are taken anew before anybody sees them.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast, final

from holdfast.errors import short_repr
from holdfast.state.batch import WriteBatch, encode_entry, validate_name_text
from holdfast.state.conflict import Resolution
from holdfast.state.diff import Changes, Diff, Pair, to_diff
from holdfast.state.live import LiveState, next_number
from holdfast.state.merge import resolve_merge
from holdfast.state.names import Text
from holdfast.state.snapshot import (
    Snapshot,
    find_value,
    sorted_keys,
    validate_name,
    validate_pair,
    validate_snapshot,
)
from holdfast.state.trie import COMPILED, Trie, hash_key, lookup, new_trie
from holdfast.values.binary_encoding import decode

if TYPE_CHECKING:
    from mypy_extensions import i64

_now: Final = time.time
_has_gil: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
_ONE_STEP: Final = COMPILED and _has_gil


@final
class Store:
    """Live state in memory. Values go in and out as copies: no caller can reach what is kept.

    ``max_history`` is how many snapshots `history` retains, the latest ones: none by default, all
    with None. A retained snapshot keeps its state alive.
    """

    def __init__(self, max_history: int | None = 0) -> None:
        if max_history is not None and max_history < 0:
            raise ValueError(f"max_history must be 0 or more, or None for all, not {max_history}")
        self._lock = threading.RLock()
        self._writing = False
        """Whether a write is half-way done."""
        self._alone: i64 = 0
        """Above 0 while an operation of several steps is under way: then nothing is one step. Only
        compiled code asks, and it cannot be struck between counting up and down."""
        self._open: i64 = 0
        """How many transactions are under way, each inside the one before."""
        self._live = LiveState()
        self._parent: int | None = None
        self._max_history = max_history
        self._history: deque[Snapshot] = deque(maxlen=max_history)
        self._fresh: list[Snapshot] = []
        """Snapshots of the open transactions, for the history if these end well."""

    # ------------------------------------------------------------------ entries

    def set(self, namespace: Text, key: Text, value: object) -> None:
        """Keep a copy of ``value`` under ``(namespace, key)``."""
        space = validate_name(namespace, "namespace")
        name = validate_name(key, "key")
        data = encode_entry(space, name, value)
        one_step = _ONE_STEP and self._alone == 0 and not self._writing
        if one_step and self._live.edit(space, name, data):
            return
        validate_name_text(space, "namespace")
        validate_name_text(name, "key")
        with self._lock:
            self._before_write()
            try:
                self._writing = True
                self._live.put(space, name, data)
            except BaseException:
                self._live.counts_stale = True
                raise
            finally:
                self._writing = False

    def get(self, namespace: Text, key: Text, default: Any = None) -> Any:
        """A fresh copy of the value, or ``default``."""
        space = validate_name(namespace, "namespace")
        name = validate_name(key, "key")
        if _ONE_STEP and self._alone == 0 and not self._writing:
            data = find_value(self._live.root, space, name)
        else:
            data = self._find(space, name)
        if data is None:
            return default
        return decode(data)

    def delete(self, namespace: Text, key: Text) -> bool:
        """Remove an entry; True if there was one."""
        space = validate_name(namespace, "namespace")
        name = validate_name(key, "key")
        with self._lock:
            self._before_write()
            try:
                self._writing = True
                return self._live.remove(space, name)
            except BaseException:
                self._live.counts_stale = True
                raise
            finally:
                self._writing = False

    def contains(self, namespace: Text, key: Text) -> bool:
        """Whether there is such an entry."""
        return (
            self._find(validate_name(namespace, "namespace"), validate_name(key, "key")) is not None
        )

    def set_many(self, items: Iterable[tuple[str, str, object]]) -> None:
        """Set all ``(namespace, key, value)`` items as one step, or none if one of them is bad."""
        self._write(WriteBatch(items))

    def get_many(self, pairs: Iterable[Pair]) -> list[Any]:
        """The values of all ``(namespace, key)`` pairs at one moment; None for a missing one."""
        wanted: list[object] = list(pairs)
        found: list[bytes | None] = []
        with self._lock:
            self._alone += 1
            try:
                for pair in wanted:
                    namespace, key = validate_pair(pair)
                    found.append(find_value(self._live.root, namespace, key))
            finally:
                self._alone -= 1
        return [None if data is None else decode(data) for data in found]

    def apply(self, changes: Changes) -> None:
        """Do what `Snapshot.changes` says, as one step: its sets, then its deletes."""
        given = cast("dict[str, Iterable[object]]", changes)
        if given.keys() != {"set", "delete"}:
            raise TypeError(
                'changes must be a dict of "set" and "delete", as Snapshot.changes() returns it, '
                f"not {short_repr(changes)}"
            )
        batch = WriteBatch(given["set"])
        for pair in given["delete"]:
            namespace, key = validate_pair(pair)
            batch.add(namespace, key, None)
        self._write(batch)

    def keys(self, namespace: Text) -> list[str]:
        """The keys of a namespace, sorted; none if there is no such namespace."""
        space = validate_name(namespace, "namespace")
        with self._lock:
            self._alone += 1
            try:
                found = lookup(self._live.root, hash_key(space), space)
                return [] if found is None else sorted_keys(cast("Trie", found))
            finally:
                self._alone -= 1

    def namespaces(self) -> list[str]:
        """The namespaces that hold anything, sorted."""
        with self._lock:
            self._mend()
            return sorted_keys(self._live.root)

    def clear(self) -> None:
        """Remove every entry. Snapshots keep theirs."""
        self._go_to(Snapshot(0, 0.0, None, new_trie(0), 0, 0), self._parent)

    # ---------------------------------------------------------------- snapshots

    def snapshot(self) -> Snapshot:
        """Freeze the state as it is now. Costs the same whatever the store holds."""
        with self._lock:
            snapshot = self._frozen(next_number())
            self._parent = snapshot._id
            if self._open:
                self._fresh.append(snapshot)
            elif self._max_history != 0:
                self._history.append(snapshot)
            return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Make the whole store what ``snapshot`` holds; it may come from another store."""
        self._go_to(validate_snapshot(snapshot), snapshot.id)

    def fork(self) -> Store:
        """An independent store with the same content and no history."""
        other = Store(self._max_history)
        with self._lock:
            other._go_to(self._frozen(0), self._parent)
        return other

    @property
    def max_history(self) -> int | None:
        """How many snapshots `history` retains at most; None where it retains all."""
        return self._max_history

    @property
    def history(self) -> list[Snapshot]:
        """The retained snapshots, oldest first, at most ``max_history``."""
        with self._lock:
            return list(deque([*self._history, *self._fresh], self._max_history))

    def transaction(self) -> AbstractContextManager[Store]:
        """A ``with`` block whose writes count as one step, undone if it raises.

        Other threads wait for its end, with reading too, so keep it short and do not ``await`` in
        it. Blocks may be nested; an inner one that raises undoes only its own writes.
        """
        return Transaction(self) if COMPILED else _transaction(self)

    def merge(
        self, theirs: Store | Snapshot, base: Snapshot, on_conflict: Resolution = "raise"
    ) -> Diff:
        """Take in what ``theirs`` changed since ``base``, as one step; returns what that did here.

        Where both sides changed an entry in different ways, ``"raise"`` raises `ConflictError`
        with all of them and writes nothing, ``"ours"`` and ``"theirs"`` choose a side, and a
        function gets the `Conflict` and returns the value to keep, or `MISSING` to delete it.
        The function is called while other threads wait.
        """
        if isinstance(theirs, Store):
            with theirs._lock:
                other = theirs._frozen(0)
        else:
            other = validate_snapshot(theirs)
        origin = validate_snapshot(base)
        with self._lock:
            self._alone += 1
            try:
                writes = resolve_merge(self._live.root, other._root, origin._root, on_conflict)
                batch = WriteBatch([])
                for namespace, key, data, _ in writes:
                    batch.add(namespace, key, data)
                self._write(batch)
            finally:
                self._alone -= 1
        return to_diff(writes)

    def __contains__(self, pair: object) -> bool:
        namespace, key = validate_pair(pair)
        return self._find(namespace, key) is not None

    def __len__(self) -> int:
        with self._lock:
            self._mend()
            return self._live.count

    def __repr__(self) -> str:
        with self._lock:
            self._mend()
            return f"<Store: {self._live.count} entries, {self._live.size} bytes>"

    def __copy__(self) -> Store:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Store:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Store cannot be pickled; take a snapshot and use its items()")

    # ---------------------------------------------------- under the lock from here on

    def _find(self, namespace: str, key: str) -> bytes | None:
        with self._lock:
            return find_value(self._live.root, namespace, key)

    def _frozen(self, number: int) -> Snapshot:
        """The state as it is now; from here on no node belongs to the store."""
        self._before_write()
        return self._live.freeze(number, _now(), self._parent)

    def _go_to(self, state: Snapshot, parent: int | None) -> None:
        with self._lock:
            self._before_write()
            self._live.reset_to(state)
            self._parent = parent

    def _write(self, batch: WriteBatch) -> None:
        """All of the batch or nothing."""
        with self._lock:
            # Compiled, nothing can cut this short. Interpreted, a Ctrl-C can.
            before = None if COMPILED else self._frozen(0)
            self._before_write()
            try:
                self._writing = True
                # A call: what strikes in the jump of a loop right here, Python 3.13 does not catch.
                self._write_each(batch)
            except BaseException:
                self._live.counts_stale = True
                if before is not None:
                    # No call here: it could be a full stack that brought us here.
                    self._live.root = before._root
                    self._live.count = before._count
                    self._live.size = before._size
                    self._live.counts_stale = False
                raise
            finally:
                self._writing = False

    def _write_each(self, batch: WriteBatch) -> None:
        at: i64 = 0
        while at < len(batch.data):
            namespace, key, data = batch.namespaces[at], batch.keys[at], batch.data[at]
            if data is None:
                self._live.remove(namespace, key)
            elif not self._live.edit(namespace, key, data):
                self._live.put(namespace, key, data)
            at += 1

    def _end_transaction(self, before: Snapshot, depth: i64, fresh: int, *, failed: bool) -> None:
        self._open = depth
        self._alone -= 1
        if failed:
            self._go_to(before, before.parent)
            del self._fresh[fresh:]
        if depth == 0:
            self._history.extend(self._fresh)
            self._fresh.clear()

    def _before_write(self) -> None:
        if self._writing:
            # The lock lets its own thread in again, which here can only be a finalizer or a signal
            # handler that Python ran in the middle of a write: going on would lose one of the two.
            raise RuntimeError(
                "the store is in the middle of a write; a finalizer (__del__) or a signal handler "
                "must not change it: let it leave a note for the program to act on"
            )
        self._mend()

    def _mend(self) -> None:
        if self._live.counts_stale and not self._writing:
            self._live.recount()


# A transaction comes in two shapes, because each survives an interruption in one of the two worlds
# only. A compiled method is one step to a signal, and a compiled generator that is dropped does not
# run its end. An interpreted method can be struck between taking the lock and saying so, and an
# interpreted generator that is dropped does run its end.


@final
class Transaction:
    """What `Store.transaction` returns where the code is compiled."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: Snapshot | None = None
        self._depth: i64 = 0
        self._fresh = 0

    def __enter__(self) -> Store:
        store = self._store
        store._lock.acquire()
        try:
            if self._before is not None:
                raise RuntimeError("this transaction is open; call store.transaction() for another")
            self._before = store._frozen(0)
            self._depth = store._open
            self._fresh = len(store._fresh)
            store._open = self._depth + 1
            store._alone += 1
        except BaseException:
            store._lock.release()
            raise
        return store

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        before, self._before = self._before, None
        try:
            if before is not None:
                self._store._end_transaction(
                    before, self._depth, self._fresh, failed=kind is not None
                )
        finally:
            self._store._lock.release()


@contextmanager
def _transaction(store: Store) -> Iterator[Store]:
    with store._lock:
        before = store._frozen(0)
        depth = store._open
        fresh = len(store._fresh)
        try:
            store._open = depth + 1
            store._alone += 1
            yield store
        except BaseException:
            store._end_transaction(before, depth, fresh, failed=True)
            raise
        store._end_transaction(before, depth, fresh, failed=False)
