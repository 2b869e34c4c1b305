"""A LangGraph store for long-term memory: namespaces are sessions, and items are their values.

Async methods run on the caller's event loop. Blocking ones run the same coroutines in a background
loop, except the embedding function, which runs on the caller's thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Self

from langgraph.store.base import BaseStore, IndexConfig, Item, Op, Result, TTLConfig

from holdfast.adapters.base import StoreAdapter
from holdfast.adapters.langgraph.memory.batch import Batch, Vectors
from holdfast.adapters.langgraph.memory.changes import delete_expired_items
from holdfast.adapters.langgraph.memory.discovery import find_namespaces, read_flags, run_all
from holdfast.adapters.langgraph.memory.history import At, MemoryHistory, MemoryVersion
from holdfast.adapters.langgraph.memory.layout import (
    Namespace,
    locate_namespace,
    name_session,
    validate_labels,
)
from holdfast.adapters.langgraph.memory.sweeper import DEFAULT_INTERVAL, Sweeper
from holdfast.adapters.langgraph.memory.vectors import TextIndex
from holdfast.adapters.shared_session import SessionPool
from holdfast.snapshots.keys import SnapshotLocation, validate_id
from holdfast.stores.base import StateStore
from holdfast.stores.portal import sync

DEFAULT_AGENT_ID = "memory"
MAX_CACHED_NAMESPACES = 256


class HoldfastStore(StoreAdapter, BaseStore):
    """Stores the long-term memory of graphs, each namespace as a session of one agent.

    ``index`` configures semantic search, and ``ttl`` how long items are kept, as in LangGraph's own
    stores. Expired items are never returned. Every item has a history: see `ahistory`, `aget_at`
    and `arestore`.

    Raises:
        TypeError: ``state_store`` is not a StateStore, or another argument has the wrong type.
        ValueError: ``agent_id`` is not a valid id, or the index is invalid.

    """

    supports_ttl = True

    def __init__(
        self,
        state_store: StateStore,
        *,
        agent_id: str = DEFAULT_AGENT_ID,
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        super().__init__(state_store)
        self.agent_id = validate_id(agent_id, "agent_id")
        self.index_config = index
        self.ttl_config = ttl
        if ttl is not None and not isinstance(ttl, Mapping):
            raise TypeError(f'ttl must be a dict such as {{"default_ttl": 60}}, got {ttl!r}')
        self._index = None if index is None else TextIndex(index)
        self._pool = SessionPool(state_store, max_sessions=MAX_CACHED_NAMESPACES)
        self._sweeper = Sweeper(self.sweep_ttl)

    def location(self, namespace: Namespace) -> SnapshotLocation:
        """Return the location of the session of a namespace.

        Raises:
            InvalidNamespaceError: The namespace is invalid, empty or too long.

        """
        return locate_namespace(namespace, self.agent_id)

    # ------------------------------------------------------------------------- LangGraph's calls

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations: reads first, then the puts of each namespace in one commit.

        Raises:
            InvalidNamespaceError: A namespace is invalid.
            ConflictError: Other writers of a namespace committed first in all attempts.
            UnsupportedValueError: A value cannot be stored.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        batch = self._prepare(ops)
        await batch.read()
        if not batch.is_read_only:
            vectors: Sequence[Sequence[float]] = []
            if self._index is not None and batch.texts:
                vectors = await self._index.embeddings.aembed_documents(batch.texts)
            queries = []
            if self._index is not None:
                for query in batch.queries:
                    queries.append(await self._index.embeddings.aembed_query(query))
            await batch.write(pair(batch.texts, vectors), pair(batch.queries, queries))
        return batch.results

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Do `abatch` for a caller that is not async."""
        batch = self._prepare(ops)
        sync(batch.read())
        if not batch.is_read_only:
            vectors: Sequence[Sequence[float]] = []
            queries: Sequence[Sequence[float]] = []
            if self._index is not None:
                embeddings = self._index.embeddings
                vectors = embeddings.embed_documents(batch.texts) if batch.texts else []
                queries = [embeddings.embed_query(query) for query in batch.queries]
            sync(batch.write(pair(batch.texts, vectors), pair(batch.queries, queries)))
        return batch.results

    def _prepare(self, ops: Iterable[Op]) -> Batch:
        return Batch(self._pool, self.agent_id, self._index, ops)

    # ----------------------------------------------------------------------------------- history

    async def ahistory(self, namespace: Namespace, key: str) -> list[MemoryVersion]:
        """Return the versions of an item with their times and event numbers, the oldest first.

        The log of the namespace is read; what was pruned from it is missing.

        Raises:
            InvalidNamespaceError: The namespace is invalid.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        return await self._past(namespace).list_versions(key)

    async def aget_at(self, namespace: Namespace, key: str, at: At) -> Item | None:
        """Return an item as it was after an event or at a time; None if it did not exist.

        ``at`` is the number of an event, a datetime with a time zone, or its ISO 8601 text.

        Raises:
            NotFoundError: There is no such event, or it was pruned.
            ValueError: ``at`` is invalid.

        """
        return await self._past(namespace).get(key, at)

    async def arestore(self, namespace: Namespace, key: str, at: At) -> Item | None:
        """Set an item to what it was after an event or at a time, and return it.

        If it did not exist then, it is deleted. The history keeps what it was until now.

        Raises:
            NotFoundError: There is no such event, or it was pruned.
            ConflictError: Other writers committed first in all attempts.
            ValueError: ``at`` is invalid.

        """
        return await self._past(namespace).restore_item(key, at)

    async def arestore_namespace(self, namespace: Namespace, at: At) -> None:
        """Set all items of a namespace to what they were, in one commit.

        Namespaces below it are not changed.

        Raises:
            NotFoundError: There is no such event, or it was pruned.
            ConflictError: Other writers committed first in all attempts.
            ValueError: ``at`` is invalid.

        """
        await self._past(namespace).restore_all(at)

    def history(self, namespace: Namespace, key: str) -> list[MemoryVersion]:
        """Do `ahistory` for a caller that is not async."""
        return sync(self.ahistory(namespace, key))

    def get_at(self, namespace: Namespace, key: str, at: At) -> Item | None:
        """Do `aget_at` for a caller that is not async."""
        return sync(self.aget_at(namespace, key, at))

    def restore(self, namespace: Namespace, key: str, at: At) -> Item | None:
        """Do `arestore` for a caller that is not async."""
        return sync(self.arestore(namespace, key, at))

    def restore_namespace(self, namespace: Namespace, at: At) -> None:
        """Do `arestore_namespace` for a caller that is not async."""
        sync(self.arestore_namespace(namespace, at))

    def _past(self, namespace: Namespace) -> MemoryHistory:
        return MemoryHistory(self._pool, validate_labels(namespace), self.agent_id)

    # --------------------------------------------------------------------------------------- TTL

    async def asweep_ttl(self) -> int:
        """Delete the items that have expired, and return their number.

        Their history stays. Namespaces without a TTL are not loaded.

        Raises:
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        names = await find_namespaces(self.state_store, self.agent_id, ())
        return sum(await run_all(self._sweep_namespace, names))

    async def _sweep_namespace(self, namespace: Namespace) -> int:
        flags = await read_flags(self.state_store, namespace, self.agent_id)
        if flags is not None and not flags[1]:
            return 0
        with name_session(namespace):
            return await self._pool.update(self.location(namespace), delete_expired_items)

    def sweep_ttl(self) -> int:
        """Do `asweep_ttl` for a caller that is not async."""
        return sync(self.asweep_ttl())

    def start_ttl_sweeper(self, sweep_interval_minutes: float | None = None) -> Future[None]:
        """Delete expired items at intervals, in a thread, until the result is cancelled.

        Without a ``ttl`` configuration nothing is started.
        """
        if not self.ttl_config:
            done: Future[None] = Future()
            done.set_result(None)
            return done
        configured = self.ttl_config.get("sweep_interval_minutes")
        return self._sweeper.start(sweep_interval_minutes or configured or DEFAULT_INTERVAL)

    def stop_ttl_sweeper(self, timeout: float | None = None) -> bool:
        """Stop the sweeper; return False if it is still running after ``timeout`` seconds."""
        return self._sweeper.stop(timeout)

    # ------------------------------------------------------------------------------------- close

    async def aclose(self) -> None:
        """Stop the sweeper, and close the state store."""
        self._sweeper.stop(timeout=0)
        await super().aclose()

    def close(self) -> None:
        """Do `aclose` for a caller that is not async."""
        sync(self.aclose())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def pair(texts: Sequence[str], vectors: Sequence[Sequence[float]]) -> Vectors:
    """Return vectors by their texts.

    Raises:
        ValueError: The embedding function returned another number of vectors.

    """
    if len(texts) != len(vectors):
        raise ValueError(
            f"the embedding function returned {len(vectors)} vectors for {len(texts)} texts; "
            "it must return one per text"
        )
    return dict(zip(texts, vectors, strict=True))
