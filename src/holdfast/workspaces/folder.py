"""Read and write files inside one folder, and nowhere else.

Each part of a path is opened without following symbolic links, and the next one relative to it. So
a folder that is replaced by a link while this runs leads to an error, not out of the workspace. On
systems without such calls, each part is checked before it is used.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from holdfast.stores.local import sync_descriptor
from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.paths import STAGING_PREFIX

HAS_DIR_FD = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
DIRECTORY = getattr(os, "O_DIRECTORY", 0)
BINARY = getattr(os, "O_BINARY", 0)
OPEN_FOLDER = os.O_RDONLY | DIRECTORY | NO_FOLLOW
# A FIFO would block without O_NONBLOCK; it has no effect on a regular file.
OPEN_FILE = os.O_RDONLY | NO_FOLLOW | BINARY | getattr(os, "O_NONBLOCK", 0)
CREATE_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_FOLLOW | BINARY
OWNER_ACCESS = stat.S_IRWXU


@dataclass(frozen=True, slots=True)
class Directory:
    """An open folder. Names in it are single parts of a path."""

    path: str
    fd: int | None
    """None on a system without calls that are relative to a folder."""

    def at(self, name: str) -> str:
        """Return what to pass to a call with ``dir_fd=self.fd``."""
        return name if self.fd is not None else os.path.join(self.path, name)

    def lstat(self, name: str) -> os.stat_result | None:
        """Return the status of a name, or None if there is no such name."""
        try:
            return os.stat(self.at(name), dir_fd=self.fd, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def open_folder(self, name: str) -> Directory:
        """Open a folder inside; the caller closes it.

        Raises:
            NotADirectoryError: It is not a folder, or a symbolic link to one.

        """
        path = f"{self.path}/{name}"
        if self.fd is None:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            return Directory(path, None)
        try:
            return Directory(path, os.open(name, OPEN_FOLDER, dir_fd=self.fd))
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from error
            raise

    def open_file(self, name: str) -> int:
        """Open a regular file to read it; return its descriptor.

        Raises:
            OSError: It cannot be opened, or is not a regular file.

        """
        if self.fd is None and stat.S_ISLNK(os.lstat(self.at(name)).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), name)
        descriptor = os.open(self.at(name), OPEN_FILE, dir_fd=self.fd)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError(errno.EINVAL, "not a regular file", name)
        return descriptor

    def create_file(self, name: str) -> int:
        """Create a file that only the user can read; return its descriptor."""
        return os.open(self.at(name), CREATE_FILE, 0o600, dir_fd=self.fd)

    def sync(self) -> None:
        """Flush the names in the folder to the disk."""
        if self.fd is not None:
            sync_descriptor(self.fd)

    @contextmanager
    def writable(self) -> Iterator[None]:
        """Make the folder writable for its owner inside the block, if it is not."""
        target: int | str = self.path if self.fd is None else self.fd
        mode = stat.S_IMODE(os.stat(target).st_mode)
        if mode & OWNER_ACCESS == OWNER_ACCESS:
            yield
            return
        os.chmod(target, mode | OWNER_ACCESS)
        try:
            yield
        finally:
            os.chmod(target, mode)

    def close(self) -> None:
        """Close the folder."""
        if self.fd is not None:
            os.close(self.fd)


class Folder:
    """The folder of a workspace, as a context manager. Paths are relative to it."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(root)
        self._top: Directory | None = None
        self._last: tuple[str, Directory] | None = None

    def __enter__(self) -> Self:
        try:
            if HAS_DIR_FD:
                fd = os.open(self.root, os.O_RDONLY | DIRECTORY)
            elif Path(self.root).is_dir():
                fd = None
            else:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), self.root)
        except OSError as error:
            raise WorkspaceError(
                f"cannot open folder {self.root}: {error.strerror}; check that it exists"
            ) from error
        self._top = Directory(self.root, fd)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._forget_last()
        if self._top is not None:
            self._top.close()
            self._top = None

    @property
    def top(self) -> Directory:
        """The folder itself."""
        if self._top is None:
            raise RuntimeError("the folder is not open")
        return self._top

    def _forget_last(self) -> None:
        if self._last is not None:
            self._last[1].close()
            self._last = None

    def parent_of(self, path: str, *, create: bool = False) -> tuple[Directory, str]:
        """Return the open folder of a path, and the last part of the path.

        The folder stays open until the next call for another one.

        Raises:
            NotADirectoryError: A part is not a folder, or is a symbolic link.
            FileNotFoundError: A folder does not exist, and ``create`` is False.

        """
        folder, _, name = path.rpartition("/")
        if not folder:
            return self.top, name
        if self._last is not None and self._last[0] == folder and not create:
            return self._last[1], name
        self._forget_last()
        opened = self.top
        for part in folder.split("/"):
            outer = opened
            try:
                if create and outer.lstat(part) is None:
                    with outer.writable():
                        os.mkdir(outer.at(part), dir_fd=outer.fd)
                    outer.sync()
                opened = outer.open_folder(part)
            finally:
                if outer is not self.top:
                    outer.close()
        self._last = (folder, opened)
        return opened, name

    def read_file(self, path: str, limit: int) -> bytes:
        """Return the content of a regular file, at most ``limit`` + 1 bytes of it.

        Raises:
            WorkspaceError: It cannot be read; the error names it.

        """
        try:
            directory, name = self.parent_of(path)
            descriptor = directory.open_file(name)
            with os.fdopen(descriptor, "rb") as file:
                return file.read(limit + 1)
        except OSError as error:
            raise explain_file_error("read", path, error) from error

    def remove_file(self, path: str) -> None:
        """Remove a file or a symbolic link, if it exists."""
        directory, name = self.parent_of(path)
        with directory.writable(), suppress(FileNotFoundError):
            if os.name == "nt":
                os.chmod(directory.at(name), stat.S_IWRITE)
            os.unlink(directory.at(name), dir_fd=directory.fd)

    def remove_folder(self, path: str) -> bool:
        """Remove a folder if it is empty; return whether it is gone."""
        self._forget_last()
        try:
            directory, name = self.parent_of(path)
            with directory.writable():
                os.rmdir(directory.at(name), dir_fd=directory.fd)
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                return False
            raise
        return True

    def set_mode(self, path: str, mode: int) -> None:
        """Set the permission bits of a regular file."""
        directory, name = self.parent_of(path)
        if directory.fd is None:
            os.chmod(directory.at(name), mode)
            return
        descriptor = directory.open_file(name)
        try:
            os.fchmod(descriptor, mode)
            sync_descriptor(descriptor)
        finally:
            os.close(descriptor)

    def move_into(self, source: Directory, staged: str, path: str) -> None:
        """Put a staged file or link in the place of the file that has the path, atomically."""
        directory, name = self.parent_of(path, create=True)
        with directory.writable():
            if os.name == "nt" and directory.lstat(name) is not None:
                os.chmod(directory.at(name), stat.S_IWRITE)
            try:
                replace_file(source, staged, directory, name)
            except OSError as error:
                if error.errno != errno.EXDEV:
                    raise
                # Another disk is mounted below the folder.
                temporary = STAGING_PREFIX + secrets.token_hex(8)
                copy_file(source, staged, directory, temporary)
                replace_file(directory, temporary, directory, name)

    def sync_parent(self, path: str) -> None:
        """Flush the folder of a path to the disk."""
        directory, _ = self.parent_of(path)
        directory.sync()


def replace_file(source: Directory, name: str, target: Directory, new: str) -> None:
    """Rename a file from one open folder to another."""
    os.replace(source.at(name), target.at(new), src_dir_fd=source.fd, dst_dir_fd=target.fd)


def copy_file(source: Directory, name: str, target: Directory, new: str) -> None:
    """Copy a file with its mode, or a link, to another open folder, durably."""
    status = source.lstat(name)
    if status is not None and stat.S_ISLNK(status.st_mode):
        link = os.readlink(source.at(name), dir_fd=source.fd)
        os.symlink(link, target.at(new), dir_fd=target.fd)
        return
    with (
        os.fdopen(source.open_file(name), "rb") as reader,
        os.fdopen(target.create_file(new), "wb") as writer,
    ):
        while chunk := reader.read(1 << 20):
            writer.write(chunk)
        writer.flush()
        if hasattr(os, "fchmod"):
            os.fchmod(writer.fileno(), stat.S_IMODE(os.fstat(reader.fileno()).st_mode))
        sync_descriptor(writer.fileno())
