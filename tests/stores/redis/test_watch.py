"""Redis that notifies other processes of writes."""

from __future__ import annotations

import pytest

from holdfast.stores.notification import decode_notification
from holdfast.stores.redis import listener
from holdfast.stores.redis.listener import find_topic
from holdfast.stores.registry import open_state_store
from servers.process import wait_until
from stores.notification_suite import (
    LONG,
    NotificationSuite,
    drain,
    wait_for,
    write_until_heard,
)
from stores.remote_faults import through
from support.async_tests import async_test


class TestNotifications(NotificationSuite):
    @pytest.fixture
    def url(self, redis_server, namespace):
        return redis_server.url(namespace=namespace)

    @pytest.fixture
    def proxied_url(self, redis_server, proxy, url):
        return through(proxy, url, redis_server)

    @pytest.fixture
    def subscribers(self, redis_server, namespace):
        def count():
            with redis_server.client() as client:
                return client.pubsub_numsub(f"{{holdfast:{namespace}}}:w:a/b/")[0][1]

        return count

    @async_test
    async def test_a_namespace_may_have_characters_of_patterns(self, redis_server):
        url = redis_server.url(namespace="n[a]*?\\")
        async with (
            open_state_store(url) as writer,
            open_state_store(url) as reader,
            reader.watch("") as watch,
        ):
            await drain(watch)
            await writer.put("a/b/1", b"1")
            await wait_for(watch, "a/b/1")

    @async_test
    async def test_a_server_that_hangs_is_noticed(self, own_server, namespace, monkeypatch):
        monkeypatch.setattr(listener, "QUIET_SECONDS", 0.1)
        server = own_server()
        url = server.url(namespace=namespace, timeout=0.3)
        async with (
            open_state_store(server.url(namespace=namespace)) as writer,
            open_state_store(url) as reader,
            reader.watch("a/") as watch,
        ):
            await drain(watch)
            assert not await watch.wait(0.4)  # it is asked, and answers
            server.freeze()
            try:
                assert await watch.wait(LONG)
            finally:
                server.thaw()
            await write_until_heard(writer, watch, "a/1")

    @async_test
    async def test_a_user_who_may_not_publish_writes(self, redis_server, namespace):
        with redis_server.client() as client:
            client.acl_setuser(
                namespace,
                enabled=True,
                passwords=["+other"],
                categories=["+@all", "-@pubsub"],
                keys=["*"],
            )
        url = redis_server.url(namespace=namespace)
        limited = url.replace(f":{redis_server.password}@", f"{namespace}:other@")
        async with open_state_store(limited) as store, store.watch("a/b/") as watch:
            await drain(watch)
            etag = await store.put("a/b/1", b"1")
            assert (await store.get("a/b/1")).etag == etag
            assert await store.delete("a/b/1")

    @async_test
    async def test_a_watch_on_a_session_receives_only_its_channel(
        self, redis_server, namespace, url, subscribers
    ):
        def channels():
            with redis_server.client() as client:
                return len(client.pubsub_channels(f"*{namespace}*"))

        async with (
            open_state_store(url) as store,
            store.watch("a/b/c/"),
            store.watch("a/b/d"),
        ):
            assert (subscribers(), channels()) == (1, 2)
            async with store.watch("a/e/"):
                assert channels() == 3
            wait_until(lambda: channels() == 2, "a subscription is left")
            assert subscribers() == 1


@async_test
async def test_notify_off(redis_server, namespace):
    with redis_server.client() as client, client.pubsub() as received:
        received.psubscribe("*")
        assert received.get_message(timeout=LONG)["type"] == "psubscribe"
        url = redis_server.url(namespace=namespace, notify="off")
        async with open_state_store(url) as store, store.watch("a/") as watch:
            assert not store.wakes_other_processes
            await store.put("a/1", b"1")
            assert await watch.wait(LONG)
            assert await store.delete("a/1")
        async with open_state_store(redis_server.url(namespace=namespace)) as store:
            await store.put("a/2", b"1")
        message = received.get_message(timeout=LONG)
        assert decode_notification(message["data"]).keys == ["a/2"]


@pytest.mark.parametrize(
    ("text", "topic"),
    [("", ""), ("a", ""), ("a/", ""), ("a/b", ""), ("a/b/", "a/b/"), ("a/b/c/d", "a/b/")],
)
def test_topic(text, topic):
    assert find_topic(text) == topic
