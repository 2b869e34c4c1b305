"""A coding agent that edits files, breaks them, and is rolled back together with its conversation.

Its files are the workspace of its session, so every snapshot has both. The model is scripted: no
network or API key is needed. Run: python examples/coding_agent.py
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import holdfast

AGENT = "coder"
SESSION = "ses_prices"
REPO = "repo"

GOOD = "def total(prices):\n    return sum(prices)\n"
TEST = "from prices import total\n\nassert total([1, 2]) == 3\nassert total([]) == 0\n"
BROKEN = "def total(prices):\n    return functools.reduce(operator.add, prices)\n"
FIXED = "import math\n\n\ndef total(prices):\n    return math.fsum(prices)\n"


# ----------------------------------------------------------------------------------------- agent


async def run_step(
    session: holdfast.Session, files: holdfast.Workspace, text: str, edits: dict[str, str]
) -> holdfast.SessionSnapshot:
    """Edit files as the model says, run the tests, and save conversation and files as one."""
    for path, content in edits.items():
        edit_file(path, content)
        session.record("tool.called", {"tool": "edit", "path": path})
    session.add_message("assistant", text)
    is_green = run_tests()
    session.add_message("tool", "tests pass" if is_green else "tests fail", name="run_tests")
    return await session.save(tags={"tests": "pass" if is_green else "fail"}, workspace=files)


def edit_file(path: str, content: str) -> None:
    """Write a file of the repository."""
    Path(REPO, path).write_text(content)


def run_tests() -> bool:
    """Run the tests of the repository."""
    command = [sys.executable, "-B", "test_prices.py"]
    return subprocess.run(command, cwd=REPO, check=False, capture_output=True).returncode == 0  # noqa: S603


def describe(session: holdfast.Session) -> str:
    """Return what the session and the folder have."""
    names = sorted(path.name for path in Path(REPO).iterdir())
    return f"{session.message_count} messages, {', '.join(names)}, tests pass: {run_tests()}"


# ---------------------------------------------------------------------------------------- script


async def demonstrate() -> None:
    """Let the agent break its files, and rewind files and conversation together."""
    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
        files = session.workspace(REPO)

        session.add_message("user", "Write total(), with tests")
        edits = {"prices.py": GOOD, "test_prices.py": TEST}
        good = await run_step(session, files, "Done: it uses sum().", edits)
        print(f"1. The agent writes two files: {describe(session)}")

        session.add_message("user", "Make it faster")
        edits = {"prices.py": BROKEN, "cache.py": "CACHE = {}\n"}
        bad = await run_step(session, files, "Now it uses reduce().", edits)
        print(f"2. It breaks them: {describe(session)}")

        print("3. What it did between the two snapshots:")
        for change in (await files.diff(good, bad)).files:
            print(f"   {change.kind}: {change.path}")
            for line in (change.text or "").splitlines()[3:]:
                print(f"      {line}")

        report = await session.restore(good, workspace=files)
        print(f"4. Files and conversation are rewound: {describe(session)}")

        session.add_message("user", "Make it exact, with math.fsum")
        await run_step(session, files, "Now it uses fsum().", {"prices.py": FIXED})
        print(f"5. The agent continues from there: {describe(session)}")

        edit_file("notes.txt", "my own notes")
        try:
            await session.restore(good, workspace=files)
        except holdfast.WorkspaceChangedError as error:
            print(f"6. A file that was not captured is not removed: {', '.join(error.paths)}")

        if report.undo is not None:
            count = await files.export("broken.zip", at=report.undo)
            print(f"7. Nothing is lost: the broken version has {count} files, see broken.zip")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        Path(REPO).mkdir()
        asyncio.run(demonstrate())
