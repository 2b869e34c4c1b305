"""Files that Holdfast did not write are ignored: editor backups, notes, caches."""

from __future__ import annotations

import pytest

from holdfast import Catalog, RetentionPolicy, Session, SnapshotManager, open_state_store
from holdfast.snapshots import SnapshotArchive
from support.async_tests import async_test

ENDS = ("~", ".bak", ".swp", ".orig", " (copy)")


@pytest.fixture
def root(tmp_path):
    return tmp_path / "agents"


def leave_strays(root):
    """Write a backup beside every file, and other files into every folder."""
    left = []
    for path in [path for path in root.rglob("*") if "~holdfast" not in path.parts]:
        if path.is_file():
            left += [path.with_name(path.name + end) for end in ENDS]
            left += [path.with_name(f".{path.name}.swp"), path.with_name(f"#{path.name}#")]
        else:
            left += [path / ".DS_Store", path / "notes.txt", path / "!first", path / "zz.json"]
    left += [root / "README.md", root / ".gitignore"]
    for path in left:
        path.write_bytes(b"not ours")
    return left


@async_test
async def test_stray_files_are_ignored(root):
    async with open_state_store(f"file://{root}") as store:
        session = await Session.open(store, agent_id="bot", session_id="ses")
        saved = []
        for number in range(6):
            session.add_message("user", f"number {number}")
            saved.append(await session.save())
        left = leave_strays(root)
        ids = [each.snapshot_id for each in saved]

        archive = SnapshotArchive(store)
        location = session.location
        assert await archive.list_snapshot_ids(location=location) == ids
        assert await archive.list_snapshot_ids(location=location, limit=2) == ids[:2]
        page = await archive.list_snapshots(location=location)
        assert [info.snapshot_id for info in page.snapshots] == ids
        loaded = await archive.load_snapshot(location=location)
        assert loaded.snapshot_id == ids[-1]
        catalog = Catalog(store)
        assert await catalog.agents() == ["bot"]
        assert await catalog.session_ids() == ["ses"]
        found = (await catalog.sessions("bot")).sessions
        assert [entry.location for entry in found] == [location]

        other = await Session.open(store, agent_id="bot", session_id="ses", must_exist=True)
        assert len(other.messages) == 6
        other.add_message("user", "number 6")
        ids.append((await other.save()).snapshot_id)
        await session.reload()
        assert len(session.messages) == 7
        await session.restore(ids[2])
        assert len(session.messages) == 3
        document = await SnapshotManager(store).export_session(agent_id="bot")
        assert len(document.state.messages) == 3

        verified = await archive.verify(location=location)
        assert verified.ok
        assert verified.other_keys
        pruned = await archive.prune(location=location, policy=RetentionPolicy(last=2))
        assert len(pruned.kept) == 2
        assert (await archive.verify(location=location)).ok
        assert [path for path in left if not path.exists()] == []

        await archive.delete_session(session_id="ses")
        assert (await catalog.sessions("bot")).sessions == []
