"""The Redis store, against a real server."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StateStoreError
from holdfast.stores.registry import open_state_store
from holdfast.testing import StateStoreSuite
from holdfast.testing.state_store_suite import collect_keys, read_all
from stores.remote_faults import through


class TestRedis(StateStoreSuite):
    increments = 10

    @pytest.fixture
    def new_store(self, redis_server, namespace):
        return lambda: open_state_store(redis_server.url(namespace=namespace))


class TestListing:
    def test_the_cost_of_a_page_does_not_depend_on_the_number_of_keys(self, redis_server):
        work = {}

        async def use(size, url):
            async with open_state_store(url) as store:
                await store.get("a")
                client.config_resetstat()
                keys = await collect_keys(store.list("key/", start_after="key/000040", limit=50))
                assert keys == [f"key/{number:06}" for number in range(41, 91)]
                assert len(await collect_keys(store.list(limit=50))) == 50
                work[size] = {
                    name.removeprefix("cmdstat_"): stats["calls"]
                    for name, stats in client.info("commandstats").items()
                    if name != "cmdstat_info" and not name.startswith("cmdstat_config")
                }

        with redis_server.client() as client:
            for size in (100, 20_000):
                client.eval(
                    "for n = 1, ARGV[1] do local key = string.format('key/%06d', n) "
                    "redis.call('HSET', KEYS[2] .. key, 'v', 'value', 'e', 'etag') "
                    "redis.call('ZADD', KEYS[1], 0, key) end",
                    *(2, f"{{holdfast:size{size}}}:keys", f"{{holdfast:size{size}}}:e:", size),
                )
                asyncio.run(use(size, redis_server.url(namespace=f"size{size}")))
        assert work == {100: {"zrangebylex": 2}, 20_000: {"zrangebylex": 2}}

    def test_namespaces_and_databases_are_separate(self, redis_server, namespace):
        async def use():
            urls = [redis_server.url(namespace=namespace + end) for end in ("", "/b", ":e:")]
            urls.append(redis_server.url(database=3, namespace=namespace))
            stores = [open_state_store(url) for url in urls]
            for number, store in enumerate(stores):
                await store.put("a", b"%d" % number, if_absent=True)
            for number, store in enumerate(stores):
                assert await read_all(store) == {"a": b"%d" % number}
                await store.close()

        asyncio.run(use())


class TestGroups:
    def test_many_tasks_share_a_pipeline_and_fail_alone(self, redis_server, namespace):
        async def use():
            url = redis_server.url(namespace=namespace)
            async with open_state_store(url) as store:
                etag = await store.put("a", b"1")
                with redis_server.client() as client:
                    client.script_flush()
                    client.set(f"{{holdfast:{namespace}}}:e:z", "another program's")
                found = await asyncio.gather(
                    *(store.put(f"{n}", b"1", if_absent=True) for n in range(50)),
                    store.put("a", b"2", if_absent=True),
                    store.put("a", b"2", if_match=etag),
                    store.put("a", b"3", if_match=etag),
                    store.put("z", b"1"),
                    store.delete("missing"),
                    return_exceptions=True,
                )
                names = [type(outcome).__name__ for outcome in found[50:]]
                assert names == ["ConflictError", "str", "ConflictError", "StateStoreError", "bool"]
                read = await asyncio.gather(
                    *(store.get(f"{n}") for n in range(50)),
                    store.get_many(["a", "z"]),
                    return_exceptions=True,
                )
                assert [entry.etag for entry in read[:50]] == found[:50]
                assert isinstance(read[50], StateStoreError)

        asyncio.run(use())

    def test_a_pipeline_whose_connection_is_cut_is_applied_once(
        self, redis_server, proxy, namespace
    ):
        async def use():
            url = redis_server.url(namespace=namespace)
            async with open_state_store(through(proxy, url, redis_server)) as store:
                await store.put("a", b"1")
                proxy.lose_next_response(after=b"EVALSHA")
                etags = await asyncio.gather(
                    *(store.put(f"{n}", b"1", if_absent=True) for n in range(20))
                )
                assert proxy.lost == 1
                for number, etag in enumerate(etags):
                    assert (await store.get(f"{number}")).etag == etag

        asyncio.run(use())
