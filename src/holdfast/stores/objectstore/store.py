"""State in a bucket: one object per key, written under the service's own conditions.

So of two concurrent writers one wins, wherever they run. ``names.py`` and ``bodies.py`` say how an
object is named and what it contains.

An abandoned request may still arrive, and without a condition it would undo newer acknowledged
writes. So every write has one. A ``put`` without a condition first reads the beginning of the
object, and replaces exactly that; if another writer was faster, it tries again. An attempt whose
response was lost is retried under the same condition only, so that it is applied at most once.

For the same reason ``delete`` removes nothing, because not all services have a conditional delete:
it replaces the object, under a condition, by a tombstone, which counts as absent and is replaced by
a later write. A tombstone takes 49 bytes until ``sweep`` or a lifecycle rule removes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.backend import etag_mismatch_error, key_exists_error
from holdfast.stores.base import Entry, Put
from holdfast.stores.objectstore.bodies import (
    StoredObject,
    entry_body,
    new_token,
    tombstone_body,
)
from holdfast.stores.objectstore.buckets import Bucket, BucketFactory, bucket_factory, parse_root
from holdfast.stores.objectstore.names import (
    is_shortened,
    iterate_keys,
    listing_window,
    object_name,
)
from holdfast.stores.objectstore.objects import ETAG, run_for_each
from holdfast.stores.objectstore.sweep import SweepableBucket, is_being_removed
from holdfast.stores.remote import PATIENCE, TIMEOUT
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

if TYPE_CHECKING:
    from obstore import PutMode

MAX_CACHED_KEYS = 4096


class ObjectStateStore(SweepableBucket):
    """A store in a bucket, as durable as the service.

    ``put_many`` writes in order, up to the first failure. Deleted keys leave tombstones: see
    ``sweep``. Needs permission to list, read and write, and to delete only for ``sweep``.
    """

    def __init__(
        self,
        url: StoreURL,
        new_bucket: BucketFactory,
        *,
        root: str = "",
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(url, new_bucket, root=root, timeout=timeout, patience=patience)
        self._keys_of_shortened: dict[str, str] = {}
        self._write_locks: WeakValueDictionary[tuple[int, str], asyncio.Lock] = (
            WeakValueDictionary()
        )

    # ---- one key -----------------------------------------------------------------------------

    async def _get(self, key: str) -> Entry | None:
        path = self._root + object_name(key)
        found = await self._run(lambda bucket, _: self._read(bucket, path, whole=True))
        if found is None or found.entry_etag is None:
            return None
        return Entry(bytes(found.body[found.header.size :]), found.entry_etag)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        entries = await run_for_each(self._get, keys)
        return {key: entry for key, entry in zip(keys, entries, strict=True) if entry is not None}

    async def _put(self, put: Put) -> str:
        name = object_name(put.key)
        path = self._root + name
        token = new_token()
        body = entry_body(put.value, token, put.key if is_shortened(name) else "")
        conditional = put.if_absent or put.if_match is not None
        possible = put.if_match is None or ETAG.fullmatch(put.if_match) is not None
        sent: PutMode | None = None  # the condition of an attempt that may be applied, even late

        async def write(bucket: Bucket, *, unsure: bool) -> str:
            nonlocal sent
            earlier = sent if unsure else None
            if conditional and possible and earlier is None:
                sent = self._mode(put.if_match)
                if etag := await self._write(bucket, path, body, sent):
                    return etag
                sent = None
            found = await self._read(bucket, path)
            if found is not None and found.header.token == token:
                return found.etag  # an earlier attempt succeeded, and its response was lost
            mode = self._mode_to_replace(put, found, token)
            if earlier not in (None, mode):
                raise self._changed_since(put.key, "written")
            sent = mode
            if etag := await self._write(bucket, path, body, mode):
                return etag
            sent = earlier
            raise self._overtaken(put.key)

        async def write_in_turn(bucket: Bucket, *, unsure: bool) -> str:
            async with self._write_lock(path, put.if_match):
                return await write(bucket, unsure=unsure)

        return await self._run(
            lambda bucket, unsure: write_in_turn(bucket, unsure=unsure),
            writes=True,
            matches=conditional,
        )

    def _mode_to_replace(self, put: Put, found: StoredObject | None, token: str) -> PutMode:
        """Return the condition to replace what was found, if the put allows it."""
        if found is not None and found.header.deleted == token:
            raise self._changed_since(put.key, "deleted")
        etag = None if found is None else found.entry_etag
        if put.if_match is not None and put.if_match != etag:
            raise etag_mismatch_error(put.key, put.if_match, etag)
        if put.if_absent and etag is not None:
            raise key_exists_error(put.key)
        if found is not None and is_being_removed(found):
            raise self._being_swept(put.key)
        return self._mode(None if found is None else found.etag)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        path = self._root + object_name(key)
        token = new_token()
        sent: StoredObject | None = None  # the entry that an attempt may have deleted, or may yet

        async def delete(bucket: Bucket, *, unsure: bool) -> bool:
            nonlocal sent
            earlier = sent if unsure else None
            found = await self._read(bucket, path)
            if found is not None and found.header.token == token:
                return True  # an earlier attempt succeeded, and its response was lost
            etag = None if found is None else found.entry_etag
            if if_match is not None and if_match != etag:
                raise etag_mismatch_error(key, if_match, etag)
            if earlier is not None and earlier.etag != etag:
                # The entry to delete is gone. What exists now is newer and stays. Only a tombstone
                # of that entry proves that another writer deleted it.
                return found is None or found.header.deleted != earlier.header.token
            if found is None or etag is None:
                return False
            sent = found
            body = tombstone_body(found.header.token, token)
            if not await self._write(bucket, path, body, self._mode(etag)):
                sent = earlier
                raise self._overtaken(key)
            return True

        async def delete_in_turn(bucket: Bucket, *, unsure: bool) -> bool:
            async with self._write_lock(path, if_match):
                return await delete(bucket, unsure=unsure)

        return await self._run(
            lambda bucket, unsure: delete_in_turn(bucket, unsure=unsure),
            writes=True,
            matches=if_match is not None,
        )

    def _write_lock(
        self, path: str, if_match: str | None
    ) -> AbstractAsyncContextManager[object, bool | None]:
        """Return a lock for writers of this process that would otherwise overtake each other."""
        if if_match is not None:
            return nullcontext()
        loop = id(asyncio.get_running_loop())
        return self._write_locks.setdefault((loop, path), asyncio.Lock())

    # ---- listing -----------------------------------------------------------------------------

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        keys: list[str] = []
        if key_range.high is not None and key_range.low >= key_range.high:
            return keys
        window = listing_window(key_range)
        after = None if window.after is None else self._root + window.after
        listing = self._list_objects(self._root + window.folder, after)
        async with aclosing(iterate_keys(listing, self._root, self._read_keys)) as found:
            async for key in found:
                if key_range.high is not None and key >= key_range.high:
                    break
                if not key_range.contains(key):
                    continue
                if keys and key <= keys[-1]:
                    raise StateStoreError(
                        f"{self.display_url} does not list names in order, which state needs; use "
                        "a bucket that does, not a directory bucket"
                    )
                keys.append(key)
                if len(keys) == count:
                    break
        return keys

    async def _read_keys(self, names: list[str]) -> list[str]:
        """Return the keys of shortened names, without those that were deleted since."""

        async def read(name: str) -> str | None:
            if name not in self._keys_of_shortened:
                path = self._root + name
                found = await self._run(lambda bucket, _: self._read(bucket, path))
                if found is None or object_name(found.header.key) != name:
                    return None
                self._keys_of_shortened[name] = found.header.key
            return self._keys_of_shortened[name]

        keys = [key for key in await run_for_each(read, names) if key is not None]
        while len(self._keys_of_shortened) > MAX_CACHED_KEYS:
            del self._keys_of_shortened[next(iter(self._keys_of_shortened))]
        return keys

    # ---- errors ------------------------------------------------------------------------------

    def _overtaken(self, key: str) -> StateStoreError:
        return StateStoreError(
            f"{self.display_url} rejected a write of key {short_repr(key)}, because of concurrent "
            "writers; retry",
            transient=True,
        )

    def _changed_since(self, key: str, how: str) -> StateStoreError:
        return StateStoreError(
            f"the response to a write of key {short_repr(key)} was lost, and the key was {how} "
            "since; read it again",
            unknown=True,
        )

    def _being_swept(self, key: str) -> StateStoreError:
        return StateStoreError(
            f"{self.display_url} is removing the tombstone of key {short_repr(key)}; retry, or "
            "wait half an hour if that sweep was killed",
            transient=True,
        )


def open_url(url: StoreURL) -> ObjectStateStore:
    """Open ``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``."""
    root = parse_root(url)
    timeout = url.take_number("timeout", TIMEOUT, least=0.001)
    patience = url.take_number("patience", PATIENCE)
    new_bucket = bucket_factory(url, timeout)
    return ObjectStateStore(url, new_bucket, root=root, timeout=timeout, patience=patience)
