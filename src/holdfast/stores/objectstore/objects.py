"""Objects in a bucket: read, write under a condition, and list.

Every write has a condition that holds at most once: that the object does not exist, or its etag. A
request that its sender has given up on, because the response was lost or late, may still arrive,
and must not undo a newer acknowledged write then.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.backend import PAGE_SIZE
from holdfast.stores.objectstore.bodies import MAX_HEADER_SIZE, StoredObject, parse_header
from holdfast.stores.objectstore.buckets import Bucket, BucketFactory
from holdfast.stores.objectstore.errors import (
    explain_error,
    format_error,
    http_status,
    is_missing_bucket,
)
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode, PutResult

Item = TypeVar("Item")
Result = TypeVar("Result")

MAX_CONCURRENT = 16
CONDITION_FAILED = (AlreadyExistsError, PreconditionError, FileNotFoundError)
RANGE_NOT_SATISFIABLE = 416  # for the first bytes of an empty object
# Neither a list of etags nor the star, which matches any.
ETAG = re.compile(r'"[!#-)+\--~]+"|[0-9]+')


class BucketObjects(RemoteStateStore[Bucket]):
    """The operations on single objects below a root."""

    failures = (BaseError, FileNotFoundError)

    def __init__(
        self,
        url: StoreURL,
        new_bucket: BucketFactory,
        *,
        root: str = "",
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(url, timeout=timeout, patience=patience)
        self._new_bucket = new_bucket
        self._root = root

    async def _write(self, bucket: Bucket, path: str, body: bytes, mode: PutMode) -> str | None:
        """Write an object and return its etag, or None if its condition does not hold."""
        try:
            answer = await obstore.put_async(bucket, path, body, mode=mode, use_multipart=False)
        except CONDITION_FAILED as error:
            if is_missing_bucket(error):
                raise
            return None
        return self._etag(answer)

    async def _read(self, bucket: Bucket, path: str, *, whole: bool = False) -> StoredObject | None:
        """Return an object, with its whole body or the beginning of it, or None."""
        options: GetOptions = {} if whole else {"range": (0, MAX_HEADER_SIZE)}
        try:
            answer = await obstore.get_async(bucket, path, options=options)
            body = memoryview(await answer.bytes_async())
        except FileNotFoundError as error:
            if is_missing_bucket(error):
                raise
            return None
        except BaseError as error:
            if http_status(error) == RANGE_NOT_SATISFIABLE:
                raise self._unknown_object(path) from error
            raise
        header = parse_header(bytes(body[:MAX_HEADER_SIZE]))
        if header is None:
            raise self._unknown_object(path)
        return StoredObject(self._etag(answer.meta), header, body, answer.meta["last_modified"])

    def _unknown_object(self, path: str) -> StateStoreError:
        return StateStoreError(
            f"object {short_repr(path)} in {self.display_url} was not written by Holdfast; remove "
            "it, or give the store its own prefix"
        )

    def _etag(self, answer: PutResult | ObjectMeta) -> str:
        etag = answer["version"] if self._url.scheme == "gs" else answer["e_tag"]
        if etag is None or not ETAG.fullmatch(etag):
            raise StateStoreError(
                f"{self.display_url} returned the etag {short_repr(etag)}, which cannot be used in "
                "a condition; use a service with strong etags"
            )
        return etag

    def _mode(self, etag: str | None) -> PutMode:
        """Return the condition that an object has this etag, or does not exist if it is None."""
        if etag is None:
            return "create"
        return {"version": etag} if self._url.scheme == "gs" else {"e_tag": etag}

    async def _list_objects(
        self, folder: str, after: str | None
    ) -> AsyncGenerator[Sequence[ObjectMeta], None]:
        """Yield the objects in a folder and below it, one page at a time."""

        async def first(bucket: Bucket) -> Sequence[ObjectMeta]:
            listing = obstore.list(bucket, folder, offset=after, chunk_size=PAGE_SIZE)
            return await anext(aiter(listing), [])

        while True:
            objects = await self._run(lambda bucket, _: first(bucket))
            yield objects
            if len(objects) < PAGE_SIZE:
                return
            after = objects[-1]["path"]

    async def _connect(self) -> Bucket:
        try:
            bucket = self._new_bucket()
        except BaseError as error:
            raise StateStoreError(
                f"cannot open {self.display_url}: {format_error(error)}"
            ) from error
        # Fails now, before anything is written, if the bucket is missing or access is denied.
        await anext(aiter(obstore.list(bucket, self._root, chunk_size=1)), None)
        return bucket

    async def _disconnect(self, client: Bucket) -> None:  # noqa: ARG002 - nothing to close
        return

    def _explain_error(self, error: Exception) -> StateStoreError:
        return explain_error(error, self._url.scheme, self.display_url)


async def run_for_each(
    work: Callable[[Item], Awaitable[Result]], items: Sequence[Item]
) -> list[Result]:
    """Return the results of the work for each item, ``MAX_CONCURRENT`` at a time."""
    slots = asyncio.Semaphore(MAX_CONCURRENT)

    async def run(item: Item) -> Result:
        async with slots:
            return await work(item)

    tasks = [asyncio.ensure_future(run(item)) for item in items]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()  # those still running after a failure
