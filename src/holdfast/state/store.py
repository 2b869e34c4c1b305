"""The store: live state behind one lock.

Locking. Operations that create nodes or take several steps hold one reentrant lock. When compiled
and under the GIL, a single ``get``, or a ``set`` that modifies a leaf in place, is atomic anyway:
it runs no bytecode and allocates nothing that could start the garbage collector, so no other thread
can run in between. It takes the lock only during a transaction or another write.

Interruptions. A compiled write cannot be interrupted. An interpreted one can, by Ctrl-C or any
other exception that Python raises between two bytecodes. An interrupted batch is rolled back. An
interrupted single write is done or not done, and the counts, which may be wrong, are recomputed
before the next use.
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
from holdfast.state.diff import Changes, Diff, Pair, to_diff
from holdfast.state.live import LiveState, next_number
from holdfast.state.merge import resolve_merge
from holdfast.state.merge_conflict import Resolution
from holdfast.state.names import Text
from holdfast.state.snapshot import (
    Snapshot,
    find_namespace,
    find_value,
    sorted_keys,
    validate_name,
    validate_pair,
    validate_snapshot,
)
from holdfast.state.trie import COMPILED, new_trie
from holdfast.values.binary_encoding import decode, is_same_value

if TYPE_CHECKING:
    from mypy_extensions import i64

_now: Final = time.time
_has_gil: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())
_ATOMIC: Final = COMPILED and _has_gil


@final
class Store:
    """Live state in memory: ``(namespace, key) -> value``. Thread-safe.

    Values are copied on write and on read. ``max_history`` is the number of snapshots that
    `history` keeps; None keeps all. A snapshot keeps its state in memory.
    """

    def __init__(self, max_history: int | None = 0) -> None:
        if max_history is not None and max_history < 0:
            raise ValueError(
                f"max_history must be 0 or more, or None to keep all, got {max_history}"
            )
        self._lock = threading.RLock()
        self._writing = False
        """Whether a write is in progress."""
        self._exclusive: i64 = 0
        """The number of operations of several steps in progress; above 0, all others take the lock.
        Used by compiled code only, which cannot be interrupted between increment and decrement."""
        self._depth: i64 = 0
        """The nesting depth of open transactions."""
        self._live = LiveState()
        self._parent: int | None = None
        self._max_history = max_history
        self._keeps_history = max_history != 0
        self._history: deque[Snapshot] = deque(maxlen=max_history)
        self._new_snapshots: list[Snapshot] = []
        """Snapshots taken in open transactions, added to the history when these succeed."""

    # ------------------------------------------------------------------ entries

    def set(self, namespace: Text, key: Text, value: object) -> None:
        """Store a copy of a value.

        Raises:
            UnsupportedValueError: The value, the namespace or the key cannot be stored.

        """
        space = validate_name(namespace, "namespace")
        name = validate_name(key, "key")
        data = encode_entry(space, name, value)
        is_atomic = _ATOMIC and self._exclusive == 0 and not self._writing
        if is_atomic and self._live.set_in_place(space, name, data):
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
        """Return a new copy of a value, or ``default``.

        Raises:
            UnsupportedValueError: The value has a registered type that is not registered here.

        """
        space = validate_name(namespace, "namespace")
        name = validate_name(key, "key")
        if _ATOMIC and self._exclusive == 0 and not self._writing:
            data = find_value(self._live.root, space, name)
        else:
            data = self._find(space, name)
        if data is None:
            return default
        return decode(data)

    def delete(self, namespace: Text, key: Text) -> bool:
        """Delete an entry, and return whether it existed."""
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
        """Return whether an entry exists."""
        return (
            self._find(validate_name(namespace, "namespace"), validate_name(key, "key")) is not None
        )

    def set_many(self, items: Iterable[tuple[str, str, object]]) -> None:
        """Store all ``(namespace, key, value)`` items atomically, or none if one is invalid.

        Raises:
            UnsupportedValueError: An item cannot be stored.

        """
        self._write(WriteBatch(items))

    def get_many(self, pairs: Iterable[Pair]) -> list[Any]:
        """Return the values of ``(namespace, key)`` pairs, read atomically; None if missing."""
        items: list[object] = list(pairs)
        values: list[bytes | None] = []
        with self._lock:
            self._exclusive += 1
            try:
                for pair in items:
                    namespace, key = validate_pair(pair)
                    values.append(find_value(self._live.root, namespace, key))
            finally:
                self._exclusive -= 1
        return [None if data is None else decode(data) for data in values]

    def apply(self, changes: Changes) -> None:
        """Apply changes as returned by `Snapshot.changes`, atomically: sets, then deletes.

        Raises:
            UnsupportedValueError: An item cannot be stored.

        """
        given = cast("dict[str, Iterable[object]]", changes)
        if given.keys() != {"set", "delete"}:
            raise TypeError(
                'changes must be a dict with "set" and "delete", as returned by '
                f"Snapshot.changes(), got {short_repr(changes)}"
            )
        batch = WriteBatch(given["set"])
        for pair in given["delete"]:
            namespace, key = validate_pair(pair)
            batch.add(namespace, key, None)
        self._write(batch)

    def keys(self, namespace: Text) -> list[str]:
        """Return the keys of a namespace, sorted; empty if it has no entries."""
        space = validate_name(namespace, "namespace")
        with self._lock:
            self._exclusive += 1
            try:
                trie = find_namespace(self._live.root, space)
                return [] if trie is None else sorted_keys(trie)
            finally:
                self._exclusive -= 1

    def namespaces(self) -> list[str]:
        """Return the namespaces that have entries, sorted."""
        with self._lock:
            self._recount_if_stale()
            return sorted_keys(self._live.root)

    def clear(self) -> None:
        """Delete all entries. Snapshots are not affected."""
        self._reset_to(Snapshot(0, 0.0, None, new_trie(0), 0, 0), self._parent)

    # ---------------------------------------------------------------- snapshots

    def snapshot(self) -> Snapshot:
        """Return a snapshot of the current state, in constant time."""
        is_atomic = _ATOMIC and self._exclusive == 0 and not self._writing
        if is_atomic and not self._keeps_history and not self._live.counts_stale:
            number = next_number()
            parent, self._parent = self._parent, number
            return self._live.freeze(number, _now(), parent)
        with self._lock:
            snapshot = self._freeze(next_number())
            self._parent = snapshot._id
            if self._depth:
                self._new_snapshots.append(snapshot)
            elif self._max_history != 0:
                self._history.append(snapshot)
            return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Replace the whole content by a snapshot, of this store or another, in constant time."""
        self._reset_to(validate_snapshot(snapshot), snapshot.id)

    def fork(self) -> Store:
        """Return an independent store with the same content and no history, in constant time."""
        other = Store(self._max_history)
        with self._lock:
            other._reset_to(self._freeze(0), self._parent)
        return other

    @property
    def max_history(self) -> int | None:
        """The maximum number of snapshots in `history`; None for no limit."""
        return self._max_history

    @property
    def history(self) -> list[Snapshot]:
        """The last ``max_history`` snapshots, oldest first."""
        with self._lock:
            return list(deque([*self._history, *self._new_snapshots], self._max_history))

    def transaction(self) -> AbstractContextManager[Store]:
        """Return a context manager that makes its writes atomic and rolls them back on an error.

        Other threads wait until it ends, readers included, so keep it short and do not ``await``
        inside it. Transactions nest; an inner one that raises rolls back only its own writes.
        """
        return Transaction(self) if COMPILED else _transaction(self)

    def merge(
        self, theirs: Store | Snapshot, base: Snapshot, on_conflict: Resolution = "raise"
    ) -> Diff:
        """Apply what ``theirs`` changed since ``base``, atomically; return what changed here.

        ``on_conflict`` decides about entries that both sides changed differently: ``"ours"`` and
        ``"theirs"`` choose a side, and a function takes the `Conflict` and returns the value to
        keep, or `MISSING` to delete the entry. Other threads wait while the function runs.

        Raises:
            ConflictError: There are conflicts and ``on_conflict`` is "raise"; nothing was changed.
            UnsupportedValueError: The function returned a value that cannot be stored.

        """
        if isinstance(theirs, Store):
            with theirs._lock:
                other = theirs._freeze(0)
                other._is_shared = True  # the function may write to the other store
        else:
            other = validate_snapshot(theirs)
        origin = validate_snapshot(base)
        with self._lock:
            self._exclusive += 1
            try:
                writes = resolve_merge(self._live.root, other._root, origin._root, on_conflict)
                batch = WriteBatch([])
                for namespace, key, data, _ in writes:
                    batch.add(namespace, key, data)
                self._write(batch)
            finally:
                self._exclusive -= 1
        return to_diff(writes)

    def __contains__(self, pair: object) -> bool:
        namespace, key = validate_pair(pair)
        return self._find(namespace, key) is not None

    def __len__(self) -> int:
        with self._lock:
            self._recount_if_stale()
            return self._live.count

    def __repr__(self) -> str:
        with self._lock:
            self._recount_if_stale()
            return f"<Store: {self._live.count} entries, {self._live.size} bytes>"

    def __copy__(self) -> Store:
        return self.fork()

    def __deepcopy__(self, memo: object) -> Store:
        return self.fork()

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle a Store; use the items() of a snapshot")

    # ---------------------------------------------------------------- internals

    def _find(self, namespace: str, key: str) -> bytes | None:
        with self._lock:
            return find_value(self._live.root, namespace, key)

    def _freeze(self, number: int) -> Snapshot:
        """Return a snapshot of the current state, and give up ownership of its nodes."""
        self._before_write()
        return self._live.freeze(number, _now(), self._parent)

    def _reset_to(self, state: Snapshot, parent: int | None) -> None:
        with self._lock:
            self._before_write()
            self._live.reset_to(state)
            self._parent = parent

    def _write(self, batch: WriteBatch, counted: str = "") -> int:
        """Apply a batch atomically; return by how much the entries of a namespace became more."""
        with self._lock:
            # Interpreted, Ctrl-C can interrupt this; compiled, nothing can.
            before = None if COMPILED else self._freeze(0)
            self._before_write()
            try:
                self._writing = True
                # A call: Python 3.13 does not catch an interrupt in the jump of a loop right here.
                return self._write_each(batch, counted)
            except BaseException:
                self._live.counts_stale = True
                if before is not None:
                    # No calls here: the cause may be a RecursionError.
                    self._live.root = before._root
                    self._live.count = before._count
                    self._live.size = before._size
                    self._live.counts_stale = False
                raise
            finally:
                self._writing = False

    def _write_each(self, batch: WriteBatch, counted: str) -> int:
        added: i64 = 0
        at: i64 = 0
        while at < len(batch.data):
            namespace, key, data = batch.namespaces[at], batch.keys[at], batch.data[at]
            before = self._live.count
            if data is None:
                self._live.remove(namespace, key)
            elif not self._live.set_in_place(namespace, key, data):
                self._live.put(namespace, key, data)
            if namespace == counted:
                added += self._live.count - before
            at += 1
        return added

    def _end_transaction(self, before: Snapshot, depth: i64, fresh: int, *, failed: bool) -> None:
        self._depth = depth
        self._exclusive -= 1
        if failed:
            self._reset_to(before, before.parent)
            del self._new_snapshots[fresh:]
        if depth == 0:
            self._history.extend(self._new_snapshots)
            self._new_snapshots.clear()

    def _before_write(self) -> None:
        if self._writing:
            # The lock is reentrant. Only a finalizer or a signal handler that Python runs in the
            # middle of a write can get here, and continuing would lose one of the two writes.
            raise RuntimeError(
                "store is in the middle of a write; do not change it from a finalizer (__del__) or "
                "a signal handler"
            )
        self._recount_if_stale()

    def _recount_if_stale(self) -> None:
        if self._live.counts_stale and not self._writing:
            self._live.recount()


def get_encoded(store: Store, namespace: str, key: str) -> bytes | None:
    """Return the encoded value of an entry, or None; equal bytes are equal values."""
    return store._find(namespace, key)


def has_entries(store: Store, batch: WriteBatch) -> bool:
    """Return whether a store holds all values that a batch sets, the order of keys aside."""
    for at, data in enumerate(batch.data):
        current = store._find(batch.namespaces[at], batch.keys[at])
        if current is None or data is None or not is_same_value(current, data):
            return False
    return True


def write_batch(store: Store, batch: WriteBatch, counted: str = "") -> int:
    """Apply a batch atomically; return by how much the entries of a namespace became more."""
    return store._write(batch, counted)


# There are two implementations of transactions, because each is safe against interruptions in one
# mode only. Compiled, a method cannot be interrupted, but a generator that is dropped does not run
# its cleanup. Interpreted, a method can be interrupted between taking the lock and recording that,
# but a generator that is dropped runs its cleanup.


@final
class Transaction:
    """The result of `Store.transaction` in compiled code."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._before: Snapshot | None = None
        self._depth: i64 = 0
        self._new_snapshots = 0

    def __enter__(self) -> Store:
        store = self._store
        store._lock.acquire()
        try:
            if self._before is not None:
                raise RuntimeError(
                    "transaction is already open; call store.transaction() for another"
                )
            self._before = store._freeze(0)
            self._depth = store._depth
            self._new_snapshots = len(store._new_snapshots)
            store._depth = self._depth + 1
            store._exclusive += 1
        except BaseException:
            store._lock.release()
            raise
        return store

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        before, self._before = self._before, None
        try:
            if before is not None:
                self._store._end_transaction(
                    before, self._depth, self._new_snapshots, failed=kind is not None
                )
        finally:
            self._store._lock.release()


@contextmanager
def _transaction(store: Store) -> Iterator[Store]:
    with store._lock:
        before = store._freeze(0)
        depth = store._depth
        fresh = len(store._new_snapshots)
        try:
            store._depth = depth + 1
            store._exclusive += 1
            yield store
        except BaseException:
            store._end_transaction(before, depth, fresh, failed=True)
            raise
        store._end_transaction(before, depth, fresh, failed=False)
