"""Snapshots are saved for an imported history."""

from __future__ import annotations

from pathlib import Path

import holdfast
import holdfast.importers
from support.async_tests import async_test

SAMPLES = Path(__file__).parent / "samples"
FILE = SAMPLES / "strands/session/trip-1/scopes/agent/planner/snapshots/snapshot_latest.json"


@async_test
async def test_each_strands_snapshot_can_be_restored():
    async with holdfast.open_state_store("memory:") as store:
        manager = holdfast.SnapshotManager(store)
        (document,) = holdfast.importers.read(str(FILE))
        result = await manager.import_session(document, agent_id="a", session_id="s")
        assert await holdfast.importers.save_snapshots(manager, document, result) == 3
        location = await manager.locate("a", "s")
        page = await manager.archive.list_snapshots(location=location)
        assert [info.message_count for info in page.snapshots] == [4, 6, 8]
        first, second, _ = page.snapshots
        assert (first.parent_id, second.parent_id) == (None, first.snapshot_id)
        assert first.created_at == document.events[1].at
        session = await holdfast.Session.open(store, agent_id="a", session_id="s")
        await session.restore(first.snapshot_id)
        assert len(session.messages) == 4
        await session.commit()
        assert (await session.verify()).ok


@async_test
async def test_each_turn_of_a_transcript_can_be_restored():
    (path,) = (SAMPLES / "codex").glob("rollout-2026*")
    async with holdfast.open_state_store("memory:") as store:
        manager = holdfast.SnapshotManager(store)
        (document,) = holdfast.importers.read(str(path))
        result = await manager.import_session(document, agent_id="a", session_id="s")
        assert await holdfast.importers.save_snapshots(manager, document, result) == 2
        location = await manager.locate("a", "s")
        page = await manager.archive.list_snapshots(location=location)
        assert [info.message_count for info in page.snapshots] == [9, 4]
        assert [info.tags for info in page.snapshots] == [{"turn": "turn-1"}, {"turn": "turn-3"}]
        session = await holdfast.Session.open(store, agent_id="a", session_id="s")
        await session.restore(page.snapshots[0].snapshot_id)
        assert session.messages[-1]["content"][0]["text"] == "Oslo and Bergen."
        assert (await session.verify()).ok


@async_test
async def test_a_dry_run_or_an_import_over_a_session_saves_no_snapshots():
    async with holdfast.open_state_store("memory:") as store:
        manager = holdfast.SnapshotManager(store)
        (document,) = holdfast.importers.read(str(FILE))
        dry = await manager.import_session(document, dry_run=True)
        assert await holdfast.importers.save_snapshots(manager, document, dry) == 0
        await manager.import_session(document)
        over = await manager.import_session(document)
        assert await holdfast.importers.save_snapshots(manager, document, over) == 0
