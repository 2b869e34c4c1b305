"""What tasks wrote after a checkpoint: LangGraph's pending writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class Write:
    """What a task wrote to a channel."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: Any

    @property
    def key(self) -> str:
        """Its key beside the checkpoint that it is for."""
        return f"{self.task_id}|{self.index}"

    def data(self) -> dict[str, Any]:
        """The same as a session keeps it."""
        return {
            "task_id": self.task_id,
            "path": self.task_path,
            "index": self.index,
            "channel": self.channel,
            "value": self.value,
        }


def write_from_dict(data: Mapping[str, Any]) -> Write:
    """What was kept of a write."""
    return Write(data["task_id"], data["path"], data["index"], data["channel"], data["value"])
