"""The blocking methods of a saver: each runs its async twin in the saver's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
)

from holdfast.adapters.langgraph.portal import SaverPortal


class BlockingMethods(BaseCheckpointSaver[str]):
    """What LangGraph calls from graphs that are not async."""

    _portal: SaverPortal

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint by its id, or the one that the thread stands at."""
        return self._portal.call(self.aget_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph calls it so
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Checkpoints, the newest first: of a thread, or of all threads without a config."""
        rows = self.alist(config, filter=filter, before=before, limit=limit)
        while (row := self._portal.call(next_or_none(rows))) is not None:
            yield row

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Keep a checkpoint: what differs from the one before it."""
        return self._portal.call(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Keep what a task wrote after a checkpoint."""
        self._portal.call(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Remove a thread for good."""
        self._portal.call(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs, in whichever threads they are."""
        self._portal.call(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Make a new thread with all that another has."""
        self._portal.call(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the latest checkpoint of each graph and subgraph of threads, or nothing."""
        self._portal.call(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors of a checkpoint wrote to channels, in one walk through the log."""
        return self._portal.call(self.aget_delta_channel_history(config=config, channels=channels))


async def next_or_none(rows: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    """The next one, or None at the end."""
    return await anext(rows, None)
