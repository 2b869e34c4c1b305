"""The process that is killed, forked from one that has imported everything.

Importing Holdfast takes a second, and a fork some milliseconds. `Worker` starts one process per
trial and sends it orders over stdin, one line of JSON each. It has a single thread, so a fork is
safe. A fork reports through its ledger only.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from trials.kills.kinds import KINDS
from trials.kills.stores import ROOT
from trials.kills.tasks import Task
from trials.processes import die_with
from trials.tokens import Ledger

PATIENCE = 60.0
"""Seconds after which a worker without progress counts as stuck."""


class Worker:
    """Handle of the forking process."""

    def __init__(self) -> None:
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trials.kills.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        )
        self._pid = 0

    def start(self, task: Task) -> None:
        """Fork a worker for a task."""
        self._pid = self._ask({"start": asdict(task)})["pid"]

    def wait_for(self, ledger: Path, begun: int, *, done: int = 0) -> bool:
        """Wait until this many operations have started and returned; return False on timeout."""
        victim = psutil.Process(self._pid)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and victim.status() != psutil.STATUS_ZOMBIE:
            notes = ledger.read_bytes() if ledger.exists() else b""
            if notes.count(b"begun work ") >= begun and notes.count(b"done work ") >= done:
                return True
            time.sleep(0.0003)
        return False

    def kill(self) -> str | None:
        """Kill the worker; return why it had ended before, if it had."""
        os.kill(self._pid, signal.SIGKILL)  # safe: the pid was not waited for yet
        ended = self._ask({"wait": self._pid})["status"]
        if os.WIFSIGNALED(ended) and os.WTERMSIG(ended) == signal.SIGKILL:
            return None
        return f"it had ended by itself, with status {os.waitstatus_to_exitcode(ended)}"

    def _ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process, and its worker."""
        try:
            self._process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def serve() -> None:
    """Obey orders until stdin ends, then kill a worker that was not waited for."""
    victim = 0
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if "start" in order:
                victim = fork(Task(**order["start"]))
                answer = {"pid": victim}
            else:
                answer = {"status": os.waitpid(order["wait"], 0)[1]}
                victim = 0
            print(json.dumps(answer), flush=True)
    finally:
        if victim:
            os.kill(victim, signal.SIGKILL)
            os.waitpid(victim, 0)


def fork(task: Task) -> int:
    """Fork a worker; return its pid."""
    worker = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with(worker)
        KINDS[task.kind].work(task, Ledger(Path(task.ledger)))
    except BaseException:  # noqa: BLE001 - printed, and the process ends
        os.write(2, f"{task.kind} {task.number}: {traceback.format_exc()}\n".encode())
    os._exit(1)


if __name__ == "__main__":
    serve()
