"""What Strands asks of a storage: bytes under keys, and their listing.

Strands calls from many event loops, one for each blocking call of an agent. All work is done in
the one loop of Holdfast's own, so that sessions and connections are kept from call to call.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from holdfast.adapters.requirement import required
from holdfast.adapters.strands import keys
from holdfast.adapters.strands.kept import KeptSession
from holdfast.errors import HoldfastError, shown
from holdfast.sessions.exporting import exported
from holdfast.sessions.portal import portal
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.catalog import Catalog
from holdfast.snapshots.layout import AGENT, SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import SESSION
from holdfast.stores.contract import StateStore

EXTRA = "strands"
BLOBS = "strands/"
"""What the keys of all that is no snapshot of a session begin with."""
REMEMBERED = 8

exceptions = required("strands.types.exceptions", EXTRA)
storage_module = required("strands.storage.storage", EXTRA)

T = TypeVar("T")
# Under another name, as Strands calls a method of a storage `list`.
Keys: TypeAlias = list[str]
Locations: TypeAlias = list[SnapshotLocation]


class HoldfastStorage:
    """A storage of Strands in a ``StateStore``.

    Snapshots of sessions are sessions of Holdfast, under the same ids; anything else that Strands
    writes is kept as it is. What comes back is what was written, byte for byte. Agents in several
    threads may share it.
    """

    def __init__(self, state_store: StateStore) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                "a HoldfastStorage is made on a StateStore, as open_state_store(url) gives it, not "
                f"{shown(state_store)}"
            )
        self.state_store = state_store
        self._archive = SnapshotArchive(state_store)
        self._catalog = Catalog(state_store)
        self._sessions: OrderedDict[SnapshotLocation, KeptSession] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        if not state_store.durable:
            # So that Strands carries along what would be gone with the process.
            self._ephemeral = getattr(storage_module, "_EPHEMERAL", None)

    # --------------------------------------------------------------------- Strands' protocol

    async def write(self, key: str, data: bytes) -> None:
        """Keep bytes under a key, in place of what it had."""
        await self._asked(self._write(key, bytes(data)), f"write {shown(key)}")

    async def read(self, key: str) -> bytes | None:
        """The bytes under a key, or None."""
        return await self._asked(self._read(key), f"read {shown(key)}")

    async def delete(self, key: str) -> None:
        """Remove a key, if it is there. With its last one a session is gone altogether."""
        await self._asked(self._delete(key), f"delete {shown(key)}")

    async def list(self, query: str = "") -> Keys:
        """The keys that begin with a text, in order."""
        return await self._asked(self._list(query), f"list {shown(query)}")

    async def search(self, query: Any) -> Any:
        """What Strands' own keyword search finds."""
        strategy = required("strands.storage.search.keyword", EXTRA).KeywordSearchStrategy()
        return await strategy.search(self, query)

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
        work = exported(self._archive, location, snapshot_id=snapshot_id)
        return await asyncio.to_thread(portal().call, work)

    # -------------------------------------------------------------------- in Holdfast's loop

    async def _asked(self, work: Coroutine[Any, Any, T], what: str) -> T:
        """Have work done in Holdfast's loop, and tell of its failure as Strands expects it."""
        try:
            return await asyncio.to_thread(portal().call, work)
        except (HoldfastError, ValueError, TypeError) as error:
            raise exceptions.StorageError(f"Holdfast could not {what}: {error}") from error

    async def _write(self, key: str, data: bytes) -> None:
        name = keys.normalized_key(key)
        place = keys.place_of(name)
        if place is None:
            await self.state_store.put(BLOBS + name, data)
            return
        async with self._at(place.location) as session:
            await session.keep(data, place.snapshot_id)

    async def _read(self, key: str) -> bytes | None:
        name = keys.normalized_key(key)
        place = keys.place_of(name)
        if place is None:
            entry = await self.state_store.get(BLOBS + name)
            return None if entry is None else entry.value
        async with self._at(place.location) as session:
            if place.snapshot_id is None:
                return await session.latest()
            return await session.kept(place.snapshot_id)

    async def _delete(self, key: str) -> None:
        name = keys.normalized_key(key)
        place = keys.place_of(name)
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

    async def _is_over(self, session_id: str) -> bool:
        """Whether nothing is left of a session, of any of its agents."""
        parts = await self._catalog.locations(session_id)
        for location in parts:
            async for _ in self.state_store.list(location.history, limit=1):
                return False
            session = await self._session(location)
            await session.fresh()
            if not {SESSION}.issuperset(session.snapshot().namespaces()):
                return False
        return bool(parts)

    async def _list(self, query: str) -> Keys:
        prefix = keys.normalized_prefix(query)
        blobs = self.state_store.list(BLOBS + prefix)
        found = [key.removeprefix(BLOBS) async for key in blobs]
        for location in await self._locations(prefix):
            async with self._at(location) as session:
                found += await snapshot_keys(session, prefix)
        return sorted(key for key in found if key.startswith(prefix))

    async def _locations(self, prefix: str) -> Locations:
        """The sessions that may have keys with this beginning."""
        if not prefix.startswith(keys.SESSIONS) and not keys.SESSIONS.startswith(prefix):
            return []
        one = keys.session_of(prefix)
        ids = await self._catalog.session_ids() if one is None else [one]
        found = [each for name in ids for each in await self._catalog.locations(name)]
        return [
            each
            for each in found
            if keys.is_nameable(each)
            and (keys.folder(each).startswith(prefix) or prefix.startswith(keys.folder(each)))
        ]

    @asynccontextmanager
    async def _at(self, location: SnapshotLocation) -> AsyncIterator[KeptSession]:
        """A session, one caller at a time. After a failure nothing of it is remembered."""
        async with self._turns.setdefault(location.session_id, asyncio.Lock()):
            try:
                yield await self._session(location)
            except BaseException:
                self._forget(location.session_id)
                raise

    async def _session(self, location: SnapshotLocation) -> KeptSession:
        """A session, with what is in memory of it; the ones used last are remembered."""
        session = self._sessions.pop(location, None)
        if session is None:
            session = await KeptSession.at(self.state_store, location)
        self._sessions[location] = session
        while len(self._sessions) > REMEMBERED:
            self._sessions.popitem(last=False)
        return session

    def _forget(self, session_id: str) -> None:
        """Remember nothing of a session."""
        for location in [each for each in self._sessions if each.session_id == session_id]:
            del self._sessions[location]


async def snapshot_keys(session: KeptSession, prefix: str) -> Keys:
    """The keys of a session's snapshots."""
    location = session.location
    found = [keys.history_key(location, each) for each in await session.history()]
    latest = keys.latest_key(location)
    if latest.startswith(prefix) and await session.latest() is not None:
        found.append(latest)
    return found
