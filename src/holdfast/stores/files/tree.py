"""The folders of a file store: where the file of a key is, and all keys in order.

Each folder is opened relative to its parent without following symbolic links, so nothing outside
the root is ever touched, whatever is put into it. A listing goes directly to the folder of its
prefix, and remembers the names in large folders that did not change for a while.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import time
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import groupby
from pathlib import Path

from holdfast.stores.local import make_folder, sync_descriptor
from holdfast.stores.name_encoding import decode_key_name, encode_key_name
from holdfast.stores.validation import KeyRange

MAX_DEPTH = 24  # folders, so that no path is too long
MAX_NAME = 200  # of the 255 bytes that a file name may have
KEPT_CHARACTERS = 100  # of a shortened name
FULL_NAME = "~name"  # suffix of the file that holds the full form of a shortened name
CACHED_FOLDERS = 4
MIN_CACHED_NAMES = 512  # a smaller folder is scanned each time
SETTLED_NS = 1_000_000_000  # a change of a folder in the same clock tick keeps its time
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
NO_FOLDER = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)  # absent, a file, a symbolic link
# Without waiting for a writer if the file is a pipe.
OPEN_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class FileTree:
    """The files below a root folder, by key."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cache: OrderedDict[tuple[int, int], tuple[int, list[str]]] = OrderedDict()
        """Names in large folders, by device and inode, with the time of the last change."""

    @contextmanager
    def open(self, key: str) -> Iterator[int | None]:
        """Open the file of a key for reading; yield its descriptor, or None if it is absent."""
        *folders, name = path_names(key)
        try:
            with self._open_folder(folders) as folder:
                descriptor = os.open(shorten_name(name), OPEN_FILE, dir_fd=folder)
        except FileNotFoundError:
            yield None
            return
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, f"{shorten_name(name)} is not a regular file")
            yield descriptor
        finally:
            os.close(descriptor)

    def move_into_place(self, moves: Sequence[tuple[str, str]], writing: int) -> None:
        """Rename finished files from another folder to the files of keys, in order and durably.

        A folder is synced once for the files that are moved into it one after the other.
        """
        paths = [(path_names(key), temporary) for key, temporary in moves]
        for folders, group in groupby(paths, lambda each: each[0][:-1]):
            files = deque((path[-1], temporary) for path, temporary in group)
            while files:
                try:
                    with self._open_folder(folders, make=True) as folder:
                        while files:
                            name, temporary = files[0]
                            write_full_name(name, folder)
                            target = shorten_name(name)
                            os.rename(temporary, target, src_dir_fd=writing, dst_dir_fd=folder)
                            files.popleft()
                        sync_descriptor(folder)
                except FileNotFoundError:
                    # Another writer removed an empty folder: retry, unless the file is missing.
                    os.stat(files[0][1], dir_fd=writing)

    def remove(self, key: str) -> None:
        """Remove the file of a key, durably, and the folders that are empty then."""
        *folders, name = path_names(key)
        with self._open_folder(folders) as folder:
            os.unlink(shorten_name(name), dir_fd=folder)
            remove_full_name(name, folder)
            sync_descriptor(folder)
        while folders:
            last = folders.pop()
            try:
                with self._open_folder(folders) as folder:
                    os.rmdir(shorten_name(last), dir_fd=folder)
                    remove_full_name(last, folder)
            except OSError:
                return  # not empty, or removed by another writer

    @contextmanager
    def open_internal(self, *path: str, make: bool = False) -> Iterator[int]:
        """Open a folder of the store's own, which no key maps to."""
        with self._open_folder(list(path), make=make) as folder:
            yield folder

    def keys(self, key_range: KeyRange) -> Iterator[str]:
        """Yield the keys of a range in order."""
        prefix, after = name_prefix(key_range.prefix), name_prefix(key_range.after)
        *folders, rest = prefix.split("/", MAX_DEPTH)
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(self._open_folder(folders))
            except OSError as error:
                if error.errno in NO_FOLDER:
                    return  # no key has the prefix
                raise
            for name in self._walk(folder, prefix.removesuffix(rest), rest, after):
                key = decode_key_name(name, fold_case=True)
                if key is not None and key_range.contains(key):
                    yield key

    def _walk(self, folder: int, parent: str, prefix: str, after: str) -> Iterator[str]:
        """Yield the names below a folder in order that start with a prefix and may follow one."""
        names = self._list_names(folder)
        first = after.removeprefix(parent) if after.startswith(parent) else ""
        first, is_below, _ = first.partition("/")
        for name in names[bisect_left(names, max(prefix, first + is_below)) :]:
            if not name.startswith(prefix):
                return
            if not name.endswith("/"):
                yield parent + name
                continue
            try:
                child = os.open(shorten_name(name[:-1]), OPEN_FOLDER, dir_fd=folder)
            except FileNotFoundError:
                continue  # removed since it was scanned
            try:
                yield from self._walk(child, parent + name, "", after)
            finally:
                os.close(child)

    def _list_names(self, folder: int) -> list[str]:
        """Return the names in a folder in order; those of folders end in a slash."""
        status = os.fstat(folder)
        identity = status.st_dev, status.st_ino
        changed_at, names = self._cache.get(identity, (0, []))
        if changed_at == status.st_mtime_ns:
            return names
        names = scan_names(folder)
        is_settled = abs(time.time_ns() - status.st_mtime_ns) > SETTLED_NS
        self._cache.pop(identity, None)
        if is_settled and len(names) >= MIN_CACHED_NAMES:
            self._cache[identity] = status.st_mtime_ns, names
            while len(self._cache) > CACHED_FOLDERS:
                self._cache.popitem(last=False)
        return names

    @contextmanager
    def _open_folder(self, path: list[str], *, make: bool = False) -> Iterator[int]:
        if make:
            make_folder(self.root)
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in path:
                if make:
                    make_subfolder(name, folder)
                child = os.open(shorten_name(name), OPEN_FOLDER, dir_fd=folder)
                os.close(folder)
                folder = child
            yield folder
        finally:
            os.close(folder)


def scan_names(folder: int) -> list[str]:
    """Read the names in a folder, in order, without symbolic links."""
    names = []
    with os.scandir(folder) as scanned:
        for entry in scanned:
            name = read_full_name(entry.name, folder)
            if name is not None and not entry.is_symlink():
                names.append(name + "/" if entry.is_dir() else name)
    names.sort()
    return names


def name_prefix(text: str) -> str:
    """Return the prefix that the names of all keys with this prefix have."""
    return encode_key_name(text, fold_case=True).removesuffix("!-") if text else ""


def path_names(key: str) -> list[str]:
    """Return the folders and the file name of a key. A deep key has slashes in its last name."""
    return encode_key_name(key, fold_case=True).split("/", MAX_DEPTH)


def shorten_name(name: str) -> str:
    """Return a name that the file system accepts."""
    if len(name) <= MAX_NAME and "/" not in name:
        return name
    kept = name[:KEPT_CHARACTERS].replace("/", "")
    return f"{kept}~{hashlib.sha256(name.encode()).hexdigest()}"


def read_full_name(name: str, folder: int) -> str | None:
    """Return the full form of a possibly shortened name, or None if it is not a key's name."""
    body = name.removesuffix(".~")
    if "~" not in body:
        return name
    if name.endswith(FULL_NAME) or body.startswith("~"):
        return None
    try:
        descriptor = os.open(name + FULL_NAME, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - a descriptor
        full_name = file.read()
    return full_name if shorten_name(full_name) == name else None


def write_full_name(name: str, folder: int) -> None:
    """Store the full form of a name that is shortened, before the shortened name is used."""
    short = shorten_name(name)
    if short == name or read_full_name(short, folder) == name:
        return
    # All writers write the same content, so a file that was half written in a crash is completed.
    create = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW
    descriptor = os.open(short + FULL_NAME, create, 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(name.encode())
        file.flush()
        sync_descriptor(file.fileno())
    sync_descriptor(folder)


def remove_full_name(name: str, folder: int) -> None:
    """Remove the stored full form of a name that is shortened."""
    if shorten_name(name) != name:
        with suppress(FileNotFoundError):
            os.unlink(shorten_name(name) + FULL_NAME, dir_fd=folder)


def is_shortened(key: str) -> bool:
    """Whether any name of a key is shortened. Several keys may share its full-name file."""
    return any(shorten_name(name) != name for name in path_names(key))


def make_subfolder(name: str, folder: int) -> None:
    """Create a folder within another, durably, if it does not exist."""
    try:
        found = os.stat(shorten_name(name), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        write_full_name(name, folder)
        try:
            os.mkdir(shorten_name(name), dir_fd=folder)
        except FileExistsError:
            return
        sync_descriptor(folder)
    else:
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", name)
