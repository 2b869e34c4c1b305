"""Restore as an ordinary user: read-only files and folders, unreadable files, a limited disk."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support.subprocesses import read_python

NOBODY = 65534
PROGRAM = """
import asyncio, json, os, resource, sys
from pathlib import Path
import pathspec
from holdfast import Session, WorkspaceError, open_state_store

root = Path(sys.argv[1])
store = open_state_store("memory:")
if os.geteuid() == 0:
    os.setuid(65534)  # everything is imported: this user may not be able to read the source


async def main():
    session = await Session.open(store, agent_id="a", session_id="s")
    files = session.workspace(root)
    found = {}
    (root / "locked").mkdir()
    (root / "locked/file").write_text("one")
    (root / "plain").write_text("one")
    (root / "plain").chmod(0o444)
    (root / "locked").chmod(0o555)
    first = await files.capture()
    (root / "locked").chmod(0o755)
    (root / "locked/file").write_text("two")
    (root / "locked/extra").write_text("two")
    (root / "locked").chmod(0o555)
    (root / "plain").unlink()
    (root / "plain").write_text("two")
    await files.capture()
    await files.restore(at=first.seq)
    found["file"] = (root / "locked/file").read_text()
    found["extra"] = (root / "locked/extra").exists()
    found["folder"] = oct((root / "locked").stat().st_mode & 0o777)
    found["plain"] = [(root / "plain").read_text(), oct((root / "plain").stat().st_mode & 0o777)]

    (root / "secret").write_text("x")
    (root / "secret").chmod(0)
    try:
        await files.capture()
    except WorkspaceError as error:
        found["unreadable"] = str(error)
    (root / "secret").unlink()

    (root / "plain").unlink()
    (root / "large").write_bytes(b"x" * 100_000)
    third = await files.capture()
    (root / "large").unlink()
    await files.capture()
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
    try:
        await files.restore(at=third.seq)
    except WorkspaceError as error:
        found["full"] = str(error)
    found["left"] = sorted(path.name for path in root.iterdir())
    return found


print(json.dumps(asyncio.run(main())))
"""


@pytest.fixture
def shared_folder():
    """A folder that any user can reach."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-test-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_read_only_folders_and_limits_of_an_ordinary_user(shared_folder):
    root = shared_folder / "root"
    root.mkdir()
    if os.geteuid() == 0:
        os.chown(root, NOBODY, NOBODY)
    cache = str(shared_folder / "cache")
    found = json.loads(read_python(PROGRAM, str(root), HOLDFAST_CACHE=cache))
    assert found == {
        "file": "one",
        "extra": False,
        "folder": "0o555",
        "plain": ["one", "0o444"],
        "unreadable": "cannot capture 'secret': Permission denied; make it readable, or add it to "
        ".holdfastignore",
        "full": "cannot write 'large': File too large",
        "left": ["locked"],
    }
