"""Writes of tasks after a checkpoint: LangGraph's pending writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Write:
    """A value that a task wrote to a channel."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: Any

    @property
    def key(self) -> str:
        """The key of the write in the state."""
        return f"{self.task_id}|{self.index}"

    def to_dict(self) -> dict[str, Any]:
        """Return the write as a session stores it."""
        return {
            "task_id": self.task_id,
            "path": self.task_path,
            "index": self.index,
            "channel": self.channel,
            "value": self.value,
        }


def write_from_dict(data: Mapping[str, Any]) -> Write:
    """Return a stored write."""
    return Write(data["task_id"], data["path"], data["index"], data["channel"], data["value"])
