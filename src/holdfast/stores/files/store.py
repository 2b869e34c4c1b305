"""One file per key, in folders that mirror the keys: readable, searchable, versionable.

A file contains the value and nothing else. It is written under a unique name, synced, renamed, and
its folder synced: a reader sees the old or the new value, never part of one, and an acknowledged
write survives a power failure. Conditions hold between processes because of file locks, which end
with their process, however it ends.

    <root>/sessions.~/ses_1.~/log.~/000000000001.json    names as in name_encoding.py
    <root>/~holdfast/locks/00 … 3f                       the lock of a key, by its hash
    <root>/~holdfast/writing/3f-<unique>                 a value being written, under lock 3f

So a file in ``writing`` whose lock is free was left by a writer that died. A name that is too long
for a file system is shortened and hashed, and the full name stored in a file next to it.
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
from holdfast.stores.backend import Backend, check_condition, etag_mismatch_error, new_etag
from holdfast.stores.base import Condition, Entry, Put
from holdfast.stores.files.locks import FILE_LOCKS
from holdfast.stores.files.tree import FileTree, is_shortened
from holdfast.stores.local import RUN_INLINE, explain_os_error, sync_descriptor
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

T = TypeVar("T")

TIMEOUT = 30.0
LOCK_NAMES = [f"{number:02x}" for number in range(64)]
MAX_FILES = 64  # of a batch that are locked at once
THREADS = 8
INTERNAL_FOLDER = "~holdfast"  # not the name of any key
TEMPORARY_FILE = re.compile(r"([0-9a-f]{2})-[0-9a-f]{16}")
NAMES_LOCK = "names"  # for shortened names, whose full-name files several keys may share


class FileStateStore(Backend):
    """A store with one file per key below a folder, which is created on the first write.

    Every acknowledged write is durable. ``put_many`` writes in order. For local disks only: locks
    may not work on network file systems. Symbolic links are not followed. ``timeout`` is how long
    to wait for another process's lock, in seconds.
    """

    runs_inline = True
    is_local = True

    def __init__(self, root: str | os.PathLike[str], *, timeout: float = TIMEOUT) -> None:
        self._root = Path(root).absolute()
        self.display_url = f"file://{self._root}"
        self._timeout = timeout
        self._tree = FileTree(self._root)
        self._prepared = False
        self._start_threads()

    def _start_threads(self) -> None:
        """Create threads and thread locks; a parent's do not survive a fork."""
        self._process = os.getpid()
        self._readers = ThreadPoolExecutor(THREADS, "holdfast-files-read")
        self._writers = ThreadPoolExecutor(THREADS, "holdfast-files-write")
        # Threads of this process wait for each other here; only one waits for other processes.
        self._thread_locks = {name: Lock() for name in (*LOCK_NAMES, NAMES_LOCK)}

    async def _get(self, key: str) -> Entry | None:
        return await self._run(lambda _: self._read(key))

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        def read(_: Event) -> dict[str, Entry]:
            entries = {key: self._read(key) for key in keys}
            return {key: entry for key, entry in entries.items() if entry is not None}

        return await self._run(read)

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(
        self,
        puts: Sequence[Put],
        conditions: Sequence[Condition] = (),  # noqa: ARG002 - it has none
    ) -> list[str]:
        def write(abandoned: Event) -> list[str]:
            self._prepare()
            etags: list[str] = []
            for start in range(0, len(puts), MAX_FILES):
                etags += self._write(puts[start : start + MAX_FILES], abandoned)
            return etags

        return await self._run(write, writes=True)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        def delete(abandoned: Event) -> bool:
            if not self._root.exists():
                entry = None
            else:
                self._prepare()
                with self._lock_keys([key], abandoned):
                    entry = self._read(key)
                    if entry is not None and if_match in (None, entry.etag):
                        self._tree.remove(key)
            etag = None if entry is None else entry.etag
            if if_match is not None and if_match != etag:
                raise etag_mismatch_error(key, if_match, etag)
            return entry is not None

        return await self._run(delete, writes=True)

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        return await self._run(lambda _: list(islice(self._tree.keys(key_range), count)))

    async def _close(self) -> None:
        def close() -> None:
            self._readers.shutdown()
            self._writers.shutdown()

        await asyncio.to_thread(close)

    async def _run(self, work: Callable[[Event], T], *, writes: bool = False) -> T:
        """Run work in a thread. Its argument is set if the caller is cancelled."""
        abandoned = Event()

        def run() -> T:
            try:
                return work(abandoned)
            except OSError as error:
                raise explain_os_error(error, self.display_url) from error

        if self._process != os.getpid():
            self._start_threads()
        if RUN_INLINE.get():
            return run()
        threads = self._writers if writes else self._readers
        try:
            return await asyncio.get_running_loop().run_in_executor(threads, run)
        except asyncio.CancelledError:
            abandoned.set()
            raise
        except RuntimeError:
            self._check_open()  # another thread may have closed the store just now
            raise

    def _read(self, key: str) -> Entry | None:
        with self._tree.open(key) as descriptor:
            if descriptor is None:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                value = file.read()
            return Entry(value, compute_etag(descriptor, value))

    def _write(self, puts: Sequence[Put], abandoned: Event) -> list[str]:
        """Write files up to the first that fails, and return their etags."""
        etags = []
        moves: list[tuple[str, str]] = []
        with (
            self._lock_keys([put.key for put in puts], abandoned),
            self._tree.open_internal(INTERNAL_FOLDER, "writing") as writing,
        ):
            try:
                for put in puts:
                    if put.if_absent or put.if_match is not None:
                        entry = self._read(put.key)
                        check_condition(put, None if entry is None else entry.etag)
                    temporary = f"{lock_name(put.key)}-{new_etag()}"
                    moves.append((put.key, temporary))
                    etags.append(write_file(temporary, writing, put.value))
            finally:
                try:
                    self._tree.move_into_place(moves[: len(etags)], writing)
                finally:
                    for _, temporary in moves:
                        with suppress(FileNotFoundError):  # it was moved
                            os.unlink(temporary, dir_fd=writing)
        return etags

    @contextmanager
    def _lock_keys(self, keys: Sequence[str], abandoned: Event) -> Iterator[None]:
        """Hold the locks of some keys against threads and processes."""
        names = {lock_name(key) for key in keys}
        if any(map(is_shortened, keys)):
            names.add(NAMES_LOCK)
        with ExitStack() as held:
            for name in sorted(names):  # all in the same order, so that none wait in a circle
                held.enter_context(self._hold_lock(name, abandoned))
            yield

    @contextmanager
    def _hold_lock(self, name: str, abandoned: Event) -> Iterator[None]:
        end = time.monotonic() + self._timeout
        while not self._thread_locks[name].acquire(timeout=0.05):
            self._check_waiting(name, end, abandoned)
        try:
            pause = 0.0002
            while (descriptor := self._try_file_lock(name)) is None:
                self._check_waiting(name, end, abandoned)
                time.sleep(pause)
                pause = min(pause * 1.5, 0.02)
            try:
                if abandoned.is_set():
                    raise self._locked_error(name)
                yield
            finally:
                FILE_LOCKS.release(descriptor)
        finally:
            self._thread_locks[name].release()

    def _check_waiting(self, name: str, end: float, abandoned: Event) -> None:
        if abandoned.is_set() or time.monotonic() > end:
            raise self._locked_error(name)

    def _locked_error(self, name: str) -> StateStoreError:
        return StateStoreError(
            f"{self.display_url}: another process holds the lock {INTERNAL_FOLDER}/locks/{name}; "
            "retry, or wait longer with ?timeout=",
            transient=True,
        )

    def _try_file_lock(self, name: str) -> int | None:
        """Return the descriptor of a lock, or None if another process holds it."""
        with self._tree.open_internal(INTERNAL_FOLDER, "locks") as locks:
            return FILE_LOCKS.take(name, locks)

    def _prepare(self) -> None:
        """Create the internal folders and remove the temporary files of writers that died."""
        if self._prepared:
            return
        with self._tree.open_internal(INTERNAL_FOLDER, "locks", make=True):
            pass
        with self._tree.open_internal(INTERNAL_FOLDER, "writing", make=True) as writing:
            for file in filter(None, map(TEMPORARY_FILE.fullmatch, os.listdir(writing))):  # noqa: PTH208
                lock = self._try_file_lock(file[1])
                if lock is None:
                    continue  # its writer is alive
                with suppress(FileNotFoundError):
                    os.unlink(file[0], dir_fd=writing)
                FILE_LOCKS.release(lock)
        self._prepared = True


def lock_name(key: str) -> str:
    """Return the name of a key's lock."""
    return LOCK_NAMES[hashlib.sha256(key.encode()).digest()[0] % len(LOCK_NAMES)]


def write_file(name: str, folder: int, value: bytes) -> str:
    """Write a new file to the disk itself, and return its etag."""
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=folder)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(value)
        sync_descriptor(descriptor)
        return compute_etag(descriptor, value)
    finally:
        os.close(descriptor)


def compute_etag(descriptor: int, value: bytes) -> str:
    """Return an etag of the content and the file itself, because equal values are two writes."""
    status = os.fstat(descriptor)
    digest = hashlib.sha256(value).hexdigest()[:16]
    return f"{digest}-{status.st_ino:x}-{status.st_mtime_ns:x}"


def open_url(url: StoreURL) -> FileStateStore:
    """Open ``file:///var/lib/agents``, or ``file:agents`` in the working folder."""
    if url.parts.netloc not in ("", "localhost") or not url.path:
        raise StateStoreError(
            f"{url} does not name a folder; write an absolute path as in file:///var/lib/agents, "
            "or one in the working folder as in file:agents"
        )
    store = FileStateStore(url.path, timeout=url.take_number("timeout", TIMEOUT))
    url.reject_unknown_options(("timeout",))
    return store
