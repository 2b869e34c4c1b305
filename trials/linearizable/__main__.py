"""``python -m trials.linearizable``: record histories on every backend, and check them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from trials.backends import BACKENDS, start_backend
from trials.linearizable.checker import Link, Operation, problems_in
from trials.linearizable.history import START, pool, record_history
from trials.processes import clean_up_on_sigterm
from trials.report import Report, progress


def main() -> int:
    """Run the trial and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.linearizable", description=__doc__)
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--seconds", type=float, default=20, help="for each backend")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--clients", type=int, default=2, help="in each process")
    parser.add_argument("--each", type=float, default=2, help="seconds on one session")
    asked = parser.parse_args()
    clean_up_on_sigterm()
    codes = [
        try_backend(backend, asked.seconds, asked.each, asked.processes, asked.clients).finish()
        for backend in asked.backend
    ]
    return max(codes)


def try_backend(backend: str, seconds: float, each: float, processes: int, clients: int) -> Report:
    """Try one backend: one session after another, each checked before the next starts."""
    report = Report(f"linearizability of the head, {backend}")
    sessions = max(1, round(seconds / each))
    with (
        report.to_the_end(),
        tempfile.TemporaryDirectory() as folder,
        start_backend(backend, Path(folder)) as url,
        pool(processes) as workers,
        progress(backend, sessions) as bar,
    ):
        for number in range(sessions):
            calls, log = record_history(
                workers, url, f"ses_{number}", processes=processes, clients=clients, seconds=each
            )
            count(report, calls, log)
            report.merge({}, [f"session {number}: {why}" for why in problems_in(calls, log, START)])
            bar.step()
        workers.close()
        workers.join()
    return report


def count(report: Report, calls: list[Operation], log: list[Link]) -> None:
    """Count the calls of a history by kind and result."""
    written = {link.token for link in log}
    report.count("sessions")
    kinds: Counter[str] = Counter()
    for call in calls:
        if call.kind == "read":
            kinds["reads of the head"] += 1
        elif call.outcome == "unknown":
            kinds[f"commits cancelled, {'' if call.token in written else 'not '}written"] += 1
        elif call.outcome == "conflict":
            kinds["commits given up" if call.expected is None else "commits refused"] += 1
        else:
            kinds["commits on any head" if call.expected is None else "commits on one head"] += 1
    for name in sorted(kinds):
        report.count(name, kinds[name])


if __name__ == "__main__":
    sys.exit(main())
