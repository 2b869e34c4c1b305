"""Write the files of a session to a new folder or an archive."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import IO

from holdfast.blobs.reader import BlobReader
from holdfast.sessions.workspace_state import check_contents, stream_content
from holdfast.workspaces.apply import apply_plan
from holdfast.workspaces.entries import FileEntries, FileEntry
from holdfast.workspaces.errors import WorkspaceError, explain_file_error
from holdfast.workspaces.folder import Folder
from holdfast.workspaces.paths import is_case_insensitive
from holdfast.workspaces.plan import plan_restore
from holdfast.workspaces.scan import Scan
from holdfast.workspaces.threads import run_to_end

TAR_MODES = {".tar": "w", ".tar.gz": "w:gz", ".tgz": "w:gz"}
ZIP = ".zip"
SPOOL_SIZE = 8 * 2**20
ZIP_START = (1980, 1, 1, 0, 0, 0)


async def export_files(blobs: BlobReader, files: FileEntries, destination: str) -> None:
    """Write files to a new folder, or to an archive if the name ends as one.

    Raises:
        WorkspaceError: The destination exists, or cannot be written.
        IntegrityError: The content of a file is missing or damaged. Nothing is left behind.

    """
    if await run_to_end(os.path.lexists, destination):
        raise WorkspaceError(f"{destination} exists; choose a new name", destination)
    await check_contents(blobs, files, files)
    suffix = next((each for each in (*TAR_MODES, ZIP) if destination.lower().endswith(each)), None)
    try:
        if suffix is None:
            await export_to_folder(blobs, files, destination)
        else:
            await export_to_archive(blobs, files, destination, suffix)
    except OSError as error:
        raise explain_file_error("write", destination, error) from error


async def export_to_folder(blobs: BlobReader, files: FileEntries, destination: str) -> None:
    """Write files to a new folder."""
    await run_to_end(os.makedirs, destination)
    try:
        with Folder(destination) as folder:
            is_folding = is_case_insensitive(folder.root)
            plan = plan_restore(Scan(), files, case_insensitive=is_folding)
            await apply_plan(folder, plan, partial(stream_content, blobs))
    except BaseException:
        shutil.rmtree(destination, ignore_errors=True)
        raise


async def export_to_archive(
    blobs: BlobReader, files: FileEntries, destination: str, suffix: str
) -> None:
    """Write files to an archive, which gets its name when it is complete."""
    parent = os.path.dirname(destination) or os.curdir  # noqa: PTH120
    descriptor, temporary = tempfile.mkstemp(dir=parent, prefix=".holdfast-", suffix=suffix)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write = write_zip if suffix == ZIP else partial(write_tar, mode=TAR_MODES[suffix])
            await write(file, files, partial(stream_content, blobs))
            file.flush()
            os.fsync(file.fileno())
        await run_to_end(publish_file, temporary, destination)
    except BaseException:
        os.unlink(temporary)  # noqa: PTH108 - short, and cancellation must not prevent it
        raise


def publish_file(temporary: str, destination: str) -> None:
    """Give a complete file its name."""
    Path(temporary).chmod(0o644)
    Path(temporary).replace(destination)


Stream = Callable[[str, FileEntry], AsyncIterator[bytes]]


async def write_tar(file: IO[bytes], files: FileEntries, stream: Stream, *, mode: str) -> None:
    """Write files to a tar archive."""
    with tarfile.open(fileobj=file, mode=mode) as archive:  # type: ignore[call-overload]
        for path, entry in sorted(files.items()):
            info = tarfile.TarInfo(path)
            info.mode, info.mtime = entry.mode, int(time.time())
            if entry.link is not None:
                info.type, info.linkname = tarfile.SYMTYPE, entry.link
                archive.addfile(info)
                continue
            info.size = entry.size
            with tempfile.SpooledTemporaryFile(SPOOL_SIZE) as content:
                async for chunk in stream(path, entry):
                    content.write(chunk)
                content.seek(0)
                await run_to_end(archive.addfile, info, content)


async def write_zip(file: IO[bytes], files: FileEntries, stream: Stream) -> None:
    """Write files to a zip archive."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, entry in sorted(files.items()):
            info = zipfile.ZipInfo(path, max(time.localtime()[:6], ZIP_START))
            info.compress_type = zipfile.ZIP_DEFLATED
            kind = stat.S_IFREG if entry.link is None else stat.S_IFLNK
            info.external_attr = (kind | entry.mode) << 16
            with archive.open(info, "w", force_zip64=entry.size >= 2**31) as content:
                if entry.link is not None:
                    content.write(entry.link.encode())
                    continue
                async for chunk in stream(path, entry):
                    await run_to_end(content.write, chunk)
