"""A server that dies during writes and comes back, and what must hold afterwards."""

from __future__ import annotations

import asyncio
import itertools

from holdfast import Entry, StateStoreError
from holdfast.testing.state_store_suite import collect_keys, increment


class Writers:
    """Writers of one store that continue after failures, and remember what was acknowledged."""

    def __init__(self, store):
        self.store = store
        self.counted = 0
        self.made = {}
        self.failed = []
        self.over = False

    async def count(self):
        while not self.over:
            try:
                await increment(self.store, "counter")
                self.counted += 1
            except StateStoreError as error:
                self.failed.append(error)

    async def make(self, worker):
        for number in itertools.count():
            if self.over:
                return
            key = f"made/{worker}/{number}"
            try:
                # No other writer uses this key, so a conflict would be with itself.
                self.made[key] = await self.store.put(key, key.encode(), if_absent=True)
            except StateStoreError as error:
                self.failed.append(error)

    async def progress(self, steps=20):
        """Wait until this many more writes of both kinds are acknowledged."""
        counted, made = self.counted + steps, len(self.made) + steps
        async with asyncio.timeout(60):
            while self.counted < counted or len(self.made) < made:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    async def check(self):
        counter = int((await self.store.get("counter")).value)
        unknown = sum(error.unknown for error in self.failed)
        assert self.counted <= counter <= self.counted + unknown
        assert await self.store.get_many(self.made) == {
            key: Entry(key.encode(), etag) for key, etag in self.made.items()
        }
        assert set(self.made) <= set(await collect_keys(self.store.list("made/")))
        assert all(error.transient or error.unknown for error in self.failed)


async def write_through_deaths(server, store, *, deaths=1, counters=4, makers=4):
    """Write while the server is killed and restarted; nothing may be lost or duplicated."""
    writers = Writers(store)
    await store.put("first", b"1")

    async def die_and_return():
        try:
            for _ in range(deaths):
                await writers.progress()
                await asyncio.to_thread(server.kill)
                await asyncio.to_thread(server.start)
            await writers.progress()
        finally:
            writers.over = True

    await asyncio.gather(
        die_and_return(),
        *(writers.count() for _ in range(counters)),
        *(writers.make(worker) for worker in range(makers)),
    )
    await writers.check()
