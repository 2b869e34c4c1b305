"""What Strands asks of a storage: bytes under keys, listing, search and namespaces.

Strands calls from many event loops, one for each blocking call of an agent. All work is done in
the one loop of Holdfast's own, so that sessions and connections are kept from call to call.
"""

from __future__ import annotations

import asyncio
import copy
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from holdfast.adapters.requirement import import_requirement
from holdfast.adapters.strands import keys
from holdfast.adapters.strands.search import ScannedStorage, storage_errors
from holdfast.adapters.strands.session import StrandsSession
from holdfast.documents.export import export_document
from holdfast.errors import short_repr
from holdfast.sessions.portal import get_portal
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.keys import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import SESSION
from holdfast.stores.base import StateStore

if TYPE_CHECKING:
    from strands.storage.search import SearchStrategy
    from strands.storage.storage import StorageSearchResult

EXTRA = "strands"
BLOBS = "strands/"
"""What the keys of all that is no snapshot of a session begin with."""
REMEMBERED = 8

exceptions = import_requirement("strands.types.exceptions", EXTRA)
storage_module = import_requirement("strands.storage.storage", EXTRA)

T = TypeVar("T")
# Under another name, as Strands calls a method of a storage `list`.
Keys: TypeAlias = list[str]
Locations: TypeAlias = list[SnapshotLocation]
Results: TypeAlias = "list[StorageSearchResult]"


class HoldfastStorage:
    """A storage of Strands in a ``StateStore``.

    Snapshots of sessions are sessions of Holdfast, under the same ids; anything else that Strands
    writes is kept as it is. What comes back is what was written, byte for byte. Agents in several
    threads may share it.

    ``search_strategy`` replaces the keyword search, as in Strands' own storages: it indexes what is
    written and answers `search`.
    """

    _namespaced: object
    """Strands' mark of a storage that has its namespace."""

    def __init__(
        self, state_store: StateStore, *, search_strategy: SearchStrategy[Any] | None = None
    ) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "a HoldfastStorage is made on a StateStore, as open_state_store(url) gives it, not "
                f"{short_repr(state_store)}"
            )
        self.state_store = state_store
        self.prefix = ""
        """What the keys of this namespace begin with; empty for the whole storage."""
        self._search_strategy = search_strategy
        self._archive = SnapshotArchive(state_store)
        self._catalog = Catalog(state_store)
        self._sessions: OrderedDict[SnapshotLocation, StrandsSession] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        if not state_store.durable:
            # So that Strands carries along what would be gone with the process.
            self._ephemeral = getattr(storage_module, "_EPHEMERAL", None)

    # --------------------------------------------------------------------- Strands' protocol

    async def write(self, key: str, data: bytes) -> None:
        """Store bytes under a key, replacing what it had.

        Raises:
            StorageError: The key is invalid, the store failed, or the search strategy could not
                index the entry, which is then stored all the same.

        """
        await self._asked(self._write(key, data), f"write {short_repr(key)}")
        if self._search_strategy is not None:
            try:
                await self._search_strategy.index(self, keys.normalize_key(key), data)
            except Exception as error:
                raise exceptions.StorageError(
                    f"wrote {short_repr(key)}, but the search strategy could not index it: {error}"
                ) from error

    async def read(self, key: str) -> bytes | None:
        """Return the bytes under a key, or None."""
        return await self._asked(self._read(key), f"read {short_repr(key)}")

    async def delete(self, key: str) -> None:
        """Remove a key, if it is there. With its last one a session is gone altogether."""
        await self._asked(self._delete(key), f"delete {short_repr(key)}")

    async def list(self, query: str = "") -> Keys:
        """Return the keys that begin with a text, in order."""
        return await self._asked(self._list(query), f"list {short_repr(query)}")

    async def search(self, query: str) -> Results:
        """Return the entries of this namespace that match a query, best first.

        Without a search strategy these are the entries that share words with the query, as in
        Strands' own storages. Entries of other namespaces are not read.
        """
        if self._search_strategy is not None:
            return await self._search_strategy.search(self, query)
        strategy = import_requirement(
            "strands.storage.search.keyword", EXTRA
        ).KeywordSearchStrategy()
        entries = ScannedStorage(self._list, self._read, self._read_blobs)
        return await self._asked(strategy.search(entries, query), f"search for {short_repr(query)}")

    def namespace(self, prefix: str) -> Self:
        """Return this storage scoped to a prefix: its keys are those below it, without the prefix.

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
        # So that Strands' session manager and memory stores do not add a prefix of their own.
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
    ) -> SessionSnapshot:
        """A session as a document, as it is now or at a snapshot: messages, values, events."""
        location = SnapshotLocation(session_id, scope, agent_id)
        work = export_document(self._archive, location, snapshot_id=snapshot_id)
        return await get_portal().call_from_loop(work)

    async def set_status(
        self, session_id: str, agent_id: str, status: str, *, scope: str = AGENT
    ) -> None:
        """Commit the status of a session, where it is another.

        A save sets the status that the snapshot shows. This is for what no snapshot shows: that a
        run began, failed or was cancelled.

        Raises:
            StorageError: The status is not one of a session's, or the store failed.

        """
        location = SnapshotLocation(session_id, scope, agent_id)
        what = f"set the status of {short_repr(session_id)}"
        await self._asked(self._set_status(location, status), what)

    # -------------------------------------------------------------------- in Holdfast's loop

    async def _asked(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Have work done in Holdfast's loop, and tell of its failure as Strands expects it."""
        with storage_errors(what):
            return await get_portal().call_from_loop(work)

    def _full_key(self, key: str) -> str:
        """Return a key of this namespace as the whole storage has it.

        Raises:
            ValueError: The key is invalid.

        """
        return self.prefix + keys.normalize_key(key)

    async def _write(self, key: str, data: bytes) -> None:
        name = self._full_key(key)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"a storage holds bytes, got {short_repr(data)}")
        content = bytes(data)
        place = keys.parse_snapshot_key(name)
        if place is None:
            await self.state_store.put(BLOBS + name, content)
            return
        async with self._at(place.location) as session:
            await session.keep(content, place.snapshot_id)

    async def _read(self, key: str) -> bytes | None:
        name = self._full_key(key)
        place = keys.parse_snapshot_key(name)
        if place is None:
            entry = await self.state_store.get(BLOBS + name)
            return None if entry is None else entry.value
        async with self._at(place.location) as session:
            if place.snapshot_id is None:
                return await session.latest()
            return await session.kept(place.snapshot_id)

    async def _read_blobs(self, wanted: Keys) -> dict[str, bytes]:
        """Return what is there under keys that are not of a session's snapshots, at once."""
        names = {key: self._full_key(key) for key in wanted}
        blobs = {
            key: BLOBS + name
            for key, name in names.items()
            if keys.parse_snapshot_key(name) is None
        }
        entries = await self.state_store.get_many(list(blobs.values()))
        return {key: entries[name].value for key, name in blobs.items() if name in entries}

    async def _delete(self, key: str) -> None:
        name = self._full_key(key)
        place = keys.parse_snapshot_key(name)
        if place is None:
            await self.state_store.delete(BLOBS + name)
            return
        location = place.location
        async with self._at(location) as session:
            if place.snapshot_id is None:
                await session.forget_latest()
            else:
                await session.forget(place.snapshot_id)
            if await self._is_over(location.session_id):
                await self._archive.delete_session(session_id=location.session_id)
                self._forget(location.session_id)

    async def _set_status(self, location: SnapshotLocation, status: str) -> None:
        async with self._at(location) as session:
            await session.set_status(status)

    async def _is_over(self, session_id: str) -> bool:
        """Whether nothing is left of a session, of any of its agents."""
        parts = await self._catalog.locations(session_id)
        for location in parts:
            async for _ in self.state_store.list(location.history_prefix, limit=1):
                return False
            session = await self._session(location)
            if not {SESSION}.issuperset(session.snapshot().namespaces()):
                return False
        return bool(parts)

    async def _list(self, query: str) -> Keys:
        prefix = self.prefix + keys.normalize_prefix(query)
        blobs = self.state_store.list(BLOBS + prefix)
        found = [key.removeprefix(BLOBS) async for key in blobs]
        locations = await self._locations(prefix)
        for start in range(0, len(locations), REMEMBERED):
            together = locations[start : start + REMEMBERED]
            for each in await asyncio.gather(*(self._keys_of(one, prefix) for one in together)):
                found += each
        return sorted(key.removeprefix(self.prefix) for key in found if key.startswith(prefix))

    async def _keys_of(self, location: SnapshotLocation, prefix: str) -> Keys:
        """Return the keys of a session's snapshots."""
        async with self._at(location) as session:
            found = [keys.history_key(location, each) for each in await session.history()]
            latest = keys.latest_key(location)
            if latest.startswith(prefix) and await session.latest() is not None:
                found.append(latest)
            return found

    async def _locations(self, prefix: str) -> Locations:
        """The sessions that may have keys with this beginning."""
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
    async def _at(self, location: SnapshotLocation) -> AsyncIterator[StrandsSession]:
        """A session, one caller at a time. After a failure nothing of it is remembered."""
        async with self._turns.setdefault(location.session_id, asyncio.Lock()):
            try:
                yield await self._session(location)
            except BaseException:
                self._forget(location.session_id)
                raise

    async def _session(self, location: SnapshotLocation) -> StrandsSession:
        """Return a session as it is committed now; the ones used last stay in memory."""
        session = self._sessions.pop(location, None)
        if session is None:
            session = await StrandsSession.at(self.state_store, location)
        else:
            await session.fresh()
        self._sessions[location] = session
        while len(self._sessions) > REMEMBERED:
            self._sessions.popitem(last=False)
        return session

    def _forget(self, session_id: str) -> None:
        """Remember nothing of a session."""
        for location in [each for each in self._sessions if each.session_id == session_id]:
            del self._sessions[location]
