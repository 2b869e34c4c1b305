"""The folders of a store of files: where a key's file is, and all keys in order.

Every step into a folder is relative to the one before and follows no symbolic link, so that nothing
outside the root is ever touched, whatever somebody puts into it.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from holdfast.stores.key_names import decode_key_name, encode_key_name
from holdfast.stores.local import make_folder, sync_descriptor
from holdfast.stores.validation import KeyRange

DEEPEST = 24  # folders, so that no path outgrows what systems take
LONGEST = 200  # of the 255 bytes that a file's name may have
SHOWN = 100
WHOLE = "~name"  # the end of the file beside a cut name that holds all of it
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# Without waiting for whoever writes to a pipe of that name.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class FileTree:
    """The files below a root, by key."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextmanager
    def opened(self, key: str) -> Iterator[int | None]:
        """A key's file to read, or None where there is none."""
        *folders, name = path_names(key)
        descriptor = None
        try:
            with self._folder(folders) as folder:
                descriptor = os.open(shorten_name(name), READ, dir_fd=folder)
        except FileNotFoundError:
            yield None
            return
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, f"{shorten_name(name)} is no file")
            yield descriptor
        finally:
            os.close(descriptor)

    def place(self, key: str, writing: int, temporary: str) -> None:
        """Rename a finished file from another folder into a key's place, durably."""
        *folders, name = path_names(key)
        while True:
            try:
                with self._folder(folders, make=True) as folder:
                    write_full_name(name, folder)
                    os.rename(temporary, shorten_name(name), src_dir_fd=writing, dst_dir_fd=folder)
                    sync_descriptor(folder)
                return
            except FileNotFoundError:
                # Somebody removed a folder that was empty a moment ago; or else there is no file.
                os.stat(temporary, dir_fd=writing)

    def remove(self, key: str) -> None:
        """Remove a key's file, durably, and the folders that it leaves empty."""
        *folders, name = path_names(key)
        with self._folder(folders) as folder:
            os.unlink(shorten_name(name), dir_fd=folder)
            remove_full_name(name, folder)
            sync_descriptor(folder)
        while folders:
            last = folders.pop()
            try:
                with self._folder(folders) as folder:
                    os.rmdir(shorten_name(last), dir_fd=folder)
                    remove_full_name(last, folder)
            except OSError:
                return  # not empty, or gone

    @contextmanager
    def inside(self, *path: str, make: bool = False) -> Iterator[int]:
        """A folder of the store's own, which no key has."""
        with self._folder(list(path), make=make) as folder:
            yield folder

    def keys(self, span: KeyRange) -> Iterator[str]:
        """The keys of a span, in order."""
        prefix, after = name_prefix(span.prefix), name_prefix(span.after)
        try:
            root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return
        try:
            for name in walk_names(root, "", prefix, after):
                key = decode_key_name(name, fold_case=True)
                if key is not None and span.holds(key):
                    yield key
        finally:
            os.close(root)

    @contextmanager
    def _folder(self, path: list[str], *, make: bool = False) -> Iterator[int]:
        """The folder at the end of a path, from the root on."""
        if make:
            make_folder(self.root)
        folder = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for name in path:
                if make:
                    make_subfolder(name, folder)
                step = os.open(shorten_name(name), FOLDER, dir_fd=folder)
                os.close(folder)
                folder = step
            yield folder
        finally:
            os.close(folder)


def walk_names(folder: int, above: str, prefix: str, after: str) -> Iterator[str]:
    """All names below a folder in order, passing over folders that hold nothing of interest."""
    entries = []
    with os.scandir(folder) as found:
        for entry in found:
            name = read_full_name(entry.name, folder)
            if name is not None and not entry.is_symlink():
                entries.append((name + "/" if entry.is_dir() else name, entry.name))
    for name, real in sorted(entries):
        path = above + name
        if not name.endswith("/"):
            yield path
        elif (path.startswith(prefix) or prefix.startswith(path)) and (
            path > after or after.startswith(path)
        ):
            try:
                step = os.open(real, FOLDER, dir_fd=folder)
            except FileNotFoundError:
                continue  # removed meanwhile
            try:
                yield from walk_names(step, path, prefix, after)
            finally:
                os.close(step)


def name_prefix(text: str) -> str:
    """The beginning that the names of all keys with this beginning have."""
    return encode_key_name(text, fold_case=True).removesuffix("!-") if text else ""


def path_names(key: str) -> list[str]:
    """The folders of a key's file and its own name; the last one may hold slashes of a deep key."""
    return encode_key_name(key, fold_case=True).split("/", DEEPEST)


def shorten_name(name: str) -> str:
    """A name as the file system can have it."""
    if len(name) <= LONGEST and "/" not in name:
        return name
    return f"{name[:SHOWN].replace('/', '')}~{hashlib.sha256(name.encode()).hexdigest()}"


def read_full_name(name: str, folder: int) -> str | None:
    """The name that was cut, or the name itself; None for what is no key's."""
    body = name.removesuffix(".~")
    if "~" not in body:
        return name
    if name.endswith(WHOLE) or body.startswith("~"):
        return None
    try:
        descriptor = os.open(name + WHOLE, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    except OSError:
        return None
    with open(descriptor, encoding="ascii", errors="replace") as file:  # noqa: PTH123 - a descriptor
        found = file.read()
    return found if shorten_name(found) == name else None


def write_full_name(name: str, folder: int) -> None:
    """Beside a name that is cut, the whole of it, before anything has the cut name."""
    if shorten_name(name) == name:
        return
    beside = shorten_name(name) + WHOLE
    if read_full_name(shorten_name(name), folder) == name:
        return
    # The same content, whoever writes it: a half-written one of a crash is written again.
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW, 0o666, dir_fd=folder)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(name.encode())
        file.flush()
        sync_descriptor(file.fileno())
    sync_descriptor(folder)


def remove_full_name(name: str, folder: int) -> None:
    """Remove what was kept of a name that was cut."""
    if shorten_name(name) != name:
        with suppress(FileNotFoundError):
            os.unlink(shorten_name(name) + WHOLE, dir_fd=folder)


def is_shortened(key: str) -> bool:
    """Whether any name of a key is cut: what keeps the whole of it is shared by several keys."""
    return any(shorten_name(name) != name for name in path_names(key))


def make_subfolder(name: str, folder: int) -> None:
    """A folder within another, durably."""
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
