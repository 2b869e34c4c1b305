"""State in a bucket: Amazon S3 and all that speaks its protocol, Google Cloud Storage, Azure Blobs.

An object a key, written under the service's own conditions, so that of two writers one wins,
wherever they run. ``names.py`` tells what an object is called and how its body begins.

A request that was given up, by its caller or as no answer came in time, may still arrive. Without a
condition it would undo what was acknowledged since. So every write has one. A ``put`` that was
given none first reads how the object begins, and then replaces that and nothing else; it does so
again where another was faster. An attempt whose answer got lost is repeated under the same
condition, and no other, so that it is done once or not at all.

For the same reason nothing is removed here, as no client has a delete with a condition for all of
these services: a key is deleted by writing, under a condition, an object that says so. It counts as
absent, and a later write replaces it. What stays is 49 bytes a deleted key, until ``sweep`` or a
rule of the bucket removes them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.backend import etag_mismatch_error, key_exists_error
from holdfast.stores.base import Entry, Put
from holdfast.stores.objectstore.buckets import Bucket, bucket_factory, parse_root
from holdfast.stores.objectstore.names import (
    StoredObject,
    entry_body,
    iterate_keys,
    listing_window,
    new_token,
    object_name,
    tombstone_body,
)
from holdfast.stores.objectstore.objects import ETAG, run_for_each
from holdfast.stores.objectstore.sweep import SweepableBucket, is_being_removed
from holdfast.stores.remote import PATIENCE, TIMEOUT
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

if TYPE_CHECKING:
    from obstore import PutMode

CUT_NAMES_KEPT = 4096


class ObjectStateStore(SweepableBucket):
    """A ``StateStore`` in a bucket. What was acknowledged is as durable as the service keeps it.

    ``put_many`` writes in order and stops at the first that fails. Deleted keys leave a mark: see
    ``sweep``. It needs the rights to list, read and write, and none to delete but for ``sweep``.
    """

    def __init__(
        self,
        url: StoreURL,
        new_bucket: Callable[[], Bucket],
        *,
        root: str = "",
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(url, new_bucket, root=root, timeout=timeout, patience=patience)
        self._cut_names: dict[str, str] = {}
        self._turns: WeakValueDictionary[tuple[int, str], asyncio.Lock] = WeakValueDictionary()

    # ---- one key -----------------------------------------------------------------------------

    async def _get(self, key: str) -> Entry | None:
        path = self._root + object_name(key)
        found = await self._run(lambda bucket, _: self._read(bucket, path, whole=True))
        if found is None or found.entry is None:
            return None
        return Entry(bytes(found.body[found.head.size :]), found.entry)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        entries = await run_for_each(self._get, keys)
        return {key: entry for key, entry in zip(keys, entries, strict=True) if entry is not None}

    async def _put(self, put: Put) -> str:
        path = self._root + object_name(put.key)
        token = new_token()
        body = entry_body(put.key, put.value, token)
        conditional = put.if_absent or put.if_match is not None
        possible = put.if_match is None or ETAG.fullmatch(put.if_match) is not None
        sent: PutMode | None = None  # the condition of what may have been done, or may yet be

        async def write(bucket: Bucket, *, unsure: bool) -> str:
            nonlocal sent
            again = sent if unsure else None
            if conditional and possible and again is None:
                sent = self._mode(put.if_match)
                if etag := await self._write(bucket, path, body, sent):
                    return etag
                sent = None
            found = await self._read(bucket, path)
            if found is not None and found.head.token == token:
                return found.etag  # An earlier attempt did it, and its answer got lost.
            mode = self._mode_over(put, found, token)
            if again not in (None, mode):
                raise self._changed_since(put.key, "written")
            sent = mode
            if etag := await self._write(bucket, path, body, mode):
                return etag
            sent = again
            raise self._raced(put.key)

        async def in_turn(bucket: Bucket, *, unsure: bool) -> str:
            async with self._turn(path, put.if_match):
                return await write(bucket, unsure=unsure)

        return await self._run(
            lambda bucket, unsure: in_turn(bucket, unsure=unsure), writes=True, matches=conditional
        )

    def _mode_over(self, put: Put, found: StoredObject | None, token: str) -> PutMode:
        """The condition to write under where this was found, which must be what the put wants."""
        if found is not None and found.head.ended == token:
            raise self._changed_since(put.key, "deleted")
        now = None if found is None else found.entry
        if put.if_match is not None and put.if_match != now:
            raise etag_mismatch_error(put.key, put.if_match, now)
        if put.if_absent and now is not None:
            raise key_exists_error(put.key)
        if found is not None and is_being_removed(found):
            raise self._being_swept(put.key)
        return self._mode(None if found is None else found.etag)

    async def _delete(self, key: str, if_match: str | None) -> bool:
        path = self._root + object_name(key)
        token = new_token()
        sent: StoredObject | None = None  # the entry that may have been ended, or may yet be

        async def end(bucket: Bucket, *, unsure: bool) -> bool:
            nonlocal sent
            meant = sent if unsure else None
            found = await self._read(bucket, path)
            if found is not None and found.head.token == token:
                return True  # An earlier attempt did it, and its answer got lost.
            now = None if found is None else found.entry
            if if_match is not None and if_match != now:
                raise etag_mismatch_error(key, if_match, now)
            if meant is not None and meant.etag != now:
                # What was to be deleted is no more. What is there now came later and stays. Only a
                # mark that ended the same entry tells that another deleted it.
                return found is None or found.head.ended != meant.head.token
            if found is None or now is None:
                return False
            sent = found
            body = tombstone_body(found.head.token, token)
            if not await self._write(bucket, path, body, self._mode(now)):
                sent = meant
                raise self._raced(key)
            return True

        async def in_turn(bucket: Bucket, *, unsure: bool) -> bool:
            async with self._turn(path, if_match):
                return await end(bucket, unsure=unsure)

        return await self._run(
            lambda bucket, unsure: in_turn(bucket, unsure=unsure),
            writes=True,
            matches=if_match is not None,
        )

    def _turn(
        self, path: str, if_match: str | None
    ) -> AbstractAsyncContextManager[object, bool | None]:
        """Those of this process who would have to try again if another is faster take turns."""
        if if_match is not None:
            return nullcontext()
        loop = id(asyncio.get_running_loop())
        return self._turns.setdefault((loop, path), asyncio.Lock())

    # ---- listing -----------------------------------------------------------------------------

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        keys: list[str] = []
        if span.high is not None and span.low >= span.high:
            return keys
        part = listing_window(span)
        after = None if part.after is None else self._root + part.after
        listing = self._listing(self._root + part.folder, after)
        async with aclosing(iterate_keys(listing, self._root, self._uncut)) as found:
            async for key in found:
                if span.high is not None and key >= span.high:
                    break
                if not span.holds(key):
                    continue
                if keys and key <= keys[-1]:
                    raise StateStoreError(
                        f"{self.place} does not list names in their order, which state needs: "
                        "directory buckets and the like cannot be used"
                    )
                keys.append(key)
                if len(keys) == count:
                    break
        return keys

    async def _uncut(self, names: list[str]) -> list[str]:
        """The keys of names that were cut. What was deleted since tells none."""

        async def read(name: str) -> str | None:
            if name not in self._cut_names:
                path = self._root + name
                found = await self._run(lambda bucket, _: self._read(bucket, path))
                if found is None or object_name(found.head.key) != name:
                    return None
                self._cut_names[name] = found.head.key
            return self._cut_names[name]

        keys = [key for key in await run_for_each(read, names) if key is not None]
        while len(self._cut_names) > CUT_NAMES_KEPT:
            del self._cut_names[next(iter(self._cut_names))]
        return keys

    # ---- errors ------------------------------------------------------------------------------

    def _raced(self, key: str) -> StateStoreError:
        return StateStoreError(
            f"{self.place} did not take a write of the key {short_repr(key)}, as others wrote it at the "
            "same time: try again",
            transient=True,
        )

    def _changed_since(self, key: str, how: str) -> StateStoreError:
        return StateStoreError(
            f"the answer to a write of the key {short_repr(key)} got lost, and it was {how} since",
            unknown=True,
        )

    def _being_swept(self, key: str) -> StateStoreError:
        return StateStoreError(
            f"{self.place} is about to remove what the deleted key {short_repr(key)} left: try again, "
            "and where that sweep was ended in the middle, in half an hour",
            transient=True,
        )


def open_url(url: StoreURL) -> ObjectStateStore:
    """``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``."""
    root = parse_root(url)
    timeout = url.take_number("timeout", TIMEOUT, least=0.001)
    patience = url.take_number("patience", PATIENCE)
    new_bucket = bucket_factory(url, timeout)
    return ObjectStateStore(url, new_bucket, root=root, timeout=timeout, patience=patience)
