"""Change a folder as planned.

The new contents are first written to a staging folder inside the workspace, and flushed. A full
disk or a missing blob is found there, before any file has changed. Then each file is renamed to
its place, which is atomic: after a crash at any point a file has its old or its new content, and
another restore completes the rest.

    1. stage the contents                       errors here change nothing
    2. remove files and folders in the way
    3. rename staged files and links, set modes
    4. remove the other files, and folders that are empty now
    5. flush the folders, remove the staging folder
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field

from holdfast.stores.local import sync_descriptor
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.folder import Directory, Folder
from holdfast.workspaces.paths import STAGING_PREFIX, iterate_parents
from holdfast.workspaces.plan import RestorePlan
from holdfast.workspaces.threads import run_all, run_to_end

try:
    from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
except ImportError:
    flock = None  # type: ignore[assignment]

Stream = Callable[[str, FileEntry], AsyncIterator[bytes]]
"""Returns the content of a file in chunks, verified."""

PARALLEL_FILES = 8

NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF)


@dataclass(slots=True)
class Staging:
    """A folder inside the workspace that holds new contents until all are complete."""

    directory: Directory
    names: dict[str, str] = field(default_factory=dict)
    """The staged name of each path."""

    async def write_file(self, path: str, entry: FileEntry, chunks: AsyncIterator[bytes]) -> None:
        """Write the content of a file and flush it.

        Raises:
            WorkspaceError: The disk is full, or refuses the file; the error names it.

        """
        try:
            descriptor = await run_to_end(self.directory.create_file, self.names[path])
            try:
                async for chunk in chunks:
                    await run_to_end(write_all, descriptor, chunk)
                await run_to_end(finish_file, descriptor, entry.mode)
            finally:
                os.close(descriptor)
        except OSError as error:
            raise explain_file_error("write", path, error) from error

    def make_link(self, path: str, target: str) -> None:
        """Create a symbolic link.

        Raises:
            WorkspaceError: The disk refuses it; the error names it.

        """
        with naming("write", path):
            name = self.directory.at(self.names[path])
            os.symlink(target, name, dir_fd=self.directory.fd)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of the data."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def finish_file(descriptor: int, mode: int) -> None:
    """Set the mode of a staged file and flush it."""
    if hasattr(os, "fchmod"):
        os.fchmod(descriptor, mode)
    sync_descriptor(descriptor)


def lock_folder(folder: Folder, *, exclusive: bool) -> None:
    """Keep restores by others out of an open folder until it is closed.

    Raises:
        WorkspaceError: It is being restored, or captured if the lock is exclusive.

    """
    descriptor = folder.top.fd
    if flock is not None and descriptor is not None:
        try:
            flock(descriptor, (LOCK_EX if exclusive else LOCK_SH) | LOCK_NB)
        except BlockingIOError as error:
            raise WorkspaceError(
                f"folder {folder.root} is being restored or captured elsewhere; retry"
            ) from error
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise


@asynccontextmanager
async def open_staging(folder: Folder) -> AsyncIterator[Staging]:
    """Create a staging folder, and remove it at the end."""
    name = STAGING_PREFIX + secrets.token_hex(8)
    await run_to_end(remove_leftovers, folder)
    try:
        with folder.top.writable():
            os.mkdir(folder.top.at(name), 0o700, dir_fd=folder.top.fd)
        directory = folder.top.open_folder(name)
    except OSError as error:
        raise explain_file_error("write to", folder.root, error) from error
    try:
        yield Staging(directory)
    finally:
        directory.close()
        await run_to_end(remove_staging, folder, name)


def remove_leftovers(folder: Folder) -> None:
    """Remove the staging folders of restores that were interrupted."""
    top = folder.top
    for name in os.listdir(top.path if top.fd is None else top.fd):
        if name.startswith(STAGING_PREFIX):
            remove_staging(folder, name)


def remove_staging(folder: Folder, name: str) -> None:
    """Remove a staging folder; what cannot be removed is left for the next restore."""
    with suppress(OSError):
        directory = folder.top.open_folder(name)
        try:
            for each in os.listdir(directory.path if directory.fd is None else directory.fd):
                os.unlink(directory.at(each), dir_fd=directory.fd)
        finally:
            directory.close()
        folder.remove_folder(name)


async def apply_plan(folder: Folder, plan: RestorePlan, stream: Stream) -> None:
    """Stage the new contents and change the folder. The caller holds its lock.

    Raises:
        WorkspaceError: A file cannot be written; the error names it. Unless it says that the
            folder was changed in part, nothing was changed.
        IntegrityError: A content is missing in the store, or damaged; nothing was changed.

    """
    async with open_staging(folder) as staging:
        await stage_files(staging, plan, stream)
        try:
            await run_to_end(change_folder, folder, plan, staging)
        except WorkspaceError as error:
            raise WorkspaceError(
                f"{error}; the folder was changed in part, repeat the restore to complete it",
                error.path,
            ) from error


async def stage_files(staging: Staging, plan: RestorePlan, stream: Stream) -> None:
    """Write all new contents to the staging folder, some at the same time."""
    entries = {path: plan.target[path] for path in plan.write}
    staging.names = {path: str(number) for number, path in enumerate(plan.write)}
    paths = []
    for path, entry in entries.items():
        if entry.link is None:
            paths.append(path)
        else:
            staging.make_link(path, entry.link)
    for start in range(0, len(paths), PARALLEL_FILES):
        await run_all(
            staging.write_file(path, entries[path], stream(path, entries[path]))
            for path in paths[start : start + PARALLEL_FILES]
        )


def change_folder(folder: Folder, plan: RestorePlan, staging: Staging) -> None:
    """Change the folder, now that all contents are staged."""
    touched = set()
    for path in sorted(plan.first):
        remove_one(folder, path)
    for path in plan.replaced_folders:
        with naming("remove folder", path):
            if not folder.remove_folder(path):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    for path in plan.write:
        with naming("write", path):
            folder.move_into(staging.directory, staging.names[path], path)
        touched.add(path.rpartition("/")[0])
    for path in plan.chmod:
        with naming("set the mode of", path):
            folder.set_mode(path, plan.target[path].mode)
    for path in plan.remove:
        if path not in plan.first:
            remove_one(folder, path)
            touched.add(path.rpartition("/")[0])
    gone = remove_empty_folders(folder, plan)
    for parent in sorted(touched - gone):
        with naming("flush", parent):
            folder.sync_parent(f"{parent}/." if parent else ".")


def remove_one(folder: Folder, path: str) -> None:
    """Remove one file."""
    with naming("remove", path), suppress(FileNotFoundError, NotADirectoryError):
        folder.remove_file(path)


def remove_empty_folders(folder: Folder, plan: RestorePlan) -> set[str]:
    """Remove the folders that the removed files left empty; return them."""
    needed = folders_of(plan.target)
    gone = set()
    for path in sorted(folders_of(plan.remove) - needed, reverse=True):
        with naming("remove folder", path):
            try:
                if folder.remove_folder(path):
                    gone.add(path)
            except NotADirectoryError:
                gone.add(path)  # a file has taken its place
    return gone


def folders_of(paths: Iterable[str]) -> set[str]:
    """Return the folders that contain some paths."""
    return {parent for path in paths for parent in iterate_parents(path)}


@contextmanager
def naming(action: str, path: str) -> Iterator[None]:
    """Name the file in the error of a system call."""
    try:
        yield
    except OSError as error:
        raise explain_file_error(action, path, error) from error
