"""Large values that earlier versions stored in the log itself are read, and stay where they are.

``before-blobs`` is a folder of a ``file://`` store, written by the version before blobs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from holdfast import Session, SnapshotManager, open_state_store
from support.async_tests import async_test

TEXT = "Grüße, 世界 " * 4_000
MESSAGE = {"role": "user", "content": [{"type": "image", "data": bytes(66_000)}]}


@async_test
async def test_large_values_inside_the_log_are_read_and_continued(tmp_path):
    home = tmp_path / "store"
    shutil.copytree(Path(__file__).parent / "before-blobs", home)
    async with open_state_store(f"file://{home}") as store:
        session = await Session.open(store, agent_id="bot", session_id="ses", must_exist=True)
        assert session.messages == [MESSAGE]
        assert session.get("report") == {"text": TEXT, "turn": 2}
        assert (await session.verify()).ok
        page = await session.archive.list_snapshots(location=session.location)
        first = await session.archive.load_snapshot(
            location=session.location, snapshot_id=page.snapshots[0].snapshot_id
        )
        assert first.snapshot.get("state", "report") == {"text": TEXT}
        document = await SnapshotManager(state_store=store).export_session(
            agent_id="bot", session_id="ses"
        )
        assert document.state.messages == [MESSAGE]
        before = session.snapshot().digest
        await session.restore(page.snapshots[0].snapshot_id)
        session.set("report", {"text": TEXT, "turn": 3})
        await session.save()
        again = await Session.open(store, agent_id="bot", session_id="ses", must_exist=True)
        assert again.messages == [MESSAGE]
        assert again.get("report") == {"text": TEXT, "turn": 3}
        assert again.snapshot().digest != before
        assert (await again.verify()).ok
        fork = await again.fork("other")
        assert fork.messages == [MESSAGE]
        assert (await fork.verify()).ok
