"""``python -m trials.linearizable``: histories of every backend, and what the checker says."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from trials.ending import clean_up_on_sigterm
from trials.linearizable.checker import Link, Operation, problems_in
from trials.linearizable.recording import START, history_of, pool
from trials.places import BACKENDS, place
from trials.report import Report, progress


def main() -> int:
    """Run it; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.linearizable", description=__doc__)
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--seconds", type=float, default=20, help="for each backend")
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--clients", type=int, default=2, help="in each process")
    parser.add_argument("--each", type=float, default=2, help="seconds on one session")
    asked = parser.parse_args()
    clean_up_on_sigterm()
    codes = [
        tried(backend, asked.seconds, asked.each, asked.processes, asked.clients).finish()
        for backend in asked.backend
    ]
    return max(codes)


def tried(backend: str, seconds: float, each: float, processes: int, clients: int) -> Report:
    """One backend: a session after the other, each checked before the next begins."""
    report = Report(f"linearizability of the head, {backend}")
    sessions = max(1, round(seconds / each))
    with (
        report.to_the_end(),
        tempfile.TemporaryDirectory() as folder,
        place(backend, Path(folder)) as url,
        pool(processes) as workers,
        progress(backend, sessions) as bar,
    ):
        for number in range(sessions):
            told, log = history_of(
                workers, url, f"ses_{number}", processes=processes, clients=clients, seconds=each
            )
            count(report, told, log)
            report.merge({}, [f"session {number}: {why}" for why in problems_in(told, log, START)])
            bar.step()
        workers.close()
        workers.join()
    return report


def count(report: Report, told: list[Operation], log: list[Link]) -> None:
    """Say what a history was made of."""
    written = {link.token for link in log}
    report.count("sessions")
    kinds: Counter[str] = Counter()
    for call in told:
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
