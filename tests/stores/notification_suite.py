"""A suite for stores whose server notifies other processes of writes.

The writes of the tests' own process look like those of another one: they do not wake watches by
themselves, and notifications of them are not ignored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import traceback

import pytest

from holdfast.errors import StateStoreError
from holdfast.stores import backend, listener, watch
from holdfast.stores.entries import Put
from holdfast.stores.registry import open_state_store
from holdfast.stores.watch import WatchHub
from servers.process import wait_until
from support.async_tests import async_test

LONG = 10.0
"""Seconds within which a wake-up must come, and usually comes in milliseconds."""
LATE = 600.0
"""Seconds after which watches are woken without a reason: never within a test."""


async def wait_for(watch, *keys):
    """Wait until a watch has been notified of keys by their names."""
    missing = set(keys)
    while missing:
        assert await watch.wait(LONG), f"no notification of {missing}"
        missing -= watch.take_keys() or set()


async def drain(watch):
    """Wait until nothing wakes a watch any more."""
    while await watch.wait(0.05):
        pass
    watch.take_keys()


async def write_until_heard(writer, watch, key):
    """Write a key until a watch is notified of it, by a listener that is connecting again."""
    async with asyncio.timeout(LONG):
        while True:
            await writer.put(key, b"1")
            if await watch.wait(0.2) and key in (watch.take_keys() or ()):
                return


class NotificationSuite:
    """Define the fixtures ``url`` and ``proxied_url``, and ``subscribers``."""

    @pytest.fixture
    def url(self):
        raise NotImplementedError

    @pytest.fixture
    def proxied_url(self):
        raise NotImplementedError

    @pytest.fixture
    def subscribers(self):
        """Return a function that counts what the server knows: connections or subscriptions."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def other_process(self, monkeypatch):
        monkeypatch.setattr(backend, "HUB", WatchHub())
        monkeypatch.setattr(watch, "HUB", WatchHub())  # some tests abandon watches
        monkeypatch.setattr(listener, "get_process_id", lambda: "another process")
        monkeypatch.setattr(listener, "SETTLE_SECONDS", LATE)

    @async_test
    async def test_writes_of_another_store_object_wake(self, url):
        async with open_state_store(url) as writer, open_state_store(url) as reader:
            assert reader.wakes_other_processes
            async with reader.watch("a/b/") as watch, reader.watch("a/") as wide:
                await drain(watch)
                await drain(wide)
                etag = await writer.put("a/b/1", b"1", if_absent=True)
                await wait_for(watch, "a/b/1")
                await writer.put_many([Put("a/b/2", b"2"), Put("a/é\n\x00", b"2"), Put("c", b"2")])
                await wait_for(watch, "a/b/2")
                await wait_for(wide, "a/é\n\x00")
                assert await writer.delete("a/b/1", if_match=etag)
                await wait_for(watch, "a/b/1")
                await drain(watch)
                await writer.put("a/bc", b"1")
                await writer.put("d", b"1")
                await wait_for(wide, "a/bc")
                assert not await watch.wait(0.01)

    @async_test
    async def test_all_keys_can_be_watched(self, url):
        async with (
            open_state_store(url) as writer,
            open_state_store(url) as reader,
            reader.watch("") as watch,
        ):
            await drain(watch)
            await writer.put("a", b"1")
            await wait_for(watch, "a")
            await writer.put("sessions/s/log/1", b"1")
            await wait_for(watch, "sessions/s/log/1")

    @async_test
    async def test_a_large_batch_wakes(self, url):
        async with (
            open_state_store(url) as writer,
            open_state_store(url) as reader,
            reader.watch("a/b/c/") as below,
            reader.watch("z/") as beside,
        ):
            await drain(below)
            await drain(beside)
            await writer.put_many([Put(f"a/b/c/{n:0200}", b"1") for n in range(60)])
            assert await below.wait(LONG)
            assert not await beside.wait(0.01)

    @async_test
    async def test_watches_share_a_subscription_and_leave_nothing(self, url, subscribers):
        async with open_state_store(url) as writer, open_state_store(url) as reader:
            await writer.put("a/b/1", b"1")
            await reader.get("a/b/1")
            before = asyncio.all_tasks()
            assert subscribers() == 0
            for _ in range(2):
                async with reader.watch("a/b/") as first:
                    async with reader.watch("a/b/") as second:
                        assert subscribers() == 1
                        await drain(first)
                        await drain(second)
                        await writer.put("a/b/1", b"2")
                        await wait_for(first, "a/b/1")
                        await wait_for(second, "a/b/1")
                    assert subscribers() == 1
                    await writer.put("a/b/2", b"2")
                    await wait_for(first, "a/b/2")
                wait_until(lambda: subscribers() == 0, "a subscription is left")
                assert asyncio.all_tasks() == before

    @async_test
    async def test_a_lost_connection_wakes_and_is_replaced(self, url, proxied_url, proxy):
        async with open_state_store(url) as writer, open_state_store(proxied_url) as reader:
            await reader.get("a/b/1")
            async with reader.watch("a/b/") as watch, reader.watch("a/c/") as other:
                for number in range(2):
                    await drain(watch)
                    await drain(other)
                    with proxy.refusing():
                        assert watch.hears_others
                        assert await watch.wait(LONG)
                        assert not watch.hears_others
                        watch.take_keys()
                        await writer.put(f"a/b/lost{number}", b"1")
                    # Woken after it connected again, for what was written before that.
                    assert await watch.wait(LONG)
                    assert await other.wait(LONG)
                    await write_until_heard(writer, watch, f"a/b/{number}")
                    await write_until_heard(writer, other, f"a/c/{number}")
                    assert watch.hears_others
                    assert other.hears_others

    @async_test
    async def test_watches_open_and_end_while_the_server_is_away(
        self, url, proxied_url, proxy, caplog
    ):
        caplog.set_level(logging.INFO, "holdfast")
        async with open_state_store(url) as writer, open_state_store(proxied_url) as reader:
            before = asyncio.all_tasks()
            with proxy.refusing():
                async with reader.watch("a/b/") as watch:
                    assert not watch.hears_others
                    await asyncio.sleep(0.3)
                    async with reader.watch("a/c/"):
                        pass
                assert asyncio.all_tasks() == before
            ours = [each for each in caplog.records if each.name.startswith("holdfast")]
            assert [each.levelname for each in ours] == ["WARNING"]
            assert "poll" in caplog.text
            assert "s3cret" not in caplog.text
            with proxy.refusing():
                opened = reader.watch("a/b/")
                watch = await opened.__aenter__()
            async with reader.watch("a/c/") as late:
                await write_until_heard(writer, watch, "a/b/1")
                await write_until_heard(writer, late, "a/c/1")
            await opened.__aexit__(None, None, None)

    def test_event_loops_have_their_own_subscriptions(self, url, subscribers):
        ready, done, woken = threading.Barrier(3), threading.Barrier(3), []
        reader = open_state_store(url)

        async def receive():
            async with reader.watch("a/b/") as watch:
                await drain(watch)
                await asyncio.to_thread(ready.wait, LONG)
                await wait_for(watch, "a/b/1")
                woken.append(True)
                await asyncio.to_thread(done.wait, LONG)

        async def write():
            async with open_state_store(url) as writer:
                await writer.put("a/b/1", b"1")

        receivers = [threading.Thread(target=lambda: asyncio.run(receive())) for _ in range(2)]
        for each in receivers:
            each.start()
        ready.wait(LONG)
        assert subscribers() == 2
        asyncio.run(write())
        done.wait(LONG)
        for each in receivers:
            each.join()
        assert woken == [True] * 2
        wait_until(lambda: subscribers() == 0, "a subscription is left")
        asyncio.run(reader.close())

    def test_a_loop_that_ends_leaves_nothing(self, url, subscribers):
        async def abandon():
            watch = open_state_store(url).watch("a/b/")
            await watch.__aenter__()
            assert subscribers() == 1
            return watch

        asyncio.run(abandon())
        wait_until(lambda: subscribers() == 0, "a subscription is left")

    @async_test
    async def test_closing_the_store_wakes_and_leaves_nothing(self, url, subscribers):
        before = asyncio.all_tasks()
        store = open_state_store(url)
        await store.put("a/b/1", b"1")
        async with store.watch("a/b/") as watch:
            await drain(watch)
            await store.close()
            assert await watch.wait(LONG)
            wait_until(lambda: subscribers() == 0, "a subscription is left")
            with pytest.raises(StateStoreError):
                await store.get("a/b/1")
        assert asyncio.all_tasks() == before

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    @async_test
    async def test_a_forked_child_wakes_its_parent_and_closes_the_store(self, url):
        async def use_in_child(store):
            async with store.watch("a/b/") as watch:
                await drain(watch)
                await store.put("a/b/1", b"1")
                await wait_for(watch, "a/b/1")
            await store.close()

        async with open_state_store(url) as store:
            await store.get("a/b/1")
            async with store.watch("a/b/") as watch:
                await drain(watch)
                child = os.fork()
                if not child:
                    try:
                        asyncio.run(use_in_child(store))
                    except BaseException:  # noqa: BLE001 - the child ends here
                        traceback.print_exc()
                        os._exit(1)
                    os._exit(0)
                await wait_for(watch, "a/b/1")
                _, status = await asyncio.to_thread(os.waitpid, child, 0)
                assert os.waitstatus_to_exitcode(status) == 0
                await drain(watch)
                assert watch.hears_others
                await store.put("a/b/2", b"1")
                await wait_for(watch, "a/b/2")
