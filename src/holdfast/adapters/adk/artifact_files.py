"""Versions of files in a state store.

    adk/artifacts/<app>/<user>/user/…                  files that the sessions of a user share
    adk/artifacts/<app>/<user>/sessions/<session>/…    files of a session
      versions/<file name>/<version, 12 digits>.json   one version
      contents/<file name>/blobs/…                     the contents of large versions, each once

The record of a version is written last, and only if it does not exist: of two writers one gets the
next number. It has the digest of the content, which every load checks. A crash before the record
leaves a blob that is deleted with the file. Earlier versions of Holdfast stored large contents in
chunks of their own, below ``chunks/<file name>/<id>/``.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from holdfast.blobs.keys import blobs_prefix
from holdfast.blobs.reader import BlobReader
from holdfast.blobs.source import BytesSource
from holdfast.blobs.writer import BlobWriter
from holdfast.errors import ConflictError, IntegrityError, NotFoundError
from holdfast.snapshots.discovery import iterate_folders
from holdfast.snapshots.keys import quote_id, unquote_id
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import split_batches

PREFIX = "adk/artifacts/"
ALGORITHM = "sha256:"
DIGEST = re.compile(f"{ALGORITHM}[0-9a-f]{{64}}")
MAX_INLINE = 64 * 1024
"""The largest content in bytes that is stored in the record itself."""
CHUNKS_AT_ONCE = 8
LAST_VERSION = 10**12 - 1


@dataclass(frozen=True, slots=True)
class FileVersion:
    """One version of a file, without its content."""

    number: int
    fields: dict[str, Any]
    """What the caller stored with it."""
    digest: str
    """The sha256 of its content in hexadecimal."""
    size: int | None
    inline: str | None
    """The content in base64, if it is in the record."""
    chunk_keys: tuple[str, ...]
    """The keys of the chunks, if it is not a blob."""


def scope_prefix(app_name: str, user_id: str, session_id: str | None) -> str:
    """Return the prefix of the files of a session, or of those that a user's sessions share."""
    prefix = f"{PREFIX}{quote_id(app_name)}/{quote_id(user_id)}/"
    return f"{prefix}user/" if session_id is None else f"{prefix}sessions/{quote_id(session_id)}/"


class VersionedFile:
    """A file and its versions, numbered from 0."""

    def __init__(self, state_store: StateStore, scope: str, name: str) -> None:
        self.state_store = state_store
        self.name = name
        self.versions_prefix = f"{scope}versions/{quote_id(name)}/"
        self.chunks_prefix = f"{scope}chunks/{quote_id(name)}/"
        self.contents_prefix = f"{scope}contents/{quote_id(name)}/"

    # -------------------------------------------------------------------------------- writing

    async def add(self, fields: dict[str, Any], content: bytes) -> int:
        """Write a new version and return its number.

        Raises:
            StateStoreError: The store failed.

        """
        source = BytesSource(content)
        digest = f"{ALGORITHM}{source.digest}"
        record: dict[str, Any] = {**fields, "size": source.size, "digest": digest}
        if source.size <= MAX_INLINE:
            record["content"] = b64encode(content).decode()
        else:
            await BlobWriter(self.state_store, self.contents_prefix).write([source])
        data = json.dumps(record).encode()  # ASCII, as a lone surrogate has no UTF-8
        numbers = await self.list_numbers()
        number = numbers[-1] + 1 if numbers else 0
        while True:
            try:
                await self.state_store.put(self._key(number), data, if_absent=True)
            except ConflictError:
                number += 1  # a concurrent writer took it
            else:
                return number

    async def delete(self) -> None:
        """Delete all versions, the newest first, and their content.

        Raises:
            StateStoreError: The store failed.

        """
        keys = [key async for key in self.state_store.list(self.versions_prefix)]
        keys.reverse()
        for prefix in (self.chunks_prefix, blobs_prefix(self.contents_prefix)):
            keys += [key async for key in self.state_store.list(prefix)]
        for key in keys:
            await self.state_store.delete(key)

    # -------------------------------------------------------------------------------- reading

    async def list_numbers(self) -> list[int]:
        """Return the numbers of all versions, without reading them.

        Raises:
            StateStoreError: The store failed.

        """
        found = []
        async for key in self.state_store.list(self.versions_prefix):
            text = key[len(self.versions_prefix) :].removesuffix(".json")
            if len(text) == 12 and text.isascii() and text.isdigit():
                found.append(int(text))
        return found

    async def find(self, number: int | None) -> FileVersion | None:
        """Return a version, by default the newest, or None if it does not exist.

        Raises:
            IntegrityError: Its record is damaged.
            StateStoreError: The store failed.

        """
        if number is None:
            numbers = await self.list_numbers()
            if not numbers:
                return None
            number = numbers[-1]
        if not 0 <= number <= LAST_VERSION:
            return None
        entry = await self.state_store.get(self._key(number))
        return None if entry is None else self._decode(number, entry.value)

    async def find_all(self) -> list[FileVersion]:
        """Return all versions.

        Raises:
            IntegrityError: A record is damaged.
            StateStoreError: The store failed.

        """
        keys = {self._key(number): number for number in await self.list_numbers()}
        entries = await self.state_store.get_many(keys)
        return [self._decode(keys[key], entry.value) for key, entry in entries.items()]

    async def read(self, version: FileVersion) -> bytes:
        """Return the content of a version.

        Raises:
            IntegrityError: The content is damaged or incomplete.
            StateStoreError: The store failed.

        """
        try:
            if version.inline is not None:
                content = b64decode(version.inline, validate=True)
            elif version.chunk_keys:
                content = await self._read_chunks(version)
            else:
                reader = BlobReader(self.state_store, self.contents_prefix)
                return await reader.read(version.digest, version.size)
        except (binascii.Error, ValueError, NotFoundError, IntegrityError) as error:
            raise self._damaged_error(version.number) from error
        if sha256(content).hexdigest() != version.digest:
            raise self._damaged_error(version.number)
        return content

    async def _read_chunks(self, version: FileVersion) -> bytes:
        """Return a content that an earlier version of Holdfast stored."""
        content = b""
        for keys in split_batches(version.chunk_keys, CHUNKS_AT_ONCE):
            entries = await self.state_store.get_many(keys)
            content += b"".join(entries[key].value for key in keys if key in entries)
        return content

    def _decode(self, number: int, data: bytes) -> FileVersion:
        """Return a stored version, which may be damaged."""
        try:
            record = json.loads(data)
        except ValueError:
            record = None
        if isinstance(record, dict):
            digest, inline = record.pop("digest", None), record.pop("content", None)
            chunks, size = record.pop("chunks", []), record.get("size")
            if (
                isinstance(digest, str)
                and DIGEST.fullmatch(digest)
                and isinstance(inline, str | None)
                and isinstance(chunks, list)
                and all(isinstance(each, str) for each in chunks)
            ):
                keys = tuple(f"{self.chunks_prefix}{each}" for each in chunks)
                known = size if type(size) is int else None
                name = digest.removeprefix(ALGORITHM)
                return FileVersion(number, record, name, known, inline, keys)
        raise self._damaged_error(number)

    def _key(self, number: int) -> str:
        return f"{self.versions_prefix}{number:012}.json"

    def _damaged_error(self, number: int) -> IntegrityError:
        return IntegrityError(
            f"version {number} of artifact {self.name!r} is damaged in the store "
            f"({self._key(number)}); restore it from a backup, or save the artifact again"
        )


async def list_file_names(state_store: StateStore, scope: str) -> list[str]:
    """Return the names of the files with a prefix, without reading them.

    Raises:
        StateStoreError: The store failed.

    """
    prefix = f"{scope}versions/"
    folders = iterate_folders(state_store, prefix, prefix.count("/") + 1)
    return [unquote_id(folder[len(prefix) : -1]) async for folder in folders]
