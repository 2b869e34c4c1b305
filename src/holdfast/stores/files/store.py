"""One file a key, in folders that mirror the keys: to be read, searched, kept in version control.

A file holds the value's bytes and nothing else. It is written under a unique name, synced, renamed
into its place, and its folder synced: a reader sees the old value or the new one, whole, and what
was acknowledged survives a power cut. Conditions hold between processes by locks on files
(``flock``), which end with the process that held them, however it ends.

    <root>/sessions.~/ses_1.~/log.~/000000000001.json    names as in naming.py
    <root>/~holdfast/locks/00 … 3f                       a key's lock, by its hash
    <root>/~holdfast/writing/3f-<unique>                 a value on its way, under the lock 3f

So whatever lies in ``writing`` while nobody holds its lock was left by a writer who died. A name
that would be longer than a file system takes is cut and hashed, and the whole of it kept beside it.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from typing import TypeVar

from holdfast.errors import StateStoreError
from holdfast.process_fork import ForkAware
from holdfast.stores.backend import Backend, check_condition, etag_mismatch_error, new_etag
from holdfast.stores.base import Entry, Put
from holdfast.stores.files.tree import FileTree, is_shortened
from holdfast.stores.local import explain_os_error, sync_descriptor
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

try:
    import fcntl
except ImportError as missing:
    raise StateStoreError(
        "a store of files needs the file locks of Linux or macOS, which this system has not: "
        "use sqlite:///state.db"
    ) from missing

T = TypeVar("T")

TIMEOUT = 30.0
LOCKS = 64
THREADS = 8
INTERNAL_FOLDER = "~holdfast"  # no key has this name
LEFT = re.compile(r"([0-9a-f]{2})-[0-9a-f]{16}")
SHARED = "names"  # the lock for names that were cut, of which several keys may share one
EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB


class FileLocks(ForkAware):
    """The file locks that this process holds, by their descriptors.

    A lock belongs to what was opened, and a forked child has that open too: closing the descriptor
    here would leave the lock to the child. So it is released by name, and a child closes what it
    inherits, lest it keep the lock of a parent that was killed.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._descriptors: set[int] = set()
        super().__init__()

    def take(self, name: str, folder: int) -> int | None:
        """Take the lock of this name in a folder; None where another holds it."""
        with self._guard:
            create = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(name, create, 0o666, dir_fd=folder)
            self._descriptors.add(descriptor)
        try:
            fcntl.flock(descriptor, EXCLUSIVE)
        except BaseException as error:
            self._close(descriptor)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return descriptor

    def release(self, descriptor: int) -> None:
        """Give a lock back."""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            self._close(descriptor)

    def _close(self, descriptor: int) -> None:
        with self._guard:
            self._descriptors.discard(descriptor)
            os.close(descriptor)

    def before_fork(self, end: float) -> None:  # noqa: ARG002 - it takes no time
        """Let no descriptor be opened or closed until the fork is done."""
        self._guard.acquire()

    def after_fork_in_parent(self) -> None:
        """Go on."""
        self._guard.release()

    def after_fork_in_child(self) -> None:
        """Close what belongs to the parent, which leaves it its locks."""
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors.clear()
        self._guard.release()


FILE_LOCKS = FileLocks()


class FileStateStore(Backend):
    """Keeps each value in a file of its own below one folder, made on the first write.

    Durable at every acknowledged write. ``put_many`` writes in order, one after another. For local
    disks: locks on network file systems may not hold. Symbolic links are not followed. ``timeout``
    is how long to wait for another process's lock, in seconds.
    """

    def __init__(self, root: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self._root = Path(root).absolute()
        self.place = f"file://{self._root}"
        self._timeout = timeout
        self._tree = FileTree(self._root)
        self._prepared = False
        self._begin()

    def _begin(self) -> None:
        """Threads of this process: a parent's do not survive a fork, and neither do its locks."""
        self._process = os.getpid()
        self._readers = ThreadPoolExecutor(THREADS, "holdfast-files-read")
        self._writers = ThreadPoolExecutor(THREADS, "holdfast-files-write")
        # Those of this process wait for each other here, and only one of them for other processes.
        self._turns = {name: Lock() for name in (*map(lock_name, range(LOCKS)), SHARED)}

    async def _get(self, key: str) -> Entry | None:
        return await self._run(lambda _: self._entry(key))

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        def read(_: Event) -> dict[str, Entry]:
            entries = {key: self._entry(key) for key in keys}
            return {key: entry for key, entry in entries.items() if entry is not None}

        return await self._run(read)

    async def _put(self, put: Put) -> str:
        def write(abandoned: Event) -> str:
            self._prepare()
            with self._locked(put.key, abandoned) as lock:
                if put.if_absent or put.if_match is not None:
                    entry = self._entry(put.key)
                    check_condition(put, None if entry is None else entry.etag)
                return self._write(put, lock)

        return await self._run(write, writes=True)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        def remove(abandoned: Event) -> bool:
            if not self._root.exists():
                entry = None
            else:
                self._prepare()
                with self._locked(key, abandoned):
                    entry = self._entry(key)
                    if entry is not None and if_match in (None, entry.etag):
                        self._tree.remove(key)
            found = None if entry is None else entry.etag
            if if_match is not None and if_match != found:
                raise etag_mismatch_error(key, if_match, found)
            return entry is not None

        return await self._run(remove, writes=True)

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        return await self._run(lambda _: list(islice(self._tree.keys(span), count)))

    async def _close(self) -> None:
        def close() -> None:
            self._readers.shutdown()
            self._writers.shutdown()

        await asyncio.to_thread(close)

    async def _run(self, work: Callable[[Event], T], *, writes: bool = False) -> T:
        """Do it in a thread, which is told when nobody waits for it any more."""
        abandoned = Event()

        def run() -> T:
            try:
                return work(abandoned)
            except OSError as error:
                raise explain_os_error(error, self.place) from error

        if self._process != os.getpid():
            self._begin()
        threads = self._writers if writes else self._readers
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, run)
        except asyncio.CancelledError:
            abandoned.set()
            raise
        except RuntimeError:
            self._check_open()  # it was closed by another thread in this moment
            raise

    def _entry(self, key: str) -> Entry | None:
        with self._tree.opened(key) as descriptor:
            if descriptor is None:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                value = file.read()
            return Entry(value, compute_etag(descriptor, value))

    def _write(self, put: Put, lock: str) -> str:
        temporary = f"{lock}-{new_etag()}"
        with self._tree.inside(INTERNAL_FOLDER, "writing") as writing:
            create = os.O_WRONLY | os.O_CREAT | os.O_EXCL
            descriptor = os.open(temporary, create, 0o666, dir_fd=writing)
            try:
                try:
                    with open(descriptor, "wb", closefd=False) as file:
                        file.write(put.value)
                    sync_descriptor(descriptor)
                    etag = compute_etag(descriptor, put.value)
                finally:
                    os.close(descriptor)
                self._tree.place(put.key, writing, temporary)
            except BaseException:
                with suppress(FileNotFoundError):
                    os.unlink(temporary, dir_fd=writing)
                raise
        return etag

    @contextmanager
    def _locked(self, key: str, abandoned: Event) -> Iterator[str]:
        """Hold the lock of a key, against threads and processes; its name."""
        name = lock_name(hashlib.sha256(key.encode()).digest()[0])
        with ExitStack() as held:
            for lock in (name, SHARED) if is_shortened(key) else (name,):
                held.enter_context(self._waited_for(lock, abandoned))
            yield name

    @contextmanager
    def _waited_for(self, name: str, abandoned: Event) -> Iterator[None]:
        end = time.monotonic() + self._timeout
        while not self._turns[name].acquire(timeout=0.05):
            self._check_waiting(name, end, abandoned)
        try:
            pause = 0.0002
            while (descriptor := self._taken(name)) is None:
                self._check_waiting(name, end, abandoned)
                time.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            try:
                if abandoned.is_set():
                    raise self._locked_out(name)
                yield
            finally:
                FILE_LOCKS.release(descriptor)
        finally:
            self._turns[name].release()

    def _check_waiting(self, name: str, end: float, abandoned: Event) -> None:
        if abandoned.is_set() or time.monotonic() > end:
            raise self._locked_out(name)

    def _locked_out(self, name: str) -> StateStoreError:
        return StateStoreError(
            f"{self.place}: another process holds the lock {INTERNAL_FOLDER}/locks/{name}: try again, or "
            "wait longer with ?timeout=",
            transient=True,
        )

    def _taken(self, name: str) -> int | None:
        """A lock, held until this descriptor is released; None where another holds it."""
        with self._tree.inside(INTERNAL_FOLDER, "locks") as locks:
            return FILE_LOCKS.take(name, locks)

    def _prepare(self) -> None:
        """The folders, and nothing left in them by writers who died."""
        if self._prepared:
            return
        with self._tree.inside(INTERNAL_FOLDER, "locks", make=True):
            pass
        with self._tree.inside(INTERNAL_FOLDER, "writing", make=True) as writing:
            for left in filter(None, map(LEFT.fullmatch, os.listdir(writing))):  # noqa: PTH208
                held = self._taken(left[1])
                if held is None:
                    continue  # its writer is alive
                with suppress(FileNotFoundError):
                    os.unlink(left[0], dir_fd=writing)
                FILE_LOCKS.release(held)
        self._prepared = True


def lock_name(number: int) -> str:
    """The name of a key's lock, by any number of it."""
    return f"{number % LOCKS:02x}"


def compute_etag(descriptor: int, value: bytes) -> str:
    """An etag of a file: of its content, and of this very file, as equal values are two writes."""
    status = os.fstat(descriptor)
    digest = hashlib.sha256(value).hexdigest()[:16]
    return f"{digest}-{status.st_ino:x}-{status.st_mtime_ns:x}"


def open_url(url: StoreURL) -> FileStateStore:
    """``file:///var/lib/agents``, or ``file:agents`` in the working folder."""
    if url.parts.netloc not in ("", "localhost") or not url.path:
        raise StateStoreError(
            f"{url} names no folder: three slashes and an absolute path, as in "
            "file:///var/lib/agents, or none and a path in the working folder, as in file:agents"
        )
    store = FileStateStore(url.path, timeout=url.take_number("timeout", TIMEOUT))
    url.reject_unknown_options(("timeout",))
    return store
