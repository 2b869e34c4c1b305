"""State in a bucket: Amazon S3 and all that speaks its protocol, Google Cloud Storage, Azure Blobs.

An object a key, written under the service's own conditions, so that of two writers one wins,
wherever they run. ``names.py`` tells what an object is called and how its body begins.

A delete without a condition may arrive late and remove what somebody has written meanwhile, and no
client has one with a condition for all of these services. So nothing is removed here: a key is
deleted by writing, under a condition, an object that says so. It counts as absent, and a later
write replaces it. What stays is 49 bytes a deleted key, until ``sweep`` or a rule of the bucket
removes them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from holdfast.errors import StateStoreError, shown
from holdfast.stores.backend import PAGE, already_there, not_matching
from holdfast.stores.contract import Entry, Put
from holdfast.stores.gate import Span
from holdfast.stores.objectstore.buckets import (
    NO_BUCKET,
    Bucket,
    bucket_of,
    explained,
    root_of,
    said,
)
from holdfast.stores.objectstore.names import (
    ENDED_SIZE,
    HEAD_SIZE,
    Found,
    ended_body,
    entry_body,
    keys_in_order,
    new_token,
    object_name,
    read_head,
    window,
)
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode, PutResult

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 16
CUT_NAMES_KEPT = 4096
DAY = 86_400.0

CONFLICTS = (AlreadyExistsError, PreconditionError)
# Neither a list of etags nor the star, which matches any.
ETAG = re.compile(r'"[!#-)+\--~]+"|[0-9]+')


class ObjectStateStore(RemoteStateStore[Bucket]):
    """A ``StateStore`` in a bucket. What was acknowledged is as durable as the service keeps it.

    ``put_many`` writes in order and stops at the first that fails. Deleted keys leave a mark: see
    ``sweep``. It needs the rights to list, read and write, and none to delete but for ``sweep``.
    """

    failures = (BaseError, FileNotFoundError)

    def __init__(
        self,
        url: StoreURL,
        new_bucket: Callable[[], Bucket],
        *,
        root: str = "",
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._new_bucket = new_bucket
        self._root = root
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
        entries = await each(self._get, keys)
        return {key: entry for key, entry in zip(keys, entries, strict=True) if entry is not None}

    async def _put(self, put: Put) -> str:
        path = self._root + object_name(put.key)
        token = new_token()
        body = entry_body(put.key, put.value, token)
        mode = self._mode(put.if_match, if_absent=put.if_absent)
        possible = put.if_match is None or ETAG.fullmatch(put.if_match) is not None

        async def write(bucket: Bucket) -> str:
            if possible and (etag := await self._write(bucket, path, body, mode)):
                return etag
            found = await self._read(bucket, path)
            if found is not None and found.head.token == token:
                return found.etag  # An earlier attempt did it, and its answer got lost.
            if found is not None and found.head.ended == token:
                raise self._deleted_since(put.key)
            now = None if found is None else found.entry
            if put.if_match is not None and put.if_match != now:
                raise not_matching(put.key, put.if_match, now)
            if put.if_absent and now is not None:
                raise already_there(put.key)
            if put.if_absent and found is not None:
                over = self._mode(found.etag)
                if etag := await self._write(bucket, path, body, over):
                    return etag
            raise self._raced(put.key)

        return await self._run(
            lambda bucket, _: write(bucket),
            writes=True,
            matches=put.if_absent or put.if_match is not None,
        )

    async def _delete(self, key: str, if_match: str | None) -> bool:
        path = self._root + object_name(key)
        token = new_token()

        async def end(bucket: Bucket) -> bool:
            found = await self._read(bucket, path)
            if found is not None and found.head.token == token:
                return True  # An earlier attempt did it, and its answer got lost.
            now = None if found is None else found.entry
            if if_match is not None and if_match != now:
                raise not_matching(key, if_match, now)
            if found is None or now is None:
                return False
            body = ended_body(found.head.token, token)
            if not await self._write(bucket, path, body, self._mode(now)):
                raise self._raced(key)
            return True

        return await self._run(
            lambda bucket, _: end(bucket), writes=True, matches=if_match is not None
        )

    async def _write(self, bucket: Bucket, path: str, body: bytes, mode: PutMode) -> str | None:
        """Write an object; its etag, or None where the service says that the condition fails."""
        # Services keep those waiting who create one object at once, or turn them away; those of
        # this process take turns.
        turn = self._turns.setdefault((id(asyncio.get_running_loop()), path), asyncio.Lock())
        async with turn if mode == "create" else nullcontext():
            try:
                answer = await obstore.put_async(bucket, path, body, mode=mode, use_multipart=False)
            except CONFLICTS:
                return None
        return self._etag(answer)

    async def _read(self, bucket: Bucket, path: str, *, whole: bool = False) -> Found | None:
        """What is there: all of it, or what it begins with."""
        options: GetOptions = {} if whole else {"range": (0, HEAD_SIZE)}
        try:
            answer = await obstore.get_async(bucket, path, options=options)
            body = memoryview(await answer.bytes_async())
        except FileNotFoundError as error:
            if NO_BUCKET.search(str(error)):
                raise
            return None
        head = read_head(bytes(body[:HEAD_SIZE]))
        if head is None:
            raise StateStoreError(
                f"the object {shown(path)} in {self.place} was not written by Holdfast: remove it, "
                "or give the store a prefix of its own"
            )
        return Found(self._etag(answer.meta), head, body)

    def _etag(self, answer: PutResult | ObjectMeta) -> str:
        etag = answer["version"] if self._url.scheme == "gs" else answer["e_tag"]
        if etag is None or not ETAG.fullmatch(etag):
            raise StateStoreError(
                f"{self.place} gave {shown(etag)} as the etag of an object, which no condition can "
                "name: a service without strong etags cannot keep state"
            )
        return etag

    def _mode(self, etag: str | None, *, if_absent: bool = False) -> PutMode:
        if etag is None:
            return "create" if if_absent else "overwrite"
        return {"version": etag} if self._url.scheme == "gs" else {"e_tag": etag}

    # ---- listing -----------------------------------------------------------------------------

    async def _page(self, span: Span, count: int) -> Sequence[str]:
        keys: list[str] = []
        if span.high is not None and span.low >= span.high:
            return keys
        part = window(span)
        after = None if part.after is None else self._root + part.after
        listing = self._listing(self._root + part.folder, after)
        async with aclosing(keys_in_order(listing, self._root, self._uncut)) as found:
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

    async def _listing(
        self, folder: str, after: str | None
    ) -> AsyncGenerator[Sequence[ObjectMeta], None]:
        """The objects in a folder and all below it, a request at a time."""

        async def first(bucket: Bucket) -> Sequence[ObjectMeta]:
            listing = obstore.list(bucket, folder, offset=after, chunk_size=PAGE)
            return await anext(aiter(listing), [])

        while True:
            objects = await self._run(lambda bucket, _: first(bucket))
            yield objects
            if len(objects) < PAGE:
                return
            after = objects[-1]["path"]

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

        keys = [key for key in await each(read, names) if key is not None]
        while len(self._cut_names) > CUT_NAMES_KEPT:
            del self._cut_names[next(iter(self._cut_names))]
        return keys

    # ---- what deleted keys leave behind ------------------------------------------------------

    async def sweep(self, *, older_than: float = DAY) -> int:
        """Remove the marks that deleted keys left so many seconds ago; how many there were.

        A key that is written again in the moment in which its mark is removed is lost with it. So
        call it where nobody writes keys again that were deleted so long ago; ids of sessions and
        snapshots do not come again.
        """
        self._check_open()
        swept = 0
        async with aclosing(self._listing(self._root, None)) as listing:
            async for objects in listing:
                latest = datetime.now(UTC) - timedelta(seconds=older_than)
                marks = [
                    one["path"]
                    for one in objects
                    if one["size"] == ENDED_SIZE and one["last_modified"] <= latest
                ]
                swept += sum(await each(self._sweep_one, marks))
        return swept

    async def _sweep_one(self, path: str) -> bool:
        async def remove(bucket: Bucket) -> bool:
            found = await self._read(bucket, path)
            if found is None or found.entry is not None:
                return False
            await obstore.delete_async(bucket, path)
            return True

        return await self._run(lambda bucket, _: remove(bucket), writes=True)

    # ---- the bucket --------------------------------------------------------------------------

    async def _connect(self) -> Bucket:
        try:
            bucket = self._new_bucket()
        except BaseError as error:
            raise StateStoreError(f"{self.place} cannot be opened: {said(error)}") from error
        # Whether it is there and may be used shows here, before anything is written.
        await anext(aiter(obstore.list(bucket, self._root, chunk_size=1)), None)
        self._reached = True
        return bucket

    async def _disconnect(self, client: Bucket) -> None:  # noqa: ARG002 - nothing to give back
        return

    def _raced(self, key: str) -> StateStoreError:
        return StateStoreError(
            f"{self.place} did not take a write of the key {shown(key)}, as others wrote it at the "
            "same time: try again",
            transient=True,
        )

    def _deleted_since(self, key: str) -> StateStoreError:
        return StateStoreError(
            f"the answer to a write of the key {shown(key)} got lost, and it was deleted since",
            unknown=True,
        )

    def _explained(self, error: Exception) -> StateStoreError:
        return explained(error, self._url.scheme, self.place)


async def each(work: Callable[[Item], Awaitable[Result]], items: Sequence[Item]) -> list[Result]:
    """What the work gives for each, at most so many at once."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(item: Item) -> Result:
        async with gate:
            return await work(item)

    tasks = [asyncio.ensure_future(one(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()  # what the failure of another left undone


def open_url(url: StoreURL) -> ObjectStateStore:
    """``s3://bucket/prefix``, ``gs://bucket/prefix`` or ``az://container/prefix``."""
    root = root_of(url)
    timeout = url.take_number("timeout", TIMEOUT, least=0.001)
    patience = url.take_number("patience", PATIENCE)
    new_bucket = bucket_of(url, timeout)
    return ObjectStateStore(url, new_bucket, root=root, timeout=timeout, patience=patience)
