"""``python -m trials.soak``: many processes on one store for a time, with a server."""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from holdfast import Session, open_state_store
from trials.backends import BACKENDS, start_backend
from trials.processes import clean_up_on_sigterm
from trials.report import Report, progress
from trials.soak.check import check_store
from trials.soak.memory import LONG_ENOUGH, MEGABYTE, Memory
from trials.soak.notes import location_of, session_id_of
from trials.soak.viewer import watch
from trials.soak.worker import Job, RoundResult, work

THIRDS = ("first", "middle", "last")
SLOWEST = 60.0
"""Seconds that an operation may still take when its round is over."""
SPAWN = multiprocessing.get_context("spawn")


def main() -> int:
    """Run the trial and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for each backend")
    parser.add_argument(
        "--backend", nargs="+", choices=BACKENDS, default=["sqlite", "postgresql", "redis"]
    )
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--sessions", type=int, default=20, help="that are worked on at one time")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    asked = parser.parse_args()
    clean_up_on_sigterm()
    codes = []
    for backend in asked.backend:
        with tempfile.TemporaryDirectory() as folder, start_backend(backend, Path(folder)) as url:
            report = soak_store(
                url,
                Path(folder),
                name=backend,
                seconds=asked.seconds,
                processes=asked.processes,
                sessions=asked.sessions,
                seed=asked.seed,
            )
            codes.append(report.finish())
    return max(codes)


def soak_store(
    url: str,
    folder: Path,
    *,
    name: str,
    seconds: float,
    processes: int,
    sessions: int,
    seed: int,
) -> Report:
    """Run everything on one store."""
    report = Report(f"soak, {name}, {processes} processes, seed {seed}")
    with report.to_the_end():
        asyncio.run(begin(url))
        with ExitStack() as stack:
            server, address = stack.enter_context(start_server(url, folder, report))
            crew = {
                f"worker {number}": stack.enter_context(
                    start_process(work, Job(url, str(folder), number, sessions, seed))
                )
                for number in range(processes)
            }
            crew["viewer"] = stack.enter_context(start_process(watch, address, seed))
            pids = {who: process.pid or 0 for who, (process, _) in crew.items()}
            memory = Memory({**pids, "server": server.pid})
            lines = {who: line for who, (_, line) in crew.items()}
            with progress(name, seconds) as bar:
                for _ in THIRDS:
                    for result in run_round(lines, seconds / 3, memory):
                        report.merge(result.counts, result.problems)
                    found = check_store(url, folder)
                    report.merge({}, found.problems)
                    bar.step(seconds / 3)
        report.merge(found.counts, [])
        for who, medians in memory.medians():
            for third, size in list(zip(THIRDS, medians, strict=True))[1:]:
                report.count(f"MB of the {who} in the {third} third", round(size / MEGABYTE))
        if seconds >= LONG_ENOUGH:
            report.merge({}, list(memory.problems()))
    return report


async def begin(url: str) -> None:
    """Create the store, so that the server finds one."""
    location = location_of(session_id_of(0, 0))
    async with (
        open_state_store(url) as store,
        Session.open(store, agent_id=location.scope_id, session_id=location.session_id) as session,
    ):
        session.status = "running"


def run_round(
    lines: dict[str, Connection], seconds: float, memory: Memory
) -> Iterator[RoundResult]:
    """Run one round; return the results, and the names of processes that did not respond."""
    for line in lines.values():
        line.send(seconds)
    end = time.monotonic() + seconds
    memory.watch(lambda: time.monotonic() > end)
    silent = []
    for who, line in lines.items():
        result = answer(line, end + SLOWEST)
        if result is None:
            silent.append(who)
        else:
            yield result
    if silent:
        after = f"{SLOWEST:.0f} seconds after their round"
        raise TimeoutError(f"{', '.join(silent)}: ended, or not done {after}")


def answer(line: Connection, until: float) -> RoundResult | None:
    """Return the result of a process, or None if it ended or timed out."""
    try:
        if line.poll(max(0.0, until - time.monotonic())):
            result: RoundResult = line.recv()
            return result
    except (EOFError, ConnectionError):
        return None
    return None


@contextmanager
def start_process(target: Any, *args: Any) -> Iterator[tuple[BaseProcess, Connection]]:
    """Run a process with a connection to it, and end it afterwards."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(*args, there), daemon=True)
    process.start()
    there.close()
    with closing(here), closing(process):
        try:
            yield process, here
            here.send(None)
            process.join(SLOWEST)
        finally:
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def start_server(
    url: str, folder: Path, report: Report
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Run ``holdfast serve`` and yield its address; it must exit without logging an error."""
    log = folder / "serve.log"
    command = [sys.executable, "-m", "holdfast", "serve", "--store", url, "--port", "0"]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=output)
    with process:
        try:
            yield process, read_address(log, process)
            process.send_signal(signal.SIGTERM)
            code = process.wait(SLOWEST)
        finally:
            process.kill()
    if code:
        report.problem(f"the server ended with {code}")
    failures = log.read_text().count("Traceback")
    if failures:
        report.problem(f"the server's log has {failures} tracebacks")


def read_address(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address that the server prints."""
    end = time.monotonic() + SLOWEST
    while process.poll() is None and time.monotonic() < end:
        found = re.search(r"http://[\d.]+:\d+", log.read_text())
        if found:
            return found[0]
        time.sleep(0.05)
    raise RuntimeError(f"the server did not start: {log.read_text()}")


if __name__ == "__main__":
    sys.exit(main())
