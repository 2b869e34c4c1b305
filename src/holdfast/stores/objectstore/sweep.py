"""Remove the tombstones of deleted keys without removing newer values.

A delete request has no condition and may arrive late. So a tombstone is removed in two steps: it is
first replaced, under a condition, by an expiring one, which no writer overwrites. Then a single
delete request is sent. A writer that finds an expiring tombstone waits for the second step.

If the second step never happens because its process died, the tombstone can be overwritten again
after ``EXPIRY_SECONDS``, when no delete request can arrive any more: services reject requests that
were signed more than 15 minutes ago.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime, timedelta

import obstore

from holdfast.errors import StateStoreError
from holdfast.stores.objectstore.bodies import (
    TOMBSTONE_SIZE,
    StoredObject,
    new_token,
    tombstone_body,
)
from holdfast.stores.objectstore.buckets import Bucket
from holdfast.stores.objectstore.objects import MAX_CONCURRENT, BucketObjects

DAY = 86_400.0
# 15 minutes for the signature, and as many for clock skew.
EXPIRY_SECONDS = 1800.0


class SweepableBucket(BucketObjects):
    """Objects of which some are tombstones."""

    async def sweep(self, *, older_than: float = DAY) -> int:
        """Remove the tombstones that are older than some seconds, and return their number.

        A concurrent write of such a key waits and is not lost. A sweep that is killed may leave up
        to 16 keys that reject writes for half an hour. The age must be longer than any request can
        take to arrive, because a tombstone is what makes a late write fail.

        Raises:
            StateStoreError: The service failed, or denied the permission to delete.

        """
        self._check_open()
        swept = 0
        async with aclosing(self._list_objects(self._root, None)) as listing:
            async for objects in listing:
                latest = datetime.now(UTC) - timedelta(seconds=older_than)
                tombstones = [
                    one["path"]
                    for one in objects
                    if one["size"] == TOMBSTONE_SIZE and one["last_modified"] <= latest
                ]
                for start in range(0, len(tombstones), MAX_CONCURRENT):
                    swept += await self._sweep_batch(tombstones[start : start + MAX_CONCURRENT])
        return swept

    async def _sweep_batch(self, paths: list[str]) -> int:
        # Finish all of them even if one fails, so that none stays expiring.
        answers = await asyncio.gather(*map(self._sweep_one, paths), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return sum(answer is True for answer in answers)

    async def _sweep_one(self, path: str) -> bool:
        token = new_token()

        async def mark_expiring(bucket: Bucket) -> StoredObject | None:
            found = await self._read(bucket, path)
            if found is None or found.header.token == token:
                return found
            if found.entry_etag is not None or is_being_removed(found):
                return None
            body = tombstone_body(found.header.deleted, token, expiring=True)
            await self._write(bucket, path, body, self._mode(found.etag))
            return await self._read(bucket, path)

        expiring = await self._run(lambda bucket, _: mark_expiring(bucket), writes=True)
        if expiring is None or expiring.header.token != token:
            return False
        return await self._remove(path, expiring)

    async def _remove(self, path: str, expiring: StoredObject) -> bool:
        async def remove(bucket: Bucket, *, unsure: bool) -> bool:
            if not unsure:
                await obstore.delete_async(bucket, path)
                return True
            found = await self._read(bucket, path)
            return found is None or found.etag != expiring.etag

        async def restore(bucket: Bucket) -> None:
            body = tombstone_body(expiring.header.deleted, new_token())
            await self._write(bucket, path, body, self._mode(expiring.etag))

        try:
            return await self._run(
                lambda bucket, unsure: remove(bucket, unsure=unsure), writes=True
            )
        except StateStoreError as error:
            if not error.unknown:  # it was rejected and will not be applied later
                await self._run(lambda bucket, _: restore(bucket), writes=True)
            raise


def is_being_removed(found: StoredObject) -> bool:
    """Whether a delete request for this object may still arrive."""
    age = datetime.now(UTC) - found.written
    return found.header.expiring and age < timedelta(seconds=EXPIRY_SECONDS)
