"""Run every hardship once, and print a table of the outcomes."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from trials.hardship import Skipped, checkpoints, clocks, disks, read_only
from trials.kills.stores import open_stores
from trials.processes import clean_up_on_sigterm
from trials.report import Report, progress

Trial = Callable[[Path], list[str]]


def on_postgresql(folder: Path) -> list[str]:
    """Run with a read-only role on a new server."""
    with open_stores("postgresql", folder / "server") as stores:
        return read_only.read_only_role(folder, stores.server)


TRIALS: dict[str, Trial] = {
    **{
        f"{name} {backend}": partial(trial, backend=backend)
        for name, trial in (
            ("full disk", disks.full_disk),
            ("files that may not grow", disks.limited_files),
            ("read-only option", read_only.read_only_option),
            ("read-only disk", read_only.read_only_disk),
        )
        for backend in ("sqlite", "files")
    },
    "read-only role postgresql": on_postgresql,
    "ids by a jumping clock": clocks.ids_in_order,
    "a session by a jumping clock": clocks.run_one_object,
    "sessions by a jumping clock": clocks.run_one_process,
    "processes with other clocks": clocks.run_two_processes,
    "checkpoints by a jumping clock": checkpoints.run_checkpoints,
}


def main() -> int:
    """Run the trials and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.hardship", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=TRIALS, default=list(TRIALS), metavar="NAME")
    options = parser.parse_args()
    report = Report("hardship")
    clean_up_on_sigterm()
    with report.to_the_end(), progress("hardships", len(options.only)) as bar:
        for name in options.only:
            with tempfile.TemporaryDirectory(prefix="holdfast-hardship-") as folder:
                run(report, name, Path(folder))
            bar.step()
    return report.finish()


def run(report: Report, name: str, folder: Path) -> None:
    """Run one trial and record its problems."""
    try:
        problems = TRIALS[name](folder)
    except Skipped as why:
        print(f"SKIPPED {name}: {why}", file=sys.stderr)
        report.count(f"{name}: skipped")
        return
    except Exception as error:  # noqa: BLE001 - recorded, and the next one runs
        report.failed(name, error)
        problems = []
    report.count(name)
    for problem in problems:
        report.problem(f"{name}: {problem}")


if __name__ == "__main__":
    sys.exit(main())
