"""A LangGraph thread as a session: each checkpoint is an event, the graph's messages the messages.

    messages              the messages of the graph
    state                 its other channels, by name
    langgraph             channels that LangGraph made for itself: what is to run next
    langgraph/graph/<ns>  the channels of a subgraph, and langgraph/graph/<ns>/messages its messages
    langgraph/writes      what tasks wrote after the last checkpoint: interrupts, errors, results

Checkpoints come in the order in which they were made. Where somebody went back and on from an older
one, the state of the session does just that; the event has the parent's id.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, NotFoundError, short_repr
from holdfast.importers.history import CHECKPOINT_IMPORTED, History, choose_ids, parse_time
from holdfast.importers.langgraph_serde import Message, Serde, Whole
from holdfast.importers.source import Source
from holdfast.sessions.run_status import COMPLETED, RUNNING, langgraph_has_next_node
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATE, STATUS
from holdfast.transfer.manager import suggest_names

SPACE = "langgraph"
SUBGRAPH = "langgraph/graph/"
WRITES = "langgraph/writes"
ROOT = "__root__"
ENDED = {"__error__": "failed", "__interrupt__": "waiting"}
"""What a task wrote instead of a result, and what the session does then."""
DELTA_COUNTERS = "counters_since_delta_snapshot"
OVERWRITE = "__overwrite__"
REMOVE_ALL = "__remove_all__"
MOST_NAMES = 20


@dataclass(frozen=True, slots=True)
class Write:
    """What a task wrote to a channel, not read yet."""

    task_id: str
    channel: str
    type: object
    data: object


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint of a thread."""

    ns: str
    """Which subgraph; empty for the graph itself."""
    id: str
    parent: str | None
    at: dt.datetime
    values: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[Write]
    where: str
    """What it is called in an error."""


class Database(ABC):
    """The tables of a checkpointer, opened."""

    name: str

    @abstractmethod
    def threads(self) -> list[str]:
        """The ids of all threads."""

    @abstractmethod
    def parents(self, thread: str) -> set[tuple[str, str]]:
        """Namespaces and ids of the checkpoints that others follow."""

    @abstractmethod
    def last(self, thread: str) -> Checkpoint | None:
        """The newest checkpoint of the graph itself."""

    @abstractmethod
    def checkpoints(self, thread: str) -> Iterator[Checkpoint]:
        """All checkpoints of a thread, the oldest first."""


def read(source: Source, database: Database, format_: str) -> Any:
    """One thread as a document, or all of them as a list."""
    threads = database.threads()
    if source.thread is not None:
        if source.thread not in threads:
            raise NotFoundError(
                f"{source.name} has no thread {short_repr(source.thread)}{suggest_names(source.thread, threads)}"
            )
        return document(source, database, source.thread, format_)
    if not threads:
        raise InvalidDocumentError(f"{source.name} has no checkpoints")
    if source.session_id is not None and len(threads) > 1:
        more = f" and {len(threads) - MOST_NAMES} more" if len(threads) > MOST_NAMES else ""
        raise InvalidDocumentError(
            f"{source.name} has {len(threads)} threads, and one session cannot be all of them: say "
            f"which with --thread: {', '.join(threads[:MOST_NAMES])}{more}"
        )
    return [document(source, database, thread, format_) for thread in threads]


def document(source: Source, database: Database, thread: str, format_: str) -> Document:
    """The session of one thread."""
    ids = choose_ids(source, None, thread)
    reading = Reading(database, thread)
    history: History | None = None
    for checkpoint in database.checkpoints(thread):
        if history is None:
            history = History(*ids, checkpoint.at, shares=True)
        reading.add(history, checkpoint)
    if history is None:
        raise InvalidDocumentError(f"{source.name} has no checkpoints of the thread {thread}")
    return history.document(format_)


class Reading:
    """What is to be known of a thread while its checkpoints are read."""

    def __init__(self, database: Database, thread: str) -> None:
        self._serde = Serde()
        self._parents = database.parents(thread)
        self._deltas: dict[tuple[str, str], Delta] = {}
        self._newest: dict[str, tuple[str, dict[str, Any]]] = {}
        last = database.last(thread)
        self._messages = MESSAGES if last is None else messages_channel(last.values)

    def add(self, history: History, checkpoint: Checkpoint) -> None:
        """One checkpoint, as an event."""
        values = self._with_deltas(checkpoint)
        ns = checkpoint.ns
        spaces = self._spaces(history, ns, values)
        pending = self._pending(checkpoint)
        if not ns:
            spaces[SESSION] = {STATUS: status(values, checkpoint.writes)}
        spaces[f"{WRITES}/{ns}" if ns else WRITES] = pending
        history.add(
            CHECKPOINT_IMPORTED,
            checkpoint.at,
            {
                "checkpoint_id": checkpoint.id,
                "checkpoint_ns": ns,
                "parent_checkpoint_id": checkpoint.parent,
                "metadata": checkpoint.metadata,
            },
            spaces,
            checkpoint.where,
        )

    def _spaces(
        self, history: History, ns: str, values: Mapping[str, Any]
    ) -> dict[str, dict[str, Any]]:
        """The values of a checkpoint by namespace."""
        own = f"{SUBGRAPH}{ns}" if ns else SPACE
        chat = f"{own}/{MESSAGES}" if ns else MESSAGES
        spaces: dict[str, dict[str, Any]] = {own: {}, chat: {}}
        if not ns:
            spaces[STATE] = {}
        channel = messages_channel(values) if ns else self._messages
        for name, value in values.items():
            if name == channel and is_conversation(value):
                spaces[chat] = history.key_messages(value, chat)
            else:
                spaces[own if ns or is_internal(name) else STATE][name] = value
        return spaces

    def _pending(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """What tasks wrote after a checkpoint and no later one has, by task and number."""
        is_last = (checkpoint.ns, checkpoint.id) not in self._parents
        found: dict[str, Any] = {}
        for number, write in enumerate(checkpoint.writes):
            if is_last or write.channel.startswith("__"):
                value = self._read(write, checkpoint)
                found[f"{number:06}"] = {
                    "task_id": write.task_id,
                    "channel": write.channel,
                    "value": value,
                }
        return found

    def _read(self, write: Write, checkpoint: Checkpoint) -> Any:
        where = f"a write of the task {write.task_id} to {write.channel} after {checkpoint.where}"
        return self._serde.value(write.type, write.data, where)

    # ------------------------------------------------------------------------- delta channels

    def _with_deltas(self, checkpoint: Checkpoint) -> dict[str, Any]:
        """The values of a checkpoint, with those of channels that are kept as their changes.

        Such a channel is what it was at the parent, with what was written after that. How it is put
        together only the graph knows: lists are taken to grow, messages of the same id to be
        replaced, dicts to be updated, and anything else to be what was written last.
        """
        counters = checkpoint.metadata.get(DELTA_COUNTERS)
        parent = (checkpoint.ns, checkpoint.parent or "")
        seen = self._deltas.get(parent, Delta())
        whole = {name: v.value for name, v in checkpoint.values.items() if isinstance(v, Whole)}
        names = {*seen.values, *whole, *(counters if isinstance(counters, dict) else ())}
        values = {**checkpoint.values, **whole}
        for name in names - values.keys():
            value = seen.values.get(name)
            if name not in seen.values:
                newest, there = self._newest.get(checkpoint.ns, ("", {}))
                # From before the channel was of this kind.
                value = there.get(name) if newest == checkpoint.parent else None
            for channel, update in seen.written:
                value = updated(value, update) if channel == name else value
            if value is not None:
                values[name] = value
        self._newest[checkpoint.ns] = (checkpoint.id, values)
        if names:
            self._deltas[checkpoint.ns, checkpoint.id] = Delta(
                {name: values[name] for name in names & values.keys()},
                [
                    (each.channel, self._read(each, checkpoint))
                    for each in checkpoint.writes
                    if each.channel in names
                ],
            )
        return values


@dataclass(frozen=True, slots=True)
class Delta:
    """What channels that are kept as their changes were at a checkpoint, and what came after."""

    values: dict[str, Any] = field(default_factory=dict)
    written: list[tuple[str, Any]] = field(default_factory=list)


def updated(value: Any, update: Any) -> Any:
    """What a channel holds after a write, as most reducers have it."""
    if isinstance(update, dict) and OVERWRITE in (update.get("type"), *update):
        return update.get("value", update.get(OVERWRITE))
    if isinstance(value, list) or (value is None and isinstance(update, list | Message)):
        return grown(value or [], update if isinstance(update, list) else [update])
    if isinstance(value, dict) and isinstance(update, dict):
        return {**value, **update}
    return update


def grown(items: list[Any], more: list[Any]) -> list[Any]:
    """A list with more items; a message replaces the one of its id, or removes it."""
    found: dict[object, Any] = {name_of(each, n): each for n, each in enumerate(items)}
    for number, item in enumerate(more, len(items)):
        name = name_of(item, number)
        if not (isinstance(item, Message) and item.get("role") == "remove"):
            found[name] = item
        elif name == REMOVE_ALL:
            found.clear()
        else:
            found.pop(name, None)
    return list(found.values())


def name_of(item: Any, number: int) -> object:
    """What tells an item of a list from the others: the id of a message, or its place."""
    found = item.get("id") if isinstance(item, Message) else None
    return found if isinstance(found, str) else number


# ------------------------------------------------------------------------------------- channels


def messages_channel(values: Mapping[str, Any]) -> str:
    """Which channel has the conversation: ``messages``, or the only one that is all messages."""
    if MESSAGES in values:
        return MESSAGES
    found = [
        name
        for name, value in values.items()
        if isinstance(value, list) and value and all(isinstance(each, Message) for each in value)
    ]
    return found[0] if len(found) == 1 else MESSAGES


def is_conversation(value: Any) -> bool:
    """Whether a value can be the messages of a session."""
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def is_internal(channel: str) -> bool:
    """Whether LangGraph made a channel for itself."""
    return channel != ROOT and channel.startswith(("__", "branch:", "start:"))


def status(values: Mapping[str, Any], writes: Sequence[Write]) -> str:
    """What a graph was doing after a checkpoint."""
    channels = {write.channel for write in writes}
    for channel, found in ENDED.items():
        if channel in channels:
            return found
    return RUNNING if langgraph_has_next_node(values) else COMPLETED


# ----------------------------------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table of checkpoints, as a database gives it."""

    thread: str
    ns: object
    id: object
    parent: object
    checkpoint: Any
    metadata: Any
    writes: Sequence[Sequence[object]] = field(default=())
    """task_id, channel, type and data of each."""

    @property
    def where(self) -> str:
        """What the row is called in an error."""
        return f"the checkpoint {self.id} of the thread {self.thread}" + (
            f" in {self.ns}" if self.ns else ""
        )

    def read(self) -> Checkpoint:
        """The checkpoint, or an error that names the row."""
        where, tree, metadata = self.where, self.checkpoint, self.metadata
        if not (isinstance(self.ns, str) and isinstance(self.id, str)):
            raise InvalidDocumentError(f"{where} is damaged: its id or namespace is no text")
        if not isinstance(tree, dict) or not isinstance(metadata or {}, dict):
            raise InvalidDocumentError(f"{where} is damaged: it is no object, {short_repr(tree)}")
        values = tree.get("channel_values")
        if not isinstance(values, dict) or not all(isinstance(name, str) for name in values):
            raise InvalidDocumentError(f"{where} is damaged: it has no values of channels")
        if self.parent is not None and not isinstance(self.parent, str):
            raise InvalidDocumentError(f"{where} is damaged: the id of its parent is no text")
        at = parse_time(tree.get("ts"), where)
        writes = [self._write(each, where) for each in self.writes]
        parent = self.parent or None
        return Checkpoint(self.ns, self.id, parent, at, values, metadata or {}, writes, where)

    @staticmethod
    def _write(row: Sequence[object], where: str) -> Write:
        task_id, channel, type_, data = row
        if not isinstance(task_id, str) or not isinstance(channel, str):
            raise InvalidDocumentError(f"a write after {where} is damaged: its names are no text")
        return Write(task_id, channel, type_, data)
