"""A LangGraph checkpointer: threads are sessions, and checkpoints are snapshots of them.

Async methods run on the caller's event loop. Blocking ones run the same coroutines on the caller's
thread, if the store can do without an event loop, and in a background loop otherwise. Async and
blocking graphs can share a saver.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import random
from collections.abc import (
    AsyncIterator,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.encrypted import EncryptedSerializer

from holdfast.adapters.langgraph import history, lifecycle
from holdfast.adapters.langgraph.checkpoint import matches_filter, metadata_to_store
from holdfast.adapters.langgraph.codec import AllowedType, AllowlistSerializer, Codec
from holdfast.adapters.langgraph.observability import Meter, MetricsSink, Observer, Tracer
from holdfast.adapters.langgraph.rollback import ThreadRollback, parse_time, rollback_thread
from holdfast.adapters.langgraph.thread import Thread
from holdfast.adapters.langgraph.writes import Write, open_channels
from holdfast.errors import HoldfastError, short_repr
from holdfast.process_fork import ForkSafeLock
from holdfast.snapshots.catalog.catalog import Catalog
from holdfast.snapshots.keys import SnapshotLocation, validate_id
from holdfast.stores.base import StateStore
from holdfast.stores.local import RUN_INLINE, run_in_thread
from holdfast.stores.portal import run_inline, sync
from holdfast.stores.registry import open_state_store

T = TypeVar("T")

MAX_CACHED_THREADS = 256
DURABILITY = "__pregel_durability"
DEFERRED: WeakKeyDictionary[StateStore, WeakValueDictionary[SnapshotLocation, Thread]] = (
    WeakKeyDictionary()
)
"""The threads with changes that are committed in the background, by their store."""
NO_THREADS: dict[str, Thread] = {}
DEFAULT_AGENT_ID = "langgraph"


class HoldfastSaver(BaseCheckpointSaver[str]):
    """Stores the threads of graphs as sessions of one agent.

    ``allowed_types`` are types whose objects may be built from stored data, besides those of
    LangChain and LangGraph: classes, or pairs such as ``("module", "Class")``. ``serde`` replaces
    the serializer. ``metrics`` is an OpenTelemetry meter or a `MetricsSink`; ``tracer`` is an
    OpenTelemetry tracer.

    Raises:
        TypeError: ``state_store`` is not a StateStore, or another argument has the wrong type.
        ValueError: ``agent_id`` is not a valid id.

    """

    def __init__(
        self,
        state_store: StateStore,
        *,
        agent_id: str = DEFAULT_AGENT_ID,
        allowed_types: Collection[AllowedType] | None = None,
        serde: SerializerProtocol | None = None,
        metrics: Meter | MetricsSink | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        if not isinstance(state_store, StateStore):
            raise TypeError(
                f"state_store must be a StateStore, got {short_repr(state_store)}; use "
                "open_state_store(url) or HoldfastSaver.from_url(url)"
            )
        if isinstance(serde, EncryptedSerializer):
            raise TypeError(
                "an EncryptedSerializer does not encrypt plain data and messages; use an encrypted "
                "store such as sqlite:///agents.db?encrypt=AGENT_KEYS"
            )
        super().__init__(serde=serde or AllowlistSerializer(allowed_types))
        self.state_store = state_store
        self.agent_id = validate_id(agent_id, "agent_id")
        self._observer = Observer(metrics, tracer)
        self._guard = ForkSafeLock("a saver", wait_on_fork=False)
        self._process = os.getpid()
        self._flusher: ThreadPoolExecutor | None = None
        """Commits what `put` and `put_writes` deferred."""
        self._threads: dict[str, Thread] = {}
        """The threads of blocking methods that run inline."""
        self._threads_of_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Thread]] = (
            WeakKeyDictionary()
        )

    @classmethod
    def from_url(
        cls,
        url: str | None = None,
        *,
        agent_id: str = DEFAULT_AGENT_ID,
        allowed_types: Collection[AllowedType] | None = None,
        serde: SerializerProtocol | None = None,
        metrics: Meter | MetricsSink | None = None,
        tracer: Tracer | None = None,
    ) -> Self:
        """Return a saver on the store of a URL; `close` or the end of ``with`` closes the store.

        Raises:
            StateStoreError: The URL is not valid.

        """
        return cls(
            open_state_store(url),
            agent_id=agent_id,
            allowed_types=allowed_types,
            serde=serde,
            metrics=metrics,
            tracer=tracer,
        )

    def close(self) -> None:
        """Commit what is deferred, and close the store."""
        sync(self._close())

    async def _close(self) -> None:
        try:
            await self._flush_all()
        finally:
            await self.state_store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close()

    # -------------------------------------------------------------------------------- threads

    def location(self, thread_id: str) -> SnapshotLocation:
        """Return the location of a thread's session.

        Raises:
            ValueError: The thread id is not a valid session id.

        """
        return SnapshotLocation(validate_id(thread_id, "thread_id"), "agent", self.agent_id)

    def thread(self, thread_id: str) -> Thread:
        """Return a thread, cached per event loop, and for all OS threads that run inline."""
        threads = self._threads
        if not RUN_INLINE.get():
            threads = self._threads_of_loops.get(asyncio.get_running_loop(), NO_THREADS)
        found = threads.get(thread_id)
        if found is None or self._process != os.getpid():
            found = self._add_thread(thread_id)
        return found

    def _add_thread(self, thread_id: str) -> Thread:
        with self._guard:
            if self._process != os.getpid():
                # Another thread of the parent may have been in the middle of a commit.
                self._process, self._threads, self._flusher = os.getpid(), {}, None
            threads = self._threads
            if not RUN_INLINE.get():
                threads = self._threads_of_loops.setdefault(asyncio.get_running_loop(), {})
            found = threads.get(thread_id) or Thread(
                self.state_store, self.location(thread_id), self._flush_later
            )
            threads[thread_id] = found
            while len(threads) > MAX_CACHED_THREADS:
                del threads[next(iter(threads))]
            return found

    def _mark_stale(self, thread_id: str) -> None:
        """Make all caches of a thread check their state after something was removed."""
        with self._guard:
            for threads in (self._threads, *self._threads_of_loops.values()):
                if found := threads.get(thread_id):
                    found.is_stale = True

    def _flush_later(self, thread: Thread) -> bool:
        with self._guard:
            if self._flusher is None:
                self._flusher = ThreadPoolExecutor(1, "holdfast-saver")
            try:
                DEFERRED.setdefault(self.state_store, WeakValueDictionary())[thread.location] = (
                    thread
                )
                self._flusher.submit(flush_thread, thread)
            except RuntimeError:  # the process ends; Python waits for what was submitted before
                return False
            return True

    async def _flush(self, thread_id: str) -> None:
        """Commit what blocking methods deferred, and raise the error if that failed."""
        if self.state_store in DEFERRED:
            # By this saver, or by another one on the same store.
            other = DEFERRED[self.state_store].get(self.location(thread_id))
            if other is not None and other.has_deferred and other.process == os.getpid():
                await run_in_thread(flush_thread, other)
        thread = self._threads.get(thread_id)
        if thread is not None and self._process == os.getpid():
            if thread.has_deferred:
                await run_in_thread(flush_thread, thread)
            thread.raise_failure()

    async def _flush_all(self) -> None:
        """Commit everything that blocking methods deferred, and stop the thread that does so."""
        if self._process != os.getpid():
            return
        flusher, self._flusher = self._flusher, None
        if flusher is not None:
            await run_in_thread(flusher.shutdown)
        failures = []
        for thread_id in list(self._threads):
            try:
                await self._flush(thread_id)
            except HoldfastError as error:
                failures.append(error)
        if failures:
            raise failures[0]

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run one of the coroutines of `get_tuple`, `list`, `put` or `put_writes`."""
        return run_inline(work) if self.state_store.runs_inline else sync(work)

    @property
    def _codec(self) -> Codec:
        # LangGraph replaces the serializer of a copy of the saver.
        return Codec(self.serde)

    def get_next_version(self, current: str | None, channel: None) -> str:  # noqa: ARG002
        """Return a channel version that no other branch of the thread has."""
        number = 0 if current is None else int(str(current).partition(".")[0])
        return f"{number + 1:08}.{random.getrandbits(32):08x}"

    # -------------------------------------------------------------------------------- reading

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint with the id in the config, or the current one without an id.

        Raises:
            IntegrityError: The checkpoint is damaged.

        """
        thread_id, ns = parse_config(config)
        id_ = get_checkpoint_id(config)
        thread = self.thread(thread_id)
        with self._observer.operation("get_tuple", thread_id, checkpoint_ns=ns, checkpoint_id=id_):
            await self._flush(thread_id)
            async with thread.lock:
                if id_:
                    found = await history.find_checkpoint(thread, ns, id_)
                else:
                    found = await history.find_current(thread, ns)
                    await thread.load_contents()
            return (
                None if found is None else history.to_checkpoint_tuple(self._codec, thread, found)
            )

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name in LangGraph
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of all threads without a config, newest first.

        Raises:
            IntegrityError: A checkpoint is damaged.

        """
        codec = self._codec
        rows: list[tuple[Thread, history.StoredCheckpoint]] = []
        thread_id = None if config is None else str(config["configurable"]["thread_id"])
        # The span ends before the first row: the caller may do anything between rows.
        with self._observer.operation("list", thread_id):
            found = await self._find_checkpoints(config, before, None if filter else limit)
            for thread, each in found:
                if limit is not None and len(rows) >= limit:
                    break
                if matches_config(each, config, before) and (
                    not filter or matches_filter(history.load_metadata(codec, thread, each), filter)
                ):
                    rows.append((thread, each))
        for thread, each in rows:
            yield history.to_checkpoint_tuple(codec, thread, each)

    async def _find_checkpoints(
        self, config: RunnableConfig | None, before: RunnableConfig | None, limit: int | None
    ) -> list[tuple[Thread, history.StoredCheckpoint]]:
        """Return checkpoints newest first; with a limit, at least as many as that if they exist."""
        if config is None:
            rows: list[tuple[Thread, history.StoredCheckpoint]] = []
            for location in await self.locations():
                thread = self.thread(location.session_id)
                await self._flush(location.session_id)
                async with thread.lock:
                    rows += [(thread, each) for each in await history.scan_checkpoints(thread)]
            return sorted(rows, key=lambda row: row[1].id, reverse=True)
        thread = self.thread(str(config["configurable"]["thread_id"]))
        ns, wanted = config["configurable"].get("checkpoint_ns"), get_checkpoint_id(config)
        end = None if before is None else get_checkpoint_id(before)
        await self._flush(thread.location.session_id)
        async with thread.lock:
            if wanted is not None and ns is not None:
                one = await history.find_checkpoint(thread, ns, wanted)
                found = [] if one is None else [one]
            elif wanted is None and limit is not None:
                found = await history.list_newest(thread, ns, end, limit)
            else:
                found = await history.scan_checkpoints(thread, ns)
        return [(thread, each) for each in found]

    async def locations(self) -> list[SnapshotLocation]:
        """Return the locations of all threads."""
        page = await Catalog(self.state_store).sessions(self.agent_id)
        return [each.location for each in page.sessions if each.scope == "agent"]

    # -------------------------------------------------------------------------------- writing

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as its difference from the current one.

        Raises:
            ConflictError: Other writers committed first in every attempt.
            UnsupportedValueError: A channel has a value that cannot be serialized.

        """
        thread_id, ns = parse_config(config)
        thread = self.thread(thread_id)
        parent, id_ = get_checkpoint_id(config), checkpoint["id"]
        with self._observer.operation("put", thread_id, checkpoint_ns=ns, checkpoint_id=id_):
            stored = metadata_to_store(config, metadata)
            parent_state = None
            if parent is not None and open_channels(metadata, checkpoint["channel_values"]):
                await self._flush(thread_id)
                async with thread.lock:
                    parent_state = await history.load_parent_state(thread, ns, parent)
            await thread.put(
                self._codec,
                ns,
                parent,
                checkpoint,
                stored,
                new_versions,
                parent_state,
                is_deferred=may_defer(config),
            )
        return history.make_config(thread_id, ns, checkpoint["id"])

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task after a checkpoint.

        Raises:
            ConflictError: Other writers committed first in every attempt.
            UnsupportedValueError: A value cannot be serialized.

        """
        if not writes:
            return
        thread_id, ns = parse_config(config)
        id_ = str(config["configurable"]["checkpoint_id"])
        rows = [
            Write(task_id, task_path, WRITES_IDX_MAP.get(channel, number), channel, value)
            for number, (channel, value) in enumerate(writes)
        ]
        thread = self.thread(thread_id)
        attributes = {"checkpoint_ns": ns, "checkpoint_id": id_, "task_id": task_id}
        with self._observer.operation("put_writes", thread_id, **attributes, writes=len(rows)):
            await thread.put_writes(self._codec, ns, id_, rows, is_deferred=may_defer(config))

    # ------------------------------------------------------------------------------- deleting

    async def adelete_thread(self, thread_id: str) -> None:
        """Delete a thread.

        Raises:
            ConflictError: The session also belongs to other agents.

        """
        with self._observer.operation("delete_thread", str(thread_id)):
            await self._flush(str(thread_id))
            await lifecycle.delete_thread(self.thread(str(thread_id)))
            self._mark_stale(str(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs in all threads."""
        codec = self._codec
        with self._observer.operation("delete_for_runs", runs=len(run_ids)):
            for location in await self.locations():
                await self._flush(location.session_id)
                await lifecycle.delete_runs(self.thread(location.session_id), set(run_ids), codec)
                self._mark_stale(location.session_id)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with its history, to a new one.

        Raises:
            NotFoundError: The source does not exist.
            ConflictError: The target exists.

        """
        source, target = str(source_thread_id), str(target_thread_id)
        with self._observer.operation("copy_thread", source, target_thread_id=target):
            await self._flush(source)
            await lifecycle.copy_thread(self.thread(source), self.thread(target))
            self._mark_stale(target)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the current checkpoint of each graph and subgraph, or everything.

        ``strategy`` is ``keep_latest`` or ``delete``.

        Raises:
            ValueError: The strategy is unknown.

        """
        if strategy not in ("keep_latest", "delete"):
            raise ValueError(f"strategy must be keep_latest or delete, got {short_repr(strategy)}")
        for thread_id in map(str, thread_ids):
            thread = self.thread(thread_id)
            with self._observer.operation("prune", thread_id, strategy=strategy):
                await self._flush(thread_id)
                if strategy == "delete":
                    await lifecycle.delete_thread(thread)
                else:
                    await lifecycle.keep_latest_checkpoints(thread, self._codec)
                self._mark_stale(thread_id)

    # ------------------------------------------------------------------------------- rollback

    async def arollback_threads(
        self, thread_ids: Iterable[str] | None, *, to: dt.datetime | str
    ) -> list[ThreadRollback]:
        """Make the checkpoint that each thread had at a time current again.

        Nothing is removed: the rollback is appended to the log of each thread, so it can be undone.
        A thread that fails does not affect the others. ``thread_ids=None`` means all threads.
        ``to`` is a datetime with a time zone, or ISO 8601 text such as a state's ``created_at``.

        Raises:
            ValueError: ``to`` has no time zone.

        """
        time = parse_time(to)
        if thread_ids is None:
            thread_ids = [each.session_id for each in await self.locations()]
        results = []
        for thread_id in map(str, thread_ids):
            with self._observer.operation("rollback", thread_id, to=time.isoformat()):
                await self._flush(thread_id)
                results.append(await rollback_thread(self.thread(thread_id), self._codec, time))
            self._mark_stale(thread_id)
        return results

    def rollback_threads(
        self, thread_ids: Iterable[str] | None, *, to: dt.datetime | str
    ) -> list[ThreadRollback]:
        """Make the checkpoint that each thread had at a time current again.

        Raises:
            ValueError: ``to`` has no time zone.

        """
        return sync(self.arollback_threads(thread_ids, to=to))

    # ----------------------------------------------------------------------- delta channels

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to delta channels."""
        if not channels:
            return {}
        thread_id, ns = parse_config(config)
        thread = self.thread(thread_id)
        operation = "get_delta_channel_history"
        with self._observer.operation(operation, thread_id, checkpoint_ns=ns):
            await self._flush(thread_id)
            async with thread.lock:
                target = get_checkpoint_id(config)
                if target is None:
                    here = await history.find_current(thread, ns)
                    target = None if here is None else here.id
                found = {each.id: each for each in await history.scan_checkpoints(thread, ns)}
            return history.collect_delta_history(self._codec, found, target, channels)

    # ---------------------------------------------------------------------- blocking methods

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint with the id in the config, or the current one without an id."""
        return self._run(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - the name in LangGraph
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield the checkpoints of a thread, or of all threads without a config, newest first."""
        rows = self.alist(config, filter=filter, before=before, limit=limit)
        run = sync if config is None else self._run
        while (row := run(next_or_none(rows))) is not None:
            yield row

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as its difference from the current one."""
        return self._run(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task after a checkpoint."""
        self._run(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        sync(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs in all threads."""
        sync(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with its history, to a new one."""
        sync(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the current checkpoint of each graph and subgraph, or everything."""
        sync(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to delta channels."""
        return sync(self.aget_delta_channel_history(config=config, channels=channels))


def parse_config(config: RunnableConfig) -> tuple[str, str]:
    """Return the thread id and the checkpoint namespace of a config."""
    configurable = config["configurable"]
    return str(configurable["thread_id"]), str(configurable.get("checkpoint_ns") or "")


def may_defer(config: RunnableConfig) -> bool:
    """Return whether a blocking call may return before its change is durable.

    LangGraph passes the durability on only if the user chose it.
    """
    return RUN_INLINE.get() and config["configurable"].get(DURABILITY) == "async"


def flush_thread(thread: Thread) -> None:
    """Commit what blocking methods deferred in a thread."""
    run_inline(thread.flush())


def matches_config(
    found: history.StoredCheckpoint, config: RunnableConfig | None, before: RunnableConfig | None
) -> bool:
    """Return whether a checkpoint has the id of a config, if any, and is before another."""
    wanted = None if config is None else get_checkpoint_id(config)
    if wanted is not None and found.id != wanted:
        return False
    end = None if before is None else get_checkpoint_id(before)
    return end is None or found.id < end


async def next_or_none(rows: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    """Return the next row, or None at the end."""
    return await anext(rows, None)
