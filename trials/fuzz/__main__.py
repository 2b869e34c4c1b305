"""``python -m trials.fuzz``: every target in a process of its own, and a table of the outcome."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

from trials.fuzz.running import TARGETS, keep, now_of, read_now, replay
from trials.fuzz.trying import ACCEPTED, PROBLEM, REFUSED, Watch
from trials.report import ProgressBar, Report, progress

KEPT = Path("build") / "fuzz"
STUCK = 60
"""Seconds after which a process that is still at the same input is taken to hang."""


class FuzzReport(Report):
    """What came of the inputs, a row for each target."""

    def __init__(self, seed: int) -> None:
        super().__init__(f"hostile input, seed {seed}")
        self.rows: dict[str, dict[str, int]] = {}

    @property
    def tried(self) -> int:
        """How many inputs there were."""
        return sum(sum(counts.values()) for counts in self.rows.values())

    @property
    def table(self) -> str:
        """The counts as a Markdown table."""
        lines = [
            "| target | inputs | refused | accepted | problems |",
            "| --- " + "| ---: " * 4 + "|",
        ]
        for name, counts in self.rows.items():
            numbers = [
                sum(counts.values()),
                *(counts.get(n, 0) for n in (REFUSED, ACCEPTED, PROBLEM)),
            ]
            lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
        seconds = round(time.monotonic() - self.begun)
        return "\n".join([*lines, f"\n{self.title}: {seconds} s, {len(self.problems)} problems"])


def options() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m trials.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each target")
    parser.add_argument("--inputs", type=int, help="so many a target, in place of a time")
    parser.add_argument("--target", default="all", choices=["all", *TARGETS])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--replay", type=Path, metavar="FILE", help="try an input that was kept")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where inputs are kept")
    return parser.parse_args()


def main() -> int:
    """Try all that is asked for; gives the exit code."""
    said = options()
    if said.replay is not None:
        return tried_again(said.replay)
    names = list(TARGETS) if said.target == "all" else [said.target]
    report = FuzzReport(said.seed)
    # So many inputs are quickly tried, and need no process for each target.
    groups = [names] if said.inputs else [[name] for name in names]
    with report.to_the_end(), progress("targets", len(names)) as bar:
        for group in groups:
            run_child(report, bar, said, group)
    return report.finish()


def run_child(
    report: FuzzReport, bar: ProgressBar, said: argparse.Namespace, names: list[str]
) -> None:
    """Some targets in another process; where that ends before they do, that is a problem."""
    work = {
        "targets": names,
        "seed": said.seed,
        "seconds": None if said.inputs else said.seconds,
        "inputs": said.inputs or 0,
        "kept": str(said.kept.absolute()),
    }
    command = [sys.executable, "-m", "trials.fuzz.child", json.dumps(work)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        ) as child,
    ):
        hung = waited(child, said.kept)
        for line in child.stdout or ():
            take(report, bar, json.loads(line))
        errors.seek(0)
        if child.wait() != 0:
            report.problem(death(child, said, errors, hung=hung))


def waited(child: subprocess.Popen[str], kept: Path) -> bool:
    """Wait for a process; one that hangs is ended. Its few lines fit into the pipe meanwhile."""
    last = time.monotonic()
    seen = 0.0
    while child.poll() is None:
        time.sleep(0.1)
        now = now_of(kept).stat().st_mtime if now_of(kept).exists() else 0.0
        if now != seen:
            seen, last = now, time.monotonic()
        elif time.monotonic() - last > STUCK:
            child.kill()
            return True
    return False


def take(report: FuzzReport, bar: ProgressBar, line: dict[str, Any]) -> None:
    """What a process told of one target."""
    report.rows[line["target"]] = line["counts"]
    for problem in line["problems"]:
        report.problem(problem)
    bar.step()


def death(
    child: subprocess.Popen[str], said: argparse.Namespace, errors: IO[str], *, hung: bool
) -> str:
    """What is told of a process that did not come to its end, and of its last input."""
    how = "hung" if hung else f"ended with {child.returncode}"
    found = read_now(said.kept)
    last = errors.read().strip().splitlines()[-1:]
    if found is None:
        return f"the process {how}: {last}"
    path = keep(said.kept, *found, said.seed, f"the process {how}")
    now_of(said.kept).unlink()
    return f"{found[0]}: the process {how}: {last} ({path})"


def tried_again(path: Path) -> int:
    """Try one input that was kept; it is here in this process that it does what it does."""
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        found = replay(path, Watch(Path(folder)))
    print(f"{found.outcome} {found.problem} {found.place}".strip())
    return 1 if found.outcome == PROBLEM else 0


if __name__ == "__main__":
    sys.exit(main())
