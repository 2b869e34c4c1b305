"""Redis that loses responses, dies, hangs and fails."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import read_all
from servers.crashes import write_through_deaths
from servers.process import free_port, wait_until
from stores.remote_faults import LostResponseSuite, through


class TestLostResponses(LostResponseSuite):
    write_request = batch_request = b"EVALSHA"
    read_request = b"HMGET"

    @pytest.fixture
    def url(self, redis_server, namespace):
        return redis_server.url(namespace=namespace)

    @pytest.fixture
    def proxied_url(self, redis_server, proxy, url):
        return through(proxy, url, redis_server)

    def test_the_token_of_a_write_expires(self, redis_server, namespace):
        async def use():
            url = redis_server.url(namespace=namespace, timeout=2, patience=3)
            async with open_state_store(url) as store:
                await store.put_many([Put("a", b"1"), Put("b", b"1")])
                assert await store.delete("a")
                assert not await store.delete("a")
                with pytest.raises(ConflictError):
                    await store.put("b", b"1", if_absent=True)
            with redis_server.client() as client:
                tokens = client.keys(f"{{holdfast:{namespace}}}:d:*")
                assert [60 < client.ttl(token) <= 70 for token in tokens] == [True, True]

        asyncio.run(use())


class TestServerThatFails:
    def test_nothing_is_lost_or_doubled_when_the_server_is_killed(self, own_server):
        server = own_server()

        async def use():
            async with open_state_store(server.url()) as store:
                await write_through_deaths(server, store, deaths=3)

        asyncio.run(use())

    def test_a_server_that_hangs_times_out(self, own_server):
        server = own_server()

        async def use():
            url = server.url(timeout=0.4, patience=0, pool=1)
            async with open_state_store(url) as store:
                await store.put("a", b"1")
                server.freeze()
                start = time.monotonic()
                held, waiting = await asyncio.gather(
                    store.put("a", b"2"), store.put("a", b"3"), return_exceptions=True
                )
                server.thaw()
                assert time.monotonic() - start < 2
                assert "did not respond" in str(held)
                assert held.unknown
                # On a busy machine the timeout may pass before a connection is requested.
                assert "no connection free" in str(waiting) or "did not respond" in str(waiting)
                assert waiting.transient
                assert not waiting.unknown
                assert await store.get("a") is not None

        asyncio.run(use())

    def test_idle_connections_that_the_server_closed_are_replaced(self, redis_server, namespace):
        async def use():
            url = redis_server.url(namespace=namespace, patience=0, client_name=namespace)
            async with open_state_store(url) as store:
                for _ in range(3):
                    await asyncio.gather(*(store.put(f"{n}", b"1") for n in range(20)))
                    with redis_server.client() as client:
                        assert client.client_kill_filter(_type="normal", skipme=True) >= 1
                    await asyncio.sleep(0.05)
                    assert not await store.delete("missing")

        asyncio.run(use())

    def test_a_write_to_a_replica_is_retried_until_it_is_the_master(self, own_server):
        server = own_server()

        async def use():
            async with open_state_store(server.url()) as store:
                await store.put("a", b"1")
                with server.client() as client:
                    client.replicaof("127.0.0.1", free_port())
                    writing = asyncio.create_task(store.put("a", b"2"))
                    await asyncio.sleep(0.3)
                    assert not writing.done()
                    client.replicaof("NO", "ONE")
                etag = await writing
                assert await store.get("a") == Entry(b"2", etag)

        asyncio.run(use())

    @pytest.mark.parametrize("hint", ["maxmemory", "disk", "namespace"])
    def test_a_permanent_failure_is_raised_at_once_and_nothing_is_written(self, own_server, hint):
        server = own_server()

        async def use():
            async with open_state_store(server.url()) as store:
                await store.put("a", b"1")
                with server.client() as client:
                    if hint == "maxmemory":
                        client.config_set("maxmemory", 1)
                    elif hint == "disk":
                        client.config_set("save", "3600 1")
                        shutil.rmtree(server.folder)
                        client.bgsave()
                        await asyncio.to_thread(wait_until, lambda: failed(client), "it was saved")
                    else:
                        client.set("{holdfast:holdfast}:e:z", "another program's")
                with pytest.raises(StateStoreError, match=hint) as caught:
                    await store.put_many([Put("b", b"2"), Put("z", b"2")])
                assert not caught.value.transient
                assert not caught.value.unknown
                assert await read_all(store) == {"a": b"1"}

        def failed(client):
            return client.info("persistence")["rdb_last_bgsave_status"] == "err"

        asyncio.run(use())

    def test_a_node_of_a_cluster_is_refused(self, own_server):
        server = own_server(cluster_enabled="yes")

        async def use():
            async with open_state_store(server.url()) as store:
                with pytest.raises(StateStoreError, match="cluster"):
                    await store.get("a")

        asyncio.run(use())
