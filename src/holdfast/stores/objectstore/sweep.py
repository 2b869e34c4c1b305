"""Removing the marks of deleted keys, without removing what is written in their place.

The services' delete has no condition, and may arrive late. So a mark is removed in two steps. It is
first replaced, under a condition, by one that says that it is going, which nobody writes over. Then
one delete is sent, and never a second. Whoever finds the first step done waits for the second.

Where the second never comes, as its process died, the mark is written over when it has been going
for so long that no delete can be on its way any more: services refuse requests that were signed
more than 15 minutes ago.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import obstore

from holdfast.errors import StateStoreError
from holdfast.stores.objectstore.buckets import Bucket
from holdfast.stores.objectstore.names import (
    TOMBSTONE_SIZE,
    StoredObject,
    new_token,
    tombstone_body,
)
from holdfast.stores.objectstore.objects import AT_ONCE, BucketObjects

DAY = 86_400.0
# Those of the signature, and as many for clocks that differ.
STUCK = 1800.0


class SweepableBucket(BucketObjects):
    """Objects of which some are the marks of deleted keys."""

    async def sweep(self, *, older_than: float = DAY) -> int:
        """Remove the marks that deleted keys left so many seconds ago; how many there were.

        A write of such a key waits until its mark is gone, and is not lost. A sweep that is ended
        in the middle may leave up to 16 keys that refuse writes for half an hour. The age must be
        beyond any time that a request may take to arrive, as marks are what a late one is refused
        for.
        """
        self._check_open()
        swept = 0
        async with aclosing(self._listing(self._root, None)) as listing:
            async for objects in listing:
                latest = datetime.now(UTC) - timedelta(seconds=older_than)
                marks = [
                    one["path"]
                    for one in objects
                    if one["size"] == TOMBSTONE_SIZE and one["last_modified"] <= latest
                ]
                for start in range(0, len(marks), AT_ONCE):
                    swept += await self._sweep_some(marks[start : start + AT_ONCE])
        return swept

    async def _sweep_some(self, paths: list[str]) -> int:
        # All are brought to their end, also where one fails: none is left going.
        answers = await asyncio.gather(*map(self._sweep_one, paths), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sum(answer is True for answer in answers)

    async def _sweep_one(self, path: str) -> bool:
        token = new_token()

        async def announce(bucket: Bucket) -> StoredObject | None:
            found = await self._read(bucket, path)
            if found is None or found.head.token == token:
                return found
            if found.entry is not None or is_being_removed(found):
                return None
            body = tombstone_body(found.head.ended, token, going=True)
            await self._write(bucket, path, body, self._mode(found.etag))
            return await self._read(bucket, path)

        going = await self._run(lambda bucket, _: announce(bucket), writes=True)
        return going is not None and going.head.token == token and await self._remove(path, going)

    async def _remove(self, path: str, going: StoredObject) -> bool:
        async def remove(bucket: Bucket, *, unsure: bool) -> bool:
            if not unsure:
                await obstore.delete_async(bucket, path)
                return True
            found = await self._read(bucket, path)
            return found is None or found.etag != going.etag

        async def put_back(bucket: Bucket) -> None:
            body = tombstone_body(going.head.ended, new_token())
            await self._write(bucket, path, body, self._mode(going.etag))

        try:
            return await self._run(
                lambda bucket, unsure: remove(bucket, unsure=unsure), writes=True
            )
        except StateStoreError as error:
            if not error.unknown:  # It was refused, and will not come late.
                await self._run(lambda bucket, _: put_back(bucket), writes=True)
            raise


def is_being_removed(found: StoredObject) -> bool:
    """Whether a delete of this object may be about to arrive."""
    return found.head.going and datetime.now(UTC) - found.written < timedelta(seconds=STUCK)
