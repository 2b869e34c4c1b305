"""The whole state as one synced JSON file per turn: what one writes without a library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import orjson

from benchmarks.peers.workload import Contestant, Message, Turn


class OrjsonFiles(Contestant):
    """One file per turn."""

    async def open(self) -> None:
        self.messages: list[Message] = []
        self.count = 0

    async def turn(self, turn: Turn) -> None:
        self.messages += turn.messages
        self.count += 1
        path = self.folder / f"{self.count:06}.json"
        with path.open("wb") as file:
            file.write(orjson.dumps({"messages": self.messages, "plan": turn.plan}))
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    async def mark(self) -> str:
        return f"{self.count:06}"

    async def load(self, snapshot_id: str | None) -> Sequence[Any]:
        name = snapshot_id or (await self.ids())[-1]
        state = orjson.loads((self.folder / f"{name}.json").read_bytes())
        messages: list[Message] = state["messages"]
        return messages

    async def ids(self) -> Sequence[str]:
        return sorted(name.removesuffix(".json") for name in os.listdir(self.folder))

    async def close(self) -> None:
        self.messages = []
