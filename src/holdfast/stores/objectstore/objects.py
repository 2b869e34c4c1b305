"""Objects in a bucket: read, written under a condition, and listed.

Every write has a condition that holds at most once: that nothing is there, or the etag of what is.
A request that its sender has given up, because the answer got lost or took too long, may arrive
long after, and then must not undo what others have been told is done.
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
from holdfast.stores.objectstore.buckets import (
    EMPTY,
    NO_BUCKET,
    Bucket,
    explain_error,
    format_error,
)
from holdfast.stores.objectstore.names import HEAD_SIZE, StoredObject, parse_header
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from obstore import GetOptions, ObjectMeta, PutMode, PutResult

Item = TypeVar("Item")
Result = TypeVar("Result")

AT_ONCE = 16
REFUSALS = (AlreadyExistsError, PreconditionError, FileNotFoundError)
# Neither a list of etags nor the star, which matches any.
ETAG = re.compile(r'"[!#-)+\--~]+"|[0-9]+')


class BucketObjects(RemoteStateStore[Bucket]):
    """What a store does to single objects, under a root."""

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

    async def _write(self, bucket: Bucket, path: str, body: bytes, mode: PutMode) -> str | None:
        """Write an object; its etag, or None where the service says that the condition fails."""
        try:
            answer = await obstore.put_async(bucket, path, body, mode=mode, use_multipart=False)
        except REFUSALS as error:
            if NO_BUCKET.search(str(error)):
                raise
            return None
        return self._etag(answer)

    async def _read(self, bucket: Bucket, path: str, *, whole: bool = False) -> StoredObject | None:
        """What is there: all of it, or what it begins with."""
        options: GetOptions = {} if whole else {"range": (0, HEAD_SIZE)}
        try:
            answer = await obstore.get_async(bucket, path, options=options)
            body = memoryview(await answer.bytes_async())
        except FileNotFoundError as error:
            if NO_BUCKET.search(str(error)):
                raise
            return None
        except BaseError as error:
            if EMPTY.search(str(error)):
                raise self._foreign(path) from error
            raise
        head = parse_header(bytes(body[:HEAD_SIZE]))
        if head is None:
            raise self._foreign(path)
        return StoredObject(self._etag(answer.meta), head, body, answer.meta["last_modified"])

    def _foreign(self, path: str) -> StateStoreError:
        return StateStoreError(
            f"the object {short_repr(path)} in {self.place} was not written by Holdfast: remove it, "
            "or give the store a prefix of its own"
        )

    def _etag(self, answer: PutResult | ObjectMeta) -> str:
        etag = answer["version"] if self._url.scheme == "gs" else answer["e_tag"]
        if etag is None or not ETAG.fullmatch(etag):
            raise StateStoreError(
                f"{self.place} gave {short_repr(etag)} as the etag of an object, which no condition can "
                "name: a service without strong etags cannot keep state"
            )
        return etag

    def _mode(self, etag: str | None) -> PutMode:
        """The condition that an object has this etag; that there is none."""
        if etag is None:
            return "create"
        return {"version": etag} if self._url.scheme == "gs" else {"e_tag": etag}

    async def _listing(
        self, folder: str, after: str | None
    ) -> AsyncGenerator[Sequence[ObjectMeta], None]:
        """The objects in a folder and all below it, a request at a time."""

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
                f"{self.place} cannot be opened: {format_error(error)}"
            ) from error
        # Whether it is there and may be used shows here, before anything is written.
        await anext(aiter(obstore.list(bucket, self._root, chunk_size=1)), None)
        return bucket

    async def _disconnect(self, client: Bucket) -> None:  # noqa: ARG002 - nothing to give back
        return

    def _explained(self, error: Exception) -> StateStoreError:
        return explain_error(error, self._url.scheme, self.place)


async def run_for_each(
    work: Callable[[Item], Awaitable[Result]], items: Sequence[Item]
) -> list[Result]:
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
