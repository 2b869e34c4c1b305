"""A Strands storage: bytes under keys, with listing, search and namespaces.

Strands calls from many event loops, one per blocking call of an agent. All work is done in
Holdfast's own event loop, so that sessions and connections are reused. On a store that works on the
calling thread, each session is used in a thread instead.
"""

from __future__ import annotations

import asyncio
import copy
import os
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.requirement import import_requirement
from holdfast.adapters.strands import keys
from holdfast.adapters.strands.search import ScannedStorage, storage_errors
from holdfast.adapters.strands.session import StrandsSession
from holdfast.documents.blobs import EMBED, Attachments
from holdfast.documents.document import Document
from holdfast.documents.export import export_document
from holdfast.errors import short_repr
from holdfast.process_fork import ForkSafeLock
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.session_state import SESSION
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import split_batches
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.portal import LANES, get_portal

if TYPE_CHECKING:
    from strands.storage.search import SearchStrategy
    from strands.storage.storage import StorageSearchResult

EXTRA = "strands"
BLOBS = "strands/"
"""The prefix of everything that is not the snapshot of a session."""
MAX_SESSIONS = 8

exceptions = import_requirement("strands.types.exceptions", EXTRA)
storage_module = import_requirement("strands.storage.storage", EXTRA)

T = TypeVar("T")
# Aliases, because a storage has a method named `list`.
Keys: TypeAlias = list[str]
Locations: TypeAlias = list[SnapshotLocation]
Results: TypeAlias = "list[StorageSearchResult]"


class HoldfastStorage(StoreAdapter):
    """A Strands storage over a ``StateStore``.

    Snapshots of sessions are stored as Holdfast sessions with the same ids, anything else as plain
    bytes. Reads return what was written, byte for byte. Agents in several threads may share it.

    ``search_strategy`` replaces the keyword search, as in Strands' own storages: it indexes what is
    written and answers `search`.
    """

    _namespaced: object
    """Strands' mark of a storage that has its namespace."""

    def __init__(
        self, state_store: StateStore, *, search_strategy: SearchStrategy[Any] | None = None
    ) -> None:
        super().__init__(state_store)
        self.prefix = ""
        """The prefix of the keys in this namespace; empty for the whole storage."""
        self._search_strategy = search_strategy
        self._archive = SnapshotArchive(state_store)
        self._catalog = Catalog(state_store)
        self._process = os.getpid()
        self._sessions: OrderedDict[SnapshotLocation, StrandsSession] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._guard = ForkSafeLock("the sessions of a storage", wait_on_fork=False)
        """Held while the sessions in memory are looked up or dropped."""
        if not state_store.durable:
            # Strands then keeps content in the conversation that would be lost with the process.
            self._ephemeral = getattr(storage_module, "_EPHEMERAL", None)

    async def aclose(self) -> None:
        """Close the store."""
        # Its connections belong to the loop in which it was used.
        await get_portal().call_from_loop(self.state_store.close())

    # --------------------------------------------------------------------- Strands' protocol

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, replacing any previous ones.

        Raises:
            StorageError: The key is invalid, the store failed, or the search strategy could not
                index the entry; in that case the entry is stored.

        """
        await self._run_on_key(
            f"write {short_repr(key)}", key, lambda name: self._write(name, data)
        )
        if self._search_strategy is not None:
            try:
                await self._search_strategy.index(self, keys.normalize_key(key), data)
            except Exception as error:
                raise exceptions.StorageError(
                    f"wrote {short_repr(key)}, but the search strategy could not index it: {error}"
                ) from error

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, or None.

        Raises:
            StorageError: The key is invalid, the store failed, or stored data is damaged.

        """
        return await self._run_on_key(f"read {short_repr(key)}", key, self._read)

    async def delete(self, key: str) -> None:
        """Delete a key, if it exists. A session is deleted with its last key.

        Raises:
            StorageError: The key is invalid, or the store failed.

        """
        await self._run_on_key(f"delete {short_repr(key)}", key, self._delete)

    async def list(self, query: str = "") -> Keys:
        """Return the keys with a prefix, in order.

        Raises:
            StorageError: The prefix is invalid, or the store failed.

        """
        return await self._run(self._list(query), f"list {short_repr(query)}")

    async def search(self, query: str) -> Results:
        """Return the entries of this namespace that match a query, best first.

        Without a search strategy these are the entries that share words with the query, as in
        Strands' own storages. Entries of other namespaces are not read.

        Raises:
            StorageError: The store failed.

        """
        if self._search_strategy is not None:
            return await self._search_strategy.search(self, query)
        strategy = import_requirement(
            "strands.storage.search.keyword", EXTRA
        ).KeywordSearchStrategy()
        entries = ScannedStorage(self._list, self.read, self._read_blobs)
        return await self._run(strategy.search(entries, query), f"search for {short_repr(query)}")

    def namespace(self, prefix: str) -> Self:
        """Return this storage scoped to a prefix, which its keys do not include.

        Scoped storages share the entries, the sessions in memory and the search strategy.

        Raises:
            StorageError: The prefix has a backslash or a ``..`` segment.

        """
        try:
            name = keys.normalize_prefix(prefix).rstrip("/")
        except ValueError as error:
            raise exceptions.StorageError(
                f"invalid namespace {short_repr(prefix)}: {error}"
            ) from error
        scoped = copy.copy(self)  # a subclass keeps its own attributes
        scoped.prefix = f"{self.prefix}{name}/" if name else self.prefix
        # Keeps Strands' session manager and memory stores from adding their own prefix.
        scoped._namespaced = storage_module._NAMESPACED
        return scoped

    # ----------------------------------------------------------------------------- documents

    async def document(
        self,
        session_id: str,
        agent_id: str,
        *,
        snapshot_id: str | None = None,
        scope: str = AGENT,
        attachments: Attachments = EMBED,
    ) -> Document:
        """Return a session, or one of its snapshots, as a document. See `Session.export`.

        Raises:
            NotFoundError: The session or snapshot does not exist.
            DocumentTooLargeError: The attachments are too large to be embedded.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        location = SnapshotLocation(session_id, scope, agent_id)
        work = export_document(
            self._archive, location, snapshot_id=snapshot_id, attachments=attachments
        )
        return await get_portal().call_from_loop(work)

    async def set_status(
        self, session_id: str, agent_id: str, status: str, *, scope: str = AGENT
    ) -> None:
        """Commit the status of a session, if it changed.

        Writing a snapshot sets the status that follows from it. This method is for what no snapshot
        shows: that a run started, failed or was cancelled.

        Raises:
            StorageError: The status is invalid, or the store failed.

        """
        location = SnapshotLocation(session_id, scope, agent_id)
        what = f"set the status of {short_repr(session_id)}"
        with storage_errors(what):
            await self._run_in_lane(location.session_id, self._set_status(location, status))

    # ------------------------------------------------------- in Holdfast's loop, or in threads

    async def _run(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Run work in Holdfast's event loop; raise its errors as ``StorageError``."""
        with storage_errors(what):
            return await get_portal().call_from_loop(work)

    async def _run_on_key(
        self, what: str, key: str, function: Callable[[str], Coroutine[Any, Any, T]]
    ) -> T:
        """Run a function of a key in the whole storage; raise its errors as ``StorageError``."""
        with storage_errors(what):
            name = self._full_key(key)
            snapshot = keys.parse_snapshot_key(name)
            lane = BLOBS + name if snapshot is None else snapshot.location.session_id
            return await self._run_in_lane(lane, function(name))

    async def _run_in_lane(self, lane: str, work: Coroutine[Any, Any, T]) -> T:
        """Run work on a session, or on another entry, after the earlier calls for it."""
        if self.state_store.runs_inline:
            return await LANES.call_from_loop((self.state_store, lane), work)
        return await get_portal().call_from_loop(work)

    def _full_key(self, key: str) -> str:
        """Return the key in the whole storage of a key in this namespace.

        Raises:
            ValueError: The key is invalid.

        """
        return self.prefix + keys.normalize_key(key)

    async def _write(self, name: str, data: bytes) -> None:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data must be bytes, got {short_repr(data)}")
        content = bytes(data)
        snapshot = keys.parse_snapshot_key(name)
        if snapshot is None:
            await self.state_store.put(BLOBS + name, content)
            return
        async with self._use(snapshot.location, must_refresh=False) as session:
            await session.write_snapshot(content, snapshot.snapshot_id)

    async def _read(self, name: str) -> bytes | None:
        snapshot = keys.parse_snapshot_key(name)
        if snapshot is None:
            entry = await self.state_store.get(BLOBS + name)
            return None if entry is None else entry.value
        async with self._use(snapshot.location) as session:
            if snapshot.snapshot_id is None:
                return await session.read_latest()
            return await session.read_snapshot(snapshot.snapshot_id)

    async def _read_blobs(self, wanted: Keys) -> dict[str, bytes]:
        """Return the entries with these keys that are not snapshots of sessions, in one read."""
        names = {key: self._full_key(key) for key in wanted}
        blobs = {
            key: BLOBS + name
            for key, name in names.items()
            if keys.parse_snapshot_key(name) is None
        }
        entries = await self.state_store.get_many(list(blobs.values()))
        return {key: entries[name].value for key, name in blobs.items() if name in entries}

    async def _delete(self, name: str) -> None:
        snapshot = keys.parse_snapshot_key(name)
        if snapshot is None:
            await self.state_store.delete(BLOBS + name)
            return
        location = snapshot.location
        async with self._use(location) as session:
            if snapshot.snapshot_id is None:
                await session.delete_latest()
            else:
                await session.delete_snapshot(snapshot.snapshot_id)
            if await self._is_empty(location.session_id):
                await self._archive.delete_session(session_id=location.session_id)
                self._drop(location.session_id)

    async def _set_status(self, location: SnapshotLocation, status: str) -> None:
        async with self._use(location, must_refresh=False) as session:
            await session.set_status(status)

    async def _is_empty(self, session_id: str) -> bool:
        """Return whether nothing is left of a session, of any of its agents."""
        locations = await self._catalog.locations(session_id)
        for location in locations:
            async for _ in self.state_store.list(location.history_prefix, limit=1):
                return False
            session = await self._session(location)
            if not {SESSION}.issuperset(session.snapshot().namespaces()):
                return False
        return bool(locations)

    async def _list(self, query: str) -> Keys:
        prefix = self.prefix + keys.normalize_prefix(query)
        blobs = self.state_store.list(BLOBS + prefix)
        found = [key.removeprefix(BLOBS) async for key in blobs]
        locations = await self._locations(prefix)
        for batch in split_batches(locations, MAX_SESSIONS):
            listing = (
                self._run_in_lane(one.session_id, self._list_keys(one, prefix)) for one in batch
            )
            for each in await asyncio.gather(*listing):
                found += each
        return sorted(key.removeprefix(self.prefix) for key in found if key.startswith(prefix))

    async def _list_keys(self, location: SnapshotLocation, prefix: str) -> Keys:
        """Return the keys of a session's snapshots."""
        async with self._use(location) as session:
            found = [keys.history_key(location, each) for each in await session.list_snapshot_ids()]
            latest = keys.latest_key(location)
            if latest.startswith(prefix) and await session.read_latest() is not None:
                found.append(latest)
            return found

    async def _locations(self, prefix: str) -> Locations:
        """Return the sessions that may have keys with a prefix."""
        if not prefix.startswith(keys.SESSIONS) and not keys.SESSIONS.startswith(prefix):
            return []
        one = keys.parse_session_id(prefix)
        ids = await self._catalog.session_ids() if one is None else [one]
        found = [each for name in ids for each in await self._catalog.locations(name)]
        return [
            each
            for each in found
            if keys.is_nameable(each)
            and (
                keys.snapshots_prefix(each).startswith(prefix)
                or prefix.startswith(keys.snapshots_prefix(each))
            )
        ]

    @asynccontextmanager
    async def _use(
        self, location: SnapshotLocation, *, must_refresh: bool = True
    ) -> AsyncIterator[StrandsSession]:
        """Lock a session and yield it, refreshed. After an error it is read again."""
        # Inline, the calls of a session are in one lane already.
        is_inline = RUN_INLINE.get()
        lock = (
            nullcontext()
            if is_inline
            else self._locks.setdefault(location.session_id, asyncio.Lock())
        )
        async with lock:
            try:
                yield await self._session(location, must_refresh=must_refresh)
            except BaseException:
                self._drop(location.session_id)
                raise

    async def _session(
        self, location: SnapshotLocation, *, must_refresh: bool = True
    ) -> StrandsSession:
        """Return a refreshed session; the ones used last stay in memory."""
        with self._guard:
            if self._process != os.getpid():
                # Another thread of the parent may have been in the middle of a commit.
                self._process = os.getpid()
                self._sessions.clear()
            session = self._sessions.pop(location, None)
        if session is None:
            session = await StrandsSession.open(self.state_store, location)
        elif must_refresh:
            await session.refresh()
        with self._guard:
            self._sessions[location] = session
            while len(self._sessions) > MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return session

    def _drop(self, session_id: str) -> None:
        """Drop a session from memory."""
        with self._guard:
            for location in [each for each in self._sessions if each.session_id == session_id]:
                del self._sessions[location]
