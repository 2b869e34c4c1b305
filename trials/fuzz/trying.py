"""One input, tried: what came of it, and whether everything was kept that every reader promises.

A reader takes an input, or refuses it with one of the errors that its target names, in a message
that fits on a screen. Meanwhile it opens, imports, runs and connects to nothing: `Watch` is told of
all that by the interpreter, and keeps it from being done outside of the trial's folder.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import FrameType
from typing import Any

from hypothesis.strategies import SearchStrategy

from holdfast import HoldfastError, InvalidDocumentError, UnsupportedValueError

LONGEST_MESSAGE = 2000
SECONDS = 2.0
"""Of the processor, for one input: those of the clock say nothing on a shared machine."""

ACCEPTED, REFUSED, PROBLEM = "accepted", "refused", "problems"


class Wrong(Exception):
    """A reader took an input, and broke a promise."""


class TooSlow(BaseException):
    """The time of one input is over. No reader takes it for an error of its own."""


class Target(ABC):
    """Something that reads. Every input is bytes, so that it can be kept in a file."""

    name: str
    folder: Path
    """For its files."""
    refusals: tuple[type[HoldfastError], ...] = (InvalidDocumentError, UnsupportedValueError)
    longest_message: int = LONGEST_MESSAGE

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    @abstractmethod
    def corpus(self) -> Sequence[bytes]:
        """Real inputs, all of which are accepted."""

    @abstractmethod
    def mutated(self, rng: Random) -> bytes:
        """A real input with damage."""

    @abstractmethod
    def made_up(self) -> SearchStrategy[bytes]:
        """Inputs of about the right shape."""

    @abstractmethod
    def attempt(self, data: bytes) -> None:
        """Read it, and check what was read. Raises a refusal, or `Wrong`."""

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Give back what it holds."""


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of an input; where it was a problem, in a few words, and where it arose."""

    outcome: str
    problem: str = ""
    place: str = ""


def tried(target: Target, data: bytes, watch: Watch) -> Tried:
    """Try one input."""
    with watch.watching(data), limited():
        found = outcome_of(target, data)
    if watch.seen:
        return Tried(PROBLEM, f"it had something done: {watch.seen[0]}", watch.seen[0][:60])
    return found


def outcome_of(target: Target, data: bytes) -> Tried:
    """What comes of an input, whatever that is."""
    try:
        target.attempt(data)
    except target.refusals as error:
        message = str(error)
        if len(message) > target.longest_message:
            place = f"long {type(error).__name__} {place_of(error)}"
            return Tried(PROBLEM, f"a message of {len(message):,}: {error!r:.300}", place)
        return Tried(REFUSED)
    except Wrong as error:
        return Tried(PROBLEM, str(error)[:600], str(error)[:40])
    except TooSlow as error:
        return Tried(PROBLEM, f"it took more than {SECONDS} s", f"slow {place_of(error)}")
    except (Exception, RecursionError) as error:  # noqa: BLE001 - this is what is looked for
        return Tried(PROBLEM, f"{type(error).__name__}: {error}"[:600], place_of(error))
    return Tried(ACCEPTED)


def place_of(error: BaseException) -> str:
    """The kind of an error and the innermost line of Holdfast that it came through."""
    places = [
        (frame.f_code.co_filename, at) for frame, at in traceback.walk_tb(error.__traceback__)
    ]
    name, line = ([each for each in places if "holdfast" in each[0]] or places)[-1]
    return f"{type(error).__name__} at {Path(name).name}:{line}"


@contextmanager
def limited() -> Iterator[None]:
    """A bound on the time that one input takes of the processor."""

    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


# ------------------------------------------------------------------------------------ watching

RUNS = ("exec", "compile", "marshal.loads", "pickle.find_class", "ctypes.dlopen")
"""Of these, the first three are also how a module is imported, and an annotation resolved."""
THEIR_OWN = ("<frozen importlib._bootstrap>", typing.__file__)
STARTS = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen", "pty.spawn")
CONNECTS = ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.gethostbyname")
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.chmod")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass
class Watch:
    """Told by the interpreter of all that is run, opened and connected to."""

    folder: Path
    """What is done in here is the trial's own business."""
    seen: list[str] = field(default_factory=list)
    active: bool = False
    data: bytes = b""

    def __post_init__(self) -> None:
        self._ours = str(self.folder.resolve())
        libraries = {str(Path(each).resolve()) for each in (sys.prefix, sys.base_prefix)}
        source = str(Path(__file__).resolve().parents[2])
        self._readable = (self._ours, *libraries, source, "/usr/share/zoneinfo", "/usr/lib")
        sys.addaudithook(self._told)

    @contextmanager
    def watching(self, data: bytes) -> Iterator[None]:
        """While an input is read."""
        self.seen.clear()
        self.data = data
        self.active = True
        try:
            yield
        finally:
            self.active = False

    def _told(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.active:
            return
        if event == "import":
            # Readers import some modules late; none that has its name from the data.
            if str(arguments[0]).encode() in self.data:
                self.seen.append(f"import {arguments[0]}")
        elif event in RUNS:
            if not is_preparing():
                self.seen.append(f"{event} {str(arguments[:1])[:80]}")
        elif event in STARTS or event in CONNECTS:
            self._refuse(event, arguments)
        elif event in CHANGES:
            if not self._is_ours(arguments[0]):
                self._refuse(event, arguments)
        elif event in ("open", "sqlite3.connect"):
            self._opened(event, arguments)

    def _opened(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = arguments[0]
        if isinstance(path, int) or path in (":memory:", b":memory:"):
            return
        mode, flags = arguments[1:3] if event == "open" else (None, 0)
        writes = bool(mode and set("wax+") & set(mode)) or bool((flags or 0) & WRITING)
        if self._is_ours(path) or (not writes and self._is_below(path, self._readable)):
            return
        self._refuse(event, (path,))

    def _is_ours(self, path: object) -> bool:
        return self._is_below(path, (self._ours,))

    def _is_below(self, path: object, folders: tuple[str, ...]) -> bool:
        if isinstance(path, int):
            return True  # what was opened already
        text = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else str(path)
        text = text.removeprefix("file:").partition("?")[0]
        return os.path.abspath(text).startswith(folders)  # noqa: PTH100 - a text, of any bytes

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        told = f"{event} {str(arguments)[:160]}"
        self.seen.append(told)
        raise PermissionError(f"the trial does not allow {told}")


def is_preparing() -> bool:
    """Whether what runs now imports a module late, or makes out what its annotations mean."""
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename not in THEIR_OWN:
        frame = frame.f_back
    return frame is not None
