"""What all servers share: a process with a log, its ports, kill and restart."""

from __future__ import annotations

import fcntl
import functools
import importlib
import os
import random
import signal
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest


def needs(*modules: str) -> None:
    """Skip the test if a package is missing; in CI, fail."""
    for module in modules:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings of other packages are not tested here
                importlib.import_module(module)
        except ImportError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"{module} is not installed ({error}): make .venv/tools brings it")


def free_port(also: int = 0) -> int:
    """Return a free local port; with ``also``, port + also is free too.

    It is reserved for this process while that lives, even if no server listens on it yet.
    """
    while True:
        # Below the range of ephemeral ports. Tests may seed `random`.
        port = random.SystemRandom().randrange(12_000, 22_000)
        if is_free(port) and (not also or is_free(port + also)) and is_ours(port):
            return port


@functools.cache
def taken() -> tuple[int, set[int]]:
    """Return a file in which processes lock their ports, and the ports of this one."""
    name = Path(tempfile.gettempdir(), f"holdfast-ports-of-{os.getuid()}")
    return os.open(name, os.O_RDWR | os.O_CREAT, 0o600), set()


def is_ours(port: int) -> bool:
    """Return whether a port could be reserved for this process."""
    file, ours = taken()
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError:
        return False
    is_new = port not in ours
    ours.add(port)
    return is_new


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def answers(port: int) -> bool:
    """Return whether a server accepts connections."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Server:
    """A local server process. Subclasses define ``command`` and ``ready``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        raise NotImplementedError

    def ready(self) -> bool:
        raise NotImplementedError

    def start(self) -> None:
        log = self.folder / "server.log"
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                start_new_session=True,
            )
        wait_until(self.ready, f"{type(self).__name__} is not ready; its log is {log}", self.alive)

    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """Kill it, as a power cut does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        if self.process is None:
            return
        if self.process.poll() is None:
            os.killpg(self.process.pid, number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
        self.process = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self.stop()


def wait_until(
    done: Callable[[], bool],
    problem: str,
    alive: Callable[[], bool] = lambda: True,
    seconds: float = 30,
) -> None:
    """Wait for a condition, until a timeout or the death of the process."""
    end = time.monotonic() + seconds
    while not done():
        if not alive() or time.monotonic() > end:
            raise AssertionError(problem)
        time.sleep(0.05)
