"""The blocking methods of the saver: each runs its async twin in a background event loop."""

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
    """The methods that LangGraph calls from blocking graphs."""

    _portal: SaverPortal

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint with the id in the config, or the current one without an id."""
        return self._portal.call(self.aget_tuple(config))

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
        while (row := self._portal.call(next_or_none(rows))) is not None:
            yield row

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Store a checkpoint, as its difference from the current one."""
        return self._portal.call(self.aput(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task after a checkpoint."""
        self._portal.call(self.aput_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread."""
        self._portal.call(self.adelete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Delete the checkpoints of runs in all threads."""
        self._portal.call(self.adelete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy a thread, with its history, to a new one."""
        self._portal.call(self.acopy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Delete all but the current checkpoint of each graph and subgraph, or everything."""
        self._portal.call(self.aprune(thread_ids, strategy=strategy))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Return what the ancestors of a checkpoint wrote to delta channels."""
        return self._portal.call(self.aget_delta_channel_history(config=config, channels=channels))


async def next_or_none(rows: AsyncIterator[CheckpointTuple]) -> CheckpointTuple | None:
    """Return the next row, or None at the end."""
    return await anext(rows, None)
