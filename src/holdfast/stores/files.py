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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TypeVar

from holdfast.errors import StateStoreError
from holdfast.stores.backend import Backend, check_condition, new_etag, not_matching
from holdfast.stores.contract import Entry, Put
from holdfast.stores.file_tree import Tree
from holdfast.stores.gate import Span
from holdfast.stores.local import explained, make_folder, sync
from holdfast.stores.urls import StoreURL

try:
    import fcntl
except ImportError as missing:
    raise StateStoreError(
        "a store of files needs the file locks of Linux or macOS, which this system has not: "
        "use sqlite:///state.db"
    ) from missing

T = TypeVar("T")

LOCKS = 64
THREADS = 8
INSIDE = "~holdfast"  # no key has this name


class FileStateStore(Backend):
    """Keeps each value in a file of its own below one folder, made on the first write.

    Durable at every acknowledged write. ``put_many`` writes in order, one after another. For local
    disks: locks on network file systems may not hold. Symbolic links are not followed.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = Path(root).absolute()
        self.place = f"file://{self._root}"
        self._tree = Tree(self._root)
        self._prepared = False
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(THREADS, "holdfast-files")

    async def _get(self, key: str) -> Entry | None:
        return await self._run(lambda: self._entry(key))

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        def read() -> dict[str, Entry]:
            entries = {key: self._entry(key) for key in keys}
            return {key: entry for key, entry in entries.items() if entry is not None}

        return await self._run(read)

    async def _put(self, put: Put) -> str:
        def write() -> str:
            self._prepare()
            with self._locked(put.key) as lock:
                if put.if_absent or put.if_match is not None:
                    entry = self._entry(put.key)
                    check_condition(put, None if entry is None else entry.etag)
                return self._write(put, lock)

        return await self._run(write)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        def remove() -> bool:
            if not self._root.exists():
                entry = None
            else:
                self._prepare()
                with self._locked(key):
                    entry = self._entry(key)
                    if entry is not None and if_match in (None, entry.etag):
                        self._tree.remove(key)
            found = None if entry is None else entry.etag
            if if_match is not None and if_match != found:
                raise not_matching(key, if_match, found)
            return entry is not None

        return await self._run(remove)

    async def _page(self, span: Span, count: int) -> Sequence[str]:
        return await self._run(lambda: list(islice(self._tree.keys(span), count)))

    async def _close(self) -> None:
        await asyncio.to_thread(self._threads.shutdown)

    async def _run(self, work: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return work()
            except OSError as error:
                raise explained(error, self.place) from error

        if self._process != os.getpid():
            self._begin()  # threads do not survive a fork
        return await asyncio.get_running_loop().run_in_executor(self._threads, run)

    def _entry(self, key: str) -> Entry | None:
        with self._tree.opened(key) as descriptor:
            if descriptor is None:
                return None
            with open(descriptor, "rb", closefd=False) as file:
                value = file.read()
            return Entry(value, etag_of(descriptor, value))

    def _write(self, put: Put, lock: str) -> str:
        temporary = self._root / INSIDE / "writing" / f"{lock}-{new_etag()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            try:
                with open(descriptor, "wb", closefd=False) as file:
                    file.write(put.value)
                sync(descriptor)
                etag = etag_of(descriptor, put.value)
            finally:
                os.close(descriptor)
            self._tree.place(put.key, temporary)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return etag

    @contextmanager
    def _locked(self, key: str) -> Iterator[str]:
        """Hold the lock of a key, against threads and processes; its name."""
        number = hashlib.sha256(key.encode()).digest()[0] % LOCKS
        with self._holding(f"{number:02x}", fcntl.LOCK_EX):
            yield f"{number:02x}"

    @contextmanager
    def _holding(self, name: str, how: int) -> Iterator[None]:
        path = self._root / INSIDE / "locks" / name
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666)
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _prepare(self) -> None:
        """The folders, and nothing left in them by writers who died."""
        if self._prepared:
            return
        make_folder(self._root / INSIDE / "locks")
        make_folder(self._root / INSIDE / "writing")
        for left in (self._root / INSIDE / "writing").glob("??-*"):
            try:
                with self._holding(left.name[:2], fcntl.LOCK_EX | fcntl.LOCK_NB):
                    left.unlink(missing_ok=True)
            except BlockingIOError:
                continue  # its writer is alive
        self._prepared = True


def etag_of(descriptor: int, value: bytes) -> str:
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
    url.refuse_rest()
    return FileStateStore(url.path)
