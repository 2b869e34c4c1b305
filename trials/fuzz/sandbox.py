"""Limits for one input: processor time, memory, and what may be opened, imported and run.

The interpreter reports every import, file, process and connection to an audit hook. Readers import
some modules late and read their own files; anything else fails the trial, and is prevented where it
could do harm.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 2.0
"""Processor time per input; wall-clock time means little on a shared machine."""
WAIT = 60.0
"""Wall-clock time per input, for readers that wait for something."""
MEMORY = 1 << 30
"""Bytes that readers may allocate beyond what the process uses already."""

RUNS = ("exec", "compile", "marshal.loads", "pickle.find_class", "ctypes.dlopen")
IMPORTING = ("<frozen importlib._bootstrap>", typing.__file__)
"""Code that compiles and runs on its own account: late imports, and annotations."""
STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "pty.spawn")
CONNECTS = ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.gethostbyname")
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod")
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class TimeIsUp(BaseException):
    """The input took too long. Not an Exception, so that no reader catches it."""


class Sandbox:
    """Confines readers to one folder while they read an input."""

    def __init__(self, folder: Path) -> None:
        self.violations: list[str] = []
        self._active = False
        self._data = ""
        self._writable = (str(folder.resolve()),)
        prefixes = (sys.prefix, sys.base_prefix)
        libraries = {*prefixes, *(str(Path(each).resolve()) for each in prefixes)}
        source = str(Path(__file__).resolve().parents[2])
        self._readable = (*self._writable, *libraries, source, "/usr/share/zoneinfo", "/usr/lib")
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, raise_time_is_up)
        signal.signal(signal.SIGALRM, raise_time_is_up)

    @contextmanager
    def guard(self, data: object) -> Iterator[None]:
        """Apply the limits while an input is read.

        Raises:
            AssertionError: The reader exceeded one of them.

        """
        self.violations.clear()
        self._data = repr(data)
        self._active = True
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.setitimer(signal.ITIMER_REAL, WAIT)
        try:
            yield
        except TimeIsUp as error:
            raise AssertionError(f"took more than {SECONDS} s") from error
        finally:
            self._active = False
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert not self.violations, self.violations[0]

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self._active:
            return
        if event == "import":
            if arguments[0] in self._data:
                self.violations.append(f"import {arguments[0]}")
        elif event in RUNS:
            if not is_importing():
                self.violations.append(f"{event} {str(arguments[:1])[:80]}")
        elif event in STARTS or event in CONNECTS:
            self._refuse(event, arguments)
        elif event in CHANGES:
            if not is_below(arguments[0], self._writable):
                self._refuse(event, arguments)
        elif event in ("open", "sqlite3.connect") and arguments[0] not in (":memory:", b":memory:"):
            mode, flags = arguments[1:3] if event == "open" else (None, 0)
            writes = set("wax+") & set(mode or "") or (flags or 0) & WRITE_FLAGS
            if not is_below(arguments[0], self._writable if writes else self._readable):
                self._refuse(event, arguments)

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        self.violations.append(f"{event} {str(arguments)[:160]}")
        raise PermissionError(self.violations[-1])


def raise_time_is_up(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - a signal handler
    """Interrupt the reader."""
    raise TimeIsUp


def limit_memory() -> None:
    """Make an allocation beyond `MEMORY` raise ``MemoryError``."""
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def is_below(path: Any, folders: tuple[str, ...]) -> bool:
    """Return whether a path, or the file of a descriptor, is in one of the folders."""
    if isinstance(path, int):
        return True  # opened before
    text = os.fsdecode(path).removeprefix("file:").partition("?")[0]
    return os.path.abspath(text).startswith(folders)  # noqa: PTH100 - a text of any bytes


def is_importing() -> bool:
    """Return whether a module is being imported, or an annotation evaluated."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename not in IMPORTING:
        frame = frame.f_back
    return frame is not None
