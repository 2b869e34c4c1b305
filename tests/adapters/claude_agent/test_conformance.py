"""The SDK's conformance suite, on every backend."""

from __future__ import annotations

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk.testing import run_session_store_conformance

from holdfast import Catalog
from holdfast.adapters.claude_agent import HoldfastSessionStore
from holdfast.snapshots.archive import SnapshotArchive
from support.async_tests import async_test


@async_test
async def test_the_conformance_suite_passes_on_every_backend(new_state_store):
    async with new_state_store() as store:

        async def make_empty_store():
            for session_id in await Catalog(store).session_ids():
                await SnapshotArchive(store).delete_session(session_id=session_id)
            return HoldfastSessionStore(store)

        await run_session_store_conformance(make_empty_store)
