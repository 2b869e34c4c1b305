"""The folder beside a document that holds its blobs: ``<file>.blobs/<sha256>``.

A document comes from anywhere, so its paths are not trusted: only a regular file in a real folder
beside the document, named by its own digest, is ever read.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.blobs.source import BlobSource, FileSource
from holdfast.documents.blobs import DocumentBlob, DocumentBlobs
from holdfast.errors import InvalidDocumentError, NotFoundError, StateStoreError, short_repr
from holdfast.stores.local import sync_descriptor, sync_folder
from holdfast.stores.urls import mask_secrets

SUFFIX = ".blobs"
FILE = re.compile(r"([^/\\\x00:]+\.blobs)/([0-9a-f]{64})")
OPEN_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe would block
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)


def blob_folder(path: Path) -> Path:
    """Return the folder for the blobs of a document."""
    return path.with_name(path.name + SUFFIX)


class FolderBlob(DocumentBlob):
    """A content in a file beside the document, read on demand."""

    def __init__(self, parent: Path, file: str, digest: str, size: int) -> None:
        super().__init__(digest, size)
        self._folder = parent / file.partition("/")[0]
        self.path = parent / file

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks; the last one only if it matches the digest.

        Raises:
            NotFoundError: There is no such file.
            InvalidDocumentError: It cannot be read, or does not match the digest.

        """
        sha = hashlib.sha256()
        held = b""
        with self._open() as file:
            while True:
                try:
                    chunk = file.read(CHUNK_SIZE)
                except OSError as error:
                    raise self._unreadable_error(error) from error
                if not chunk:
                    break
                if held:
                    yield held
                sha.update(chunk)
                held = chunk
        if sha.hexdigest() != self.digest:
            raise self._changed_error()
        yield held

    def source(self) -> BlobSource:
        """Read and verify the file, and return it as a source. Raises as `chunks`."""
        with self._open() as file:
            try:
                source = FileSource.hash_stream(str(self.path), file)
            except OSError as error:
                raise self._unreadable_error(error) from error
        if source.digest != self.digest:
            raise self._changed_error()
        return source

    def _open(self) -> IO[bytes]:
        """Open the file, if it is a regular file of the right size in a real folder."""
        name = mask_secrets(str(self.path))
        try:
            if self._folder.is_symlink():
                raise InvalidDocumentError(
                    f"{mask_secrets(str(self._folder))} is a symbolic link, which is not followed; "
                    "replace it by the folder that it points to"
                )
            descriptor = os.open(self.path, OPEN_FLAGS)
        except FileNotFoundError:
            raise NotFoundError(
                f"blob {self.digest} of the document is missing: no such file {name}; copy the "
                "folder of the document together with it"
            ) from None
        except OSError as error:
            if self.path.is_symlink():
                raise InvalidDocumentError(
                    f"{name} is a symbolic link, which is not followed; replace it by the file "
                    "that it points to"
                ) from error
            raise self._unreadable_error(error) from error
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_size == self.size:
            return os.fdopen(descriptor, "rb", buffering=0)
        os.close(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidDocumentError(f"{name} is not a regular file; get another copy")
        raise InvalidDocumentError(
            f"{name} has {found.st_size:,} bytes, but the document says {self.size:,}; get another "
            "copy"
        )

    def _changed_error(self) -> InvalidDocumentError:
        return InvalidDocumentError(
            f"the content of {mask_secrets(str(self.path))} does not match its digest; get another "
            "copy"
        )

    def _unreadable_error(self, error: OSError) -> InvalidDocumentError:
        return InvalidDocumentError(
            f"cannot read {mask_secrets(str(self.path))}: {error.strerror or error}; check its "
            "owner and mode"
        )


def validate_blob_file(file: str, digest: str) -> str:
    """Return the path of a blob as a document has it.

    Raises:
        InvalidDocumentError: It is not the digest in a folder beside the document.

    """
    found = FILE.fullmatch(file)
    if found is None or found[2] != digest:
        raise InvalidDocumentError(
            f"invalid path {short_repr(file)}: must be NAME{SUFFIX}/{digest}, a file in a folder "
            "beside the document"
        )
    return file


def write_blob_folder(blobs: DocumentBlobs, path: Path) -> str:
    """Write the blobs of a document to its folder, each atomically; return the folder's name.

    A file with the right content is kept. Memory is bounded by one chunk.

    Raises:
        StateStoreError: A file cannot be written.
        NotFoundError, InvalidDocumentError, IntegrityError: A content is missing or damaged.

    """
    folder = blob_folder(path)
    wanted = [each for each in blobs.entries if not each.is_omitted]
    if not wanted:
        return folder.name
    try:
        folder.name.encode()
    except UnicodeEncodeError:
        raise StateStoreError(
            f"cannot write {short_repr(folder.name)}: the name is not UTF-8; choose another path"
        ) from None
    try:
        folder.mkdir(exist_ok=True)
        if folder.is_symlink():
            raise StateStoreError(
                f"cannot write to {folder}: it is a symbolic link, which readers do not follow"
            )
        for each in wanted:
            if not has_file(folder, each):
                write_blob_file(folder, each)
        sync_folder(folder)
        sync_folder(folder.parent)
    except OSError as error:
        raise StateStoreError(f"cannot write to {folder}: {error.strerror or error}") from error
    return folder.name


def has_file(folder: Path, blob: DocumentBlob) -> bool:
    """Return whether a folder has the file of a blob, with the right content."""
    try:
        FolderBlob(folder.parent, f"{folder.name}/{blob.digest}", blob.digest, blob.size).source()
    except (NotFoundError, InvalidDocumentError):
        return False
    return True


def write_blob_file(folder: Path, blob: DocumentBlob) -> None:
    """Write the file of a blob under a temporary name, sync it and rename it."""
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    try:
        with temporary.open("xb") as file:
            for chunk in blob.chunks():
                file.write(chunk)
            file.flush()
            sync_descriptor(file.fileno())
        temporary.replace(folder / blob.digest)
    finally:
        temporary.unlink(missing_ok=True)
