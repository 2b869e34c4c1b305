"""NATS that notifies other processes of writes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast.stores.nats import connection
from holdfast.stores.nats import listener as nats_listener
from holdfast.stores.registry import open_state_store
from servers.nats_server import Behind
from stores.notification_suite import (
    LONG,
    NotificationSuite,
    drain,
    wait_for,
    write_until_heard,
)
from stores.remote_faults import through
from support.async_tests import async_test


async def list_consumers(url):
    """Return the names of the consumers that messages are pushed to."""
    async with Behind(url) as behind:
        found = await behind.js.consumers_info(behind.stream)
        return [each.name for each in found if each.config.deliver_subject]


class TestNotifications(NotificationSuite):
    @pytest.fixture
    def url(self, nats_server, bucket):
        return nats_server.url(bucket)

    @pytest.fixture
    def proxied_url(self, nats_server, proxy, url):
        return through(proxy, url, nats_server)

    @pytest.fixture
    def subscribers(self, url, monkeypatch):
        monkeypatch.setattr(connection, "INACTIVE_SECONDS", 0.3)
        with ThreadPoolExecutor(1) as thread:
            yield lambda: len(thread.submit(asyncio.run, list_consumers(url)).result())

    @async_test
    async def test_long_keys_and_chunks(self, url):
        async with (
            open_state_store(url) as writer,
            open_state_store(url) as reader,
            reader.watch("a/") as watch,
            reader.watch("a/" + "b" * 3000) as narrow,
        ):
            await drain(watch)
            await drain(narrow)
            long = "a/" + "b" * 4000
            await writer.put(long, b"1")
            await wait_for(watch, long)
            await wait_for(narrow, long)
            await writer.put("a/large", bytes(1_500_000))
            await wait_for(watch, "a/large")
            assert len((await reader.get("a/large")).value) == 1_500_000
            assert not await narrow.wait(0.01)

    @async_test
    async def test_a_consumer_that_is_gone_is_replaced(self, url, monkeypatch):
        for module in (connection, nats_listener):
            monkeypatch.setattr(module, "HEARTBEAT_SECONDS", 0.1)
        monkeypatch.setattr(nats_listener, "CHECK_INTERVAL", 0.05)
        async with (
            open_state_store(url) as writer,
            open_state_store(url) as reader,
            reader.watch("a/") as watch,
        ):
            await drain(watch)
            assert not await watch.wait(0.5)  # it has heartbeats
            (name,) = await list_consumers(url)
            async with Behind(url) as behind:
                await behind.js.delete_consumer(behind.stream, name)
            assert await watch.wait(LONG)
            await write_until_heard(writer, watch, "a/1")
            (other,) = await list_consumers(url)
            assert other != name

    @async_test
    async def test_prefixes_have_their_own_subjects(self, url, subscribers):
        async with open_state_store(url) as store, store.watch("a/b/c"), store.watch("a/b/d"):
            assert subscribers() == 1
            async with store.watch("a/e/"):
                assert subscribers() == 2
            assert subscribers() == 1
