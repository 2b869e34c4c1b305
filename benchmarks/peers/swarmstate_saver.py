"""swarmstate's saver for LangGraph, on its disk store, called with `put` alone.

Its disk store sets ``synchronous=NORMAL``: a save is not synced, so its times flatter it.
"""

from __future__ import annotations

from typing import Any, cast

from swarmstate.backends.disk import DiskStore
from swarmstate.integrations.langgraph import SwarmStateSaver

from benchmarks.peers.langgraph_saver import SaverPut


class SwarmstatePut(SaverPut):
    """With its defaults."""

    async def open(self) -> None:
        # Accepts any store of its package, though its type says memory.
        self.store = cast("Any", DiskStore(str(self.folder / "swarmstate.db")))
        self.begin(SwarmStateSaver(self.store))

    async def close(self) -> None:
        self.store.close()
