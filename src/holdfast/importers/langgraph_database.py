"""What the databases of LangGraph's checkpointers have in common.

Importable without LangGraph: every unknown source is shown to these readers.
"""

from __future__ import annotations

import datetime as dt
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.history import parse_time


class ValueDecoder(Protocol):
    """Decodes stored values, as `Serde` does, which needs LangGraph."""

    def decode(self, encoding: object, data: object, where: str) -> Any:
        """Return a stored value; ``where`` names it in errors."""


@dataclass(frozen=True, slots=True)
class TaskWrite:
    """A value that a task wrote to a channel after a checkpoint."""

    task_id: str
    task_path: str
    channel: str
    value: Any


@dataclass(frozen=True, slots=True)
class DatabaseCheckpoint:
    """One checkpoint of a thread, decoded."""

    ns: str
    """The subgraph; empty for the graph itself."""
    id: str
    parent: str | None
    at: dt.datetime
    checkpoint: dict[str, Any]
    metadata: dict[str, Any]
    writes: Sequence[TaskWrite]
    where: str
    """Its name in errors."""


class Database(ABC):
    """An open database of a LangGraph checkpointer."""

    @abstractmethod
    def threads(self) -> list[str]:
        """Return the ids of all threads."""

    @abstractmethod
    def checkpoints(self, thread: str) -> Iterator[DatabaseCheckpoint]:
        """Yield the checkpoints of a thread, oldest first."""


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """The key columns of a row of the checkpoints table."""

    thread: str
    ns: object
    id: object
    parent: object

    @property
    def where(self) -> str:
        """The name of the row in errors."""
        subgraph = f" in {self.ns}" if self.ns else ""
        return f"checkpoint {self.id} of thread {self.thread}{subgraph}"

    def parse_metadata(self, text: object) -> Any:
        """Return the metadata column, which is JSON.

        Raises:
            InvalidDocumentError: It is not JSON.

        """
        return {} if text is None else parse_json(text, f"the metadata of {self.where}")

    def to_write(self, decoder: ValueDecoder, columns: Sequence[object]) -> TaskWrite:
        """Return a write after this checkpoint.

        ``columns`` are the task id, its path, the channel, the encoding and the data.

        Raises:
            InvalidDocumentError: A column is damaged.

        """
        task_id, path, channel, encoding, data = columns
        if not (isinstance(task_id, str) and isinstance(path, str) and isinstance(channel, str)):
            raise InvalidDocumentError(
                f"a write after {self.where} is damaged: task and channel must be text"
            )
        where = f"the write of task {task_id} to {channel} after {self.where}"
        return TaskWrite(task_id, path, channel, decoder.decode(encoding, data, where))

    def to_checkpoint(
        self, tree: Any, metadata: Any, writes: Sequence[TaskWrite]
    ) -> DatabaseCheckpoint:
        """Return the checkpoint of this row with its decoded columns.

        Raises:
            InvalidDocumentError: A column is damaged.

        """
        where = self.where
        if not isinstance(self.ns, str) or not isinstance(self.id, str):
            raise InvalidDocumentError(f"{where} is damaged: id and namespace must be text")
        if self.parent is not None and not isinstance(self.parent, str):
            raise InvalidDocumentError(f"{where} is damaged: parent id must be text")
        for column, value in (("checkpoint", tree), ("metadata", metadata)):
            if not isinstance(value, dict):
                raise InvalidDocumentError(
                    f"{where} is damaged: {column} must be an object, got {short_repr(value)}"
                )
        for name in ("channel_values", "channel_versions"):
            value = tree.get(name)
            if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
                raise InvalidDocumentError(
                    f"{where} is damaged: {name} must be an object, got {short_repr(value)}"
                )
        at = parse_time(tree.get("ts"), where)
        checkpoint = {**tree, "id": self.id}
        return DatabaseCheckpoint(
            self.ns, self.id, self.parent or None, at, checkpoint, metadata, writes, where
        )


def parse_json(data: object, where: str, **options: Any) -> Any:
    """Return parsed JSON; ``where`` names it in errors.

    Raises:
        InvalidDocumentError: It is not JSON.

    """
    try:
        return json.loads(data, **options)  # type: ignore[arg-type]
    except (LookupError, RecursionError, TypeError, ValueError) as error:
        raise InvalidDocumentError(f"{where} is damaged: not JSON ({error!s:.400})") from error
