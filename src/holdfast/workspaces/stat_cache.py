"""Remember the digests of files, so that an unchanged file costs a ``stat``.

A file is unchanged if its size, times, inode and mode are. As in Git's index, that is not trusted
for a file that was changed just before it was hashed: a second change within the resolution of its
time would go unnoticed. Such a file is hashed again.

The cache is one file per folder and session in the user's cache folder. It may be removed at any
time: without it, or with one that is damaged, every file is hashed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import msgspec

from holdfast.workspaces.entries import PERMISSIONS, FileEntry

VERSION = 1
CACHE_VARIABLE = "HOLDFAST_CACHE"
MAX_FILES = 400
RACY_NS = 2_000_000_000
"""How long before a capture a file must have been left alone; FAT counts in two seconds."""

StatKey: TypeAlias = tuple[int, int, int, int, int]
"""Time of the content and of the status in ns, size, inode, mode."""


@dataclass(slots=True)
class StatCache:
    """What is known about the files of a folder from an earlier scan."""

    files: dict[str, tuple[StatKey, FileEntry]] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    """Files that the rules ignore."""
    folders: frozenset[str] = frozenset()
    """Folders that they do not ignore."""
    rules: dict[str, str] = field(default_factory=dict)
    """The fingerprint of the ignore rules in each folder that has ignore files, and in the root."""
    seq: int = 0
    """The event that captured or restored these files, or 0."""


class StoredFile(msgspec.Struct, array_like=True, frozen=True):
    """One file in the cache."""

    path: str
    mtime: int
    ctime: int
    size: int
    inode: int
    mode: int
    digest: str
    link: str | None


class StoredCache(msgspec.Struct, array_like=True, frozen=True):
    """The cache as it is stored."""

    version: int
    owner: str
    rules: dict[str, str]
    ignored: list[str]
    folders: list[str]
    files: list[StoredFile]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(StoredCache)


def cache_folder() -> Path:
    """Return the folder of the caches: in ``HOLDFAST_CACHE``, or in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen) / "workspaces"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        home = Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = None
        home = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME")
        home = Path.home() / ".cache"
    return (Path(base) if base else home) / "holdfast" / "workspaces"


def cache_path(owner: str) -> Path:
    """Return where the cache of a folder and session is stored."""
    return cache_folder() / f"{sha256(owner.encode('utf-8', 'surrogateescape')).hexdigest()}.cache"


def load_cache(owner: str) -> StatCache:
    """Return the cache of a folder and session; an empty one if it is missing or damaged."""
    seq = load_seq(owner)
    try:
        data = cache_path(owner).read_bytes()
        # The digest comes first: a cache that was cut off or edited is not used.
        if sha256(data[32:]).digest() != data[:32]:
            return StatCache(seq=seq)
        stored = _decoder.decode(data[32:])
    except (OSError, RuntimeError, msgspec.MsgspecError):
        return StatCache(seq=seq)
    if stored.version != VERSION or stored.owner != ascii(owner):
        return StatCache(seq=seq)
    files = {
        each.path: (
            (each.mtime, each.ctime, each.size, each.inode, each.mode),
            FileEntry(each.digest, each.size, each.mode & PERMISSIONS)
            if each.link is None
            else FileEntry(link=each.link),
        )
        for each in stored.files
    }
    return StatCache(
        files,
        frozenset(stored.ignored),
        frozenset(stored.folders),
        stored.rules,
        seq,
    )


def save_cache(owner: str, cache: StatCache) -> None:
    """Store the cache of a folder and session. A failure only costs time later."""
    stored = StoredCache(
        VERSION,
        ascii(owner),
        cache.rules,
        sorted(cache.ignored),
        sorted(cache.folders),
        [
            StoredFile(path, *key, entry.digest, entry.link)
            for path, (key, entry) in cache.files.items()
        ],
    )
    with suppress(OSError, RuntimeError):
        data = _encoder.encode(stored)
        path = cache_path(owner)
        write_file(path, sha256(data).digest() + data)
        remove_oldest(path.parent.iterdir())


def load_seq(owner: str) -> int:
    """Return the event that last captured or restored the folder, or 0 if it is unknown."""
    try:
        text = cache_path(owner).with_suffix(".seq").read_text("ascii")
    except (OSError, RuntimeError, ValueError):
        return 0
    return int(text) if text.isdecimal() else 0


def save_seq(owner: str, seq: int) -> None:
    """Store the event that last captured or restored the folder, whether or not the cache is."""
    with suppress(OSError, RuntimeError):
        path = cache_path(owner).with_suffix(".seq")
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.write_text(str(seq), "ascii")


def write_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        Path(temporary).replace(path)
    except OSError:
        Path(temporary).unlink()
        raise


def remove_oldest(paths: Iterable[Path]) -> None:
    """Remove the files that were not written for the longest time, beyond a number."""
    found = list(paths)
    if len(found) <= MAX_FILES:
        return
    found.sort(key=lambda path: path.stat().st_mtime)
    for path in found[:-MAX_FILES]:
        path.unlink(missing_ok=True)
