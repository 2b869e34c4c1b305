"""``python -m trials.fuzz``: try every target, and print a table of the outcomes."""

from __future__ import annotations

import argparse
import faulthandler
import logging
import sys
import tempfile
import time
import traceback
from collections import Counter
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, seed, settings
from hypothesis.database import DirectoryBasedExampleDatabase

from trials.fuzz.sandbox import Sandbox, limit_memory
from trials.fuzz.target import ACCEPTED, REFUSED, Target, examine
from trials.report import Report, progress

TARGETS = {
    "value-bytes": ("values", "BinaryValues"),
    "value-json": ("values", "JSONValues"),
    "documents": ("documents", "Documents"),
    "redaction": ("documents", "Redaction"),
    "stored": ("stored", "Stored"),
    "urls": ("urls", "URLs"),
    "rest": ("rest", "REST"),
    "import-files": ("importers", "ImportedFiles"),
    "import-databases": ("importers", "ImportedDatabases"),
    "import-values": ("importers", "ImportedValues"),
    "commands": ("commands", "Commands"),
}
BATCH = 200
STUCK = 900
"""Seconds after which a batch that does not react to signals ends the program with a traceback."""


class FuzzReport(Report):
    """Outcomes per target."""

    def __init__(self, title: str) -> None:
        super().__init__(title)
        self.rows: dict[str, Counter[str]] = {}

    @property
    def tried(self) -> int:
        """The number of inputs."""
        return sum(counts.total() for counts in self.rows.values())

    @property
    def table(self) -> str:
        """The outcomes as a Markdown table."""
        lines = ["| target | inputs | refused | accepted |", "| --- | ---: | ---: | ---: |"]
        for name, counts in self.rows.items():
            numbers = (counts.total(), counts[REFUSED], counts[ACCEPTED])
            lines.append(f"| {name} | " + " | ".join(f"{number:,}" for number in numbers) + " |")
        seconds = round(time.monotonic() - self.begun)
        return "\n".join([*lines, f"\n{self.title}: {seconds} s, {len(self.problems)} problems"])


def run_target(
    target: Target,
    sandbox: Sandbox,
    counts: Counter[str],
    findings: Path,
    options: argparse.Namespace,
) -> None:
    """Try a target for a time or a number of inputs; a broken promise raises an error.

    The input being tried is in the file ``last``, for the case that the process does not survive.
    """
    for data in target.valid:
        target.check(data)  # also imports what readers import late
    findings.mkdir(parents=True, exist_ok=True)
    limit_memory()

    def try_input(data: Any) -> None:
        last.seek(0)
        last.truncate()
        last.write(repr(data).encode(errors="backslashreplace"))
        counts[examine(target, data, sandbox)] += 1

    profile = settings(
        max_examples=options.inputs or BATCH,
        database=DirectoryBasedExampleDatabase(findings),
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    end = time.monotonic() + (0 if options.inputs else options.seconds)
    with (findings / "last").open("wb", buffering=0) as last:
        for data in target.valid:
            try_input(data)
        for batch in count(options.seed):
            faulthandler.dump_traceback_later(STUCK, exit=True)
            seed(batch)(profile(given(target.inputs)(try_input)))()
            if time.monotonic() >= end:
                break
    (findings / "last").unlink()


def parse_arguments() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m trials.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="per target")
    parser.add_argument("--inputs", type=int, help="per target, instead of a time")
    parser.add_argument("--target", default="all", choices=["all", *TARGETS])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000)
    parser.add_argument("--findings", type=Path, default=Path("build") / "fuzz")
    return parser.parse_args()


def main() -> int:
    """Try the targets; return the exit code."""
    options = parse_arguments()
    logging.disable(logging.CRITICAL)
    faulthandler.enable()
    names = list(TARGETS) if options.target == "all" else [options.target]
    report = FuzzReport(f"hostile input, seed {options.seed}")
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder,
        report.to_the_end(),
        progress("targets", len(names)) as bar,
    ):
        sandbox = Sandbox(Path(folder))
        for name in names:
            module, kind = TARGETS[name]
            target = getattr(import_module(f"trials.fuzz.{module}"), kind)(Path(folder))
            counts = report.rows[name] = Counter()
            try:
                run_target(target, sandbox, counts, options.findings.absolute() / name, options)
            except Exception as error:  # noqa: BLE001 - a finding; continue with the next target
                traceback.print_exception(error)
                report.problem(f"{name}: {type(error).__name__}: {error!s:.300}")
            bar.step()
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
