"""Compare captures and restores of a workspace with Git on the same files.

Git's side of a capture is ``git add -A`` and ``git write-tree``: two processes, as an agent would
run them. Git does not flush what it writes to the disk by default; Holdfast does. In every round
both see the same change, in random order; the best round counts. `--smoke` runs on a small scale.
Run: make bench-workspace
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import holdfast
from benchmarks.harness import Row, format_table, keep, progress, shuffle

PEER, OURS = "git", "holdfast"
MILLI = 1e3
CHANGED = 10
LIMIT = 1.5
"""A capture takes at most this many times as long as Git."""
RACY_SECONDS = 2.1
"""After this time, neither side reads an unchanged file again."""


class GitSide:
    """A repository and its index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run("init", "-q")
        self.run("config", "gc.auto", "0")
        self.trees: list[str] = []

    def run(self, *words: str) -> str:
        """Run Git, and return what it prints."""
        done = subprocess.run(
            ["git", *words], cwd=self.folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def capture(self) -> None:
        """Add everything, and write the tree."""
        self.run("add", "-A")
        self.trees.append(self.run("write-tree"))

    def restore(self) -> None:
        """Go back to the tree before the last one."""
        self.run("read-tree", "-u", "--reset", self.trees[-2])


class HoldfastSide:
    """A session on SQLite and its workspace."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.loop = asyncio.new_event_loop()
        self.store = holdfast.open_state_store(url)
        self.seqs: list[int] = []
        self.reopen()

    def reopen(self) -> None:
        """Open the session again, as a new process would."""
        opening = holdfast.Session.open(self.store, agent_id="coder", session_id="ses")

        async def open_session() -> holdfast.Session:
            return await opening

        self.session = self.loop.run_until_complete(open_session())
        self.files = self.session.workspace(self.folder)

    def capture(self) -> None:
        """Capture."""
        self.seqs.append(self.loop.run_until_complete(self.files.capture()).seq)

    def restore(self) -> None:
        """Go back to the capture before the last one."""
        self.loop.run_until_complete(self.files.restore(at=self.seqs[-2]))

    def close(self) -> None:
        """Close the store."""
        self.loop.run_until_complete(self.store.close())
        self.loop.close()


class Arena:
    """The same files in two folders, one per side."""

    def __init__(self, folder: Path, count: int, rng: random.Random) -> None:
        self.rng = rng
        # 20 files per folder, on two levels.
        self.names = [f"pkg{n // 1000}/mod{n // 20}/file{n % 20}.py" for n in range(count)]
        self.folders = {PEER: folder / "git", OURS: folder / "holdfast"}
        for place in self.folders.values():
            for number, name in enumerate(self.names):
                path = place / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"# file {number}\n" * 50)
            (place / ".gitignore").write_text("*.pyc\n__pycache__/\n/build/\n*.log\n!keep.log\n")
        self.git = GitSide(self.folders[PEER])
        self.ours = HoldfastSide(self.folders[OURS], f"sqlite:///{folder}/state.db")

    def change(self) -> None:
        """Change some files in both folders, in the same way."""
        for name in self.rng.sample(self.names, min(CHANGED, len(self.names))):
            line = f"# {self.rng.random()}\n"
            for place in self.folders.values():
                with (place / name).open("a") as file:
                    file.write(line)

    def measure(self, row: Row, calls: dict[str, Callable[[], None]]) -> None:
        """Time one call of each side."""
        for who in shuffle(list(calls), self.rng):
            start = time.perf_counter()
            calls[who]()
            row.offer(who, (time.perf_counter() - start) * MILLI)


def run(count: int, rounds: int, pause: float) -> list[Row]:
    """Measure everything."""
    shown = f"{count:,} files"
    first = Row(f"first capture of {shown}", "ms")
    rows = {
        "changed": Row(f"capture, {CHANGED} of {shown} changed", "ms", target=1 / LIMIT),
        "new": Row("the same in a newly opened session", "ms"),
        "same": Row(f"capture, none of {shown} changed", "ms"),
        "restore": Row(f"restore, {CHANGED} of {shown} differ", "ms"),
    }
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        os.environ["HOLDFAST_CACHE"] = f"{folder}/cache"
        arena = Arena(Path(folder), count, random.Random(0))
        captures = {PEER: arena.git.capture, OURS: arena.ours.capture}
        restores = {PEER: arena.git.restore, OURS: arena.ours.restore}
        arena.measure(first, captures)
        time.sleep(pause)
        arena.change()
        arena.measure(Row("", ""), captures)  # trusts the files from now on
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            arena.change()
            arena.measure(rows["changed"], captures)
            arena.measure(rows["same"], captures)
            arena.change()
            arena.ours.reopen()
            arena.measure(rows["new"], captures)
            arena.measure(rows["restore"], restores)
        arena.ours.close()
    return [first, *rows.values()]


def main() -> None:
    """Measure, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that keeps nothing")
    options = parser.parse_args()
    rows = run(50, 1, 0) if options.smoke else run(10_000, 15, RACY_SECONDS)
    print(format_table("workspace", rows, PEER, [OURS]))
    print(f"load of the machine: {os.getloadavg()[0]:.1f}")
    if not options.smoke:
        print(f"kept in {keep('workspace', rows, load=os.getloadavg())}")


if __name__ == "__main__":
    main()
