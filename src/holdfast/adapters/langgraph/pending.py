"""Pending changes of a thread, and the callers that wait for them to be committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.sessions.commit import Committer
from holdfast.snapshots.records import SnapshotInfo
from holdfast.stores.base import StateStore


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """The snapshot after a pending event: the index of that event, and the record to write."""

    index: int
    info: SnapshotInfo


RecordFunction: TypeAlias = Callable[[Committer], Awaitable[PendingSnapshot | None]]


@dataclass(slots=True)
class PendingChange:
    """A change to record, and the future that its caller awaits."""

    record: RecordFunction
    done: asyncio.Future[None]
    key: str = ""
    """The key of the snapshot that is written with it."""
    may_be_written: bool = False
    """Whether a cancelled attempt may have written it already."""

    async def finish_if_written(self, state_store: StateStore) -> None:
        """Finish the change if a cancelled attempt has written it."""
        if self.may_be_written and self.key and await state_store.get(self.key) is not None:
            self.finish(None)

    async def record_on(self, committer: Committer) -> PendingSnapshot | None:
        """Record the change; an error goes to its caller, not to the other changes."""
        if self.done.done():
            return None
        try:
            return await self.record(committer)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            self.finish(error)
            return None

    def finish(self, error: Exception | None) -> None:
        """Set the result, unless the caller was cancelled."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
