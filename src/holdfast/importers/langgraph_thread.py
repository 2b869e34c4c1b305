"""Import LangGraph threads by writing them with `HoldfastSaver`.

The checkpoints of a database and the writes of their tasks go through a saver on a store in memory.
The events that it wrote become the document, with the times of the checkpoints. An imported thread
is therefore stored exactly as `HoldfastSaver` stores its own, and a graph can continue it.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import WRITES_IDX_MAP, Checkpoint, CheckpointMetadata

from holdfast.adapters.langgraph.saver import DEFAULT_AGENT_ID, HoldfastSaver
from holdfast.documents.document import Document
from holdfast.errors import HoldfastError, InvalidDocumentError, NotFoundError, short_repr
from holdfast.importers.history import choose_ids, link_document
from holdfast.importers.langgraph_database import (
    Database,
    DatabaseCheckpoint,
    TaskWrite,
    ValueDecoder,
)
from holdfast.importers.langgraph_serde import ExtensionSerializer, Serde
from holdfast.importers.source import Source
from holdfast.log.event import Event, EventDraft
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.portal import Portal
from holdfast.transfer.manager import SnapshotManager, suggest_names

MAX_NAMES = 20


def read_threads(
    source: Source, open_database: Callable[[ValueDecoder], Database], format_: str
) -> Document | list[Document]:
    """Return one thread of a database as a document, or all of them as a list.

    Raises:
        InvalidDocumentError: The database is damaged, or has none or too many threads.
        NotFoundError: It has no such thread.

    """
    database = open_database(Serde())
    threads = database.threads()
    if source.thread is not None:
        if source.thread not in threads:
            raise NotFoundError(
                f"{source.name} has no thread {short_repr(source.thread)}"
                f"{suggest_names(source.thread, threads)}"
            )
        return read_thread(source, database, source.thread, format_)
    if not threads:
        raise InvalidDocumentError(f"{source.name} has no checkpoints")
    if source.session_id is not None and len(threads) > 1:
        more = f" and {len(threads) - MAX_NAMES} more" if len(threads) > MAX_NAMES else ""
        raise InvalidDocumentError(
            f"{source.name} has {len(threads)} threads, which cannot all become the session "
            f"{short_repr(source.session_id)}; choose one with --thread: "
            f"{', '.join(threads[:MAX_NAMES])}{more}"
        )
    return [read_thread(source, database, thread, format_) for thread in threads]


def read_thread(source: Source, database: Database, thread: str, format_: str) -> Document:
    """Return the document of one thread."""
    with ThreadWriter(*choose_ids(source, DEFAULT_AGENT_ID, thread)) as writer:
        for checkpoint in database.checkpoints(thread):
            writer.add(checkpoint)
        return writer.document(format_)


class ThreadWriter:
    """Writes the checkpoints of one thread with a `HoldfastSaver` on a store in memory."""

    def __init__(self, agent_id: str, session_id: str) -> None:
        self._agent_id = agent_id
        self._session_id = session_id
        self._store = MemoryStateStore()
        self._saver = HoldfastSaver(
            self._store, agent_id=agent_id, serde=ExtensionSerializer(allowed_msgpack_modules=None)
        )
        self._times: dict[tuple[str, str], dt.datetime] = {}
        # The caller may run in an event loop, where blocking methods could not wait.
        self._portal = Portal()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._portal.close()

    def add(self, source: DatabaseCheckpoint) -> None:
        """Write a checkpoint and the writes of its tasks.

        Raises:
            InvalidDocumentError: It holds something that cannot be stored.

        """
        self._times[source.ns, source.id] = source.at
        try:
            self._portal.call(self._put(source))
        except (HoldfastError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidDocumentError(
                f"{source.where} cannot be imported: {error!s:.400}"
            ) from error

    async def _put(self, source: DatabaseCheckpoint) -> None:
        saver = self._saver
        # Concurrently, so that they share a commit.
        results = await asyncio.gather(
            saver.aput(
                self._config(source.ns, source.parent),
                cast("Checkpoint", source.checkpoint),
                cast("CheckpointMetadata", source.metadata),
                {},
            ),
            *(
                saver.aput_writes(self._config(source.ns, source.id), writes, task_id, path)
                for (task_id, path, _), writes in group_writes(source.writes).items()
            ),
            return_exceptions=True,
        )
        for result in results:
            if isinstance(result, BaseException):
                raise result

    def _config(self, ns: str, checkpoint_id: str | None) -> RunnableConfig:
        names = {"thread_id": self._session_id, "checkpoint_ns": ns}
        if checkpoint_id is not None:
            names["checkpoint_id"] = checkpoint_id
        return {"configurable": names}

    def document(self, format_: str) -> Document:
        """Return the document of all checkpoints that were added."""
        manager = SnapshotManager(self._store)
        # Large values are read from the store, and become blobs of the document.
        exporting = manager.export_session(self._agent_id, self._session_id, attachments="folder")
        exported = self._portal.call(exporting)
        drafts = [
            EventDraft(event.id, event.type, self._time(event), event.data, event.changes)
            for event in exported.events or ()
        ]
        return link_document(self._agent_id, self._session_id, exported.snapshot, drafts, format_)

    def _time(self, event: Event) -> dt.datetime:
        """Return the time of the checkpoint that an event belongs to."""
        if event.seq == 1:
            return next(iter(self._times.values()))
        return self._times[event.data["ns"], event.data["checkpoint_id"]]


def group_writes(
    writes: Sequence[TaskWrite],
) -> dict[tuple[str, str, str], list[tuple[str, Any]]]:
    """Group the writes after a checkpoint into calls of ``put_writes``.

    The index of an ordinary write is its position in the call, but those of errors, interrupts and
    resume values are fixed: each of these gets its own call.
    """
    calls: dict[tuple[str, str, str], list[tuple[str, Any]]] = {}
    for each in writes:
        special = each.channel if each.channel in WRITES_IDX_MAP else ""
        call = calls.setdefault((each.task_id, each.task_path, special), [])
        call.append((each.channel, each.value))
    return calls
