"""LangGraph's async saver on PostgreSQL, with as many threads as there are sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from benchmarks.peers.many_savers import SaverThreads

POOL = 10


class PostgresThreads(SaverThreads):
    """On PostgreSQL, with a pool of connections."""

    async def open_saver(self, folder: Path, url: str) -> Any:  # noqa: ARG002
        pool: Any = AsyncConnectionPool(
            url,
            min_size=POOL,
            max_size=POOL,
            open=False,
            timeout=300,
            kwargs={"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
        )
        await self.stack.enter_async_context(pool)
        return AsyncPostgresSaver(pool)
