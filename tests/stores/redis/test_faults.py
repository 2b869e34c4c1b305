"""Redis that loses answers, dies, hangs and refuses."""

from __future__ import annotations

import asyncio
import shutil
import time

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import read_all
from servers.crashes import write_through_deaths
from servers.process import free_port, wait_until

MARK = b"EVALSHA"


def through(proxy, server, **options):
    return server.url(**options).replace(f":{server.port}/", f":{proxy.port}/")


class TestLostAnswers:
    def test_a_write_whose_answer_got_lost_is_done_once_and_reported_done(
        self, redis_server, proxy, namespace
    ):
        async def use():
            async with open_state_store(through(proxy, redis_server, namespace=namespace)) as store:
                await store.put("first", b"so that the server knows the script")
                await store.delete("first")
                proxy.lose_next_answer(after=b"EVALSHA")
                first = await store.put("a", b"1", if_absent=True)
                assert await store.get("a") == Entry(b"1", first)
                proxy.lose_next_answer(after=b"EVALSHA")
                second = await store.put("a", b"2", if_match=first)
                assert await store.get("a") == Entry(b"2", second)
                proxy.lose_next_answer(after=b"EVALSHA")
                puts = [
                    Put("c", b"3", if_absent=True),
                    Put("a", b"3", if_match=second),
                    Put("b", b"3"),
                ]
                etags = await store.put_many(puts)
                for key, etag in zip("cab", etags, strict=True):
                    assert await store.get(key) == Entry(b"3", etag)
                proxy.lose_next_answer(after=b"EVALSHA")
                assert await store.delete("a", if_match=etags[1])
                proxy.lose_next_answer(after=b"EVALSHA")
                assert await store.delete("b")
                assert await read_all(store) == {"c": b"3"}
                assert proxy.lost == 5

        asyncio.run(use())

    def test_a_request_that_got_lost_is_done_by_the_next_attempt(
        self, redis_server, proxy, namespace
    ):
        async def use():
            async with open_state_store(through(proxy, redis_server, namespace=namespace)) as store:
                assert await store.get("a") is None
                for mark in (b"EVALSHA", b"HMGET"):
                    proxy.lose_next_request(at=mark)
                etag = await store.put("a", b"1", if_absent=True)
                assert await store.get("a") == Entry(b"1", etag)
                assert proxy.lost == 2

        asyncio.run(use())

    def test_what_others_write_after_a_lost_answer_stays(self, redis_server, proxy, namespace):
        def meanwhile(act):
            async def others():
                async with open_state_store(redis_server.url(namespace=namespace)) as other:
                    await act(other)

            proxy.lose_next_answer(MARK, meanwhile=lambda: asyncio.run(others()))

        async def overwrite(other):
            found = await other.get("b")
            assert found.value == b"ours"
            await other.put("b", b"theirs", if_match=found.etag)

        async def remove(other):
            assert await other.delete("lock", if_match=(await other.get("lock")).etag)

        async def make(other):
            await other.put("gone", b"theirs", if_absent=True)

        async def replace(other):
            await other.put("a", b"theirs")

        async def use():
            async with open_state_store(through(proxy, redis_server, namespace=namespace)) as store:
                etag, *_ = await store.put_many([Put("a", b"1"), Put("b", b"1"), Put("gone", b"1")])
                assert not await store.delete("missing")
                meanwhile(overwrite)
                etag, _ = await store.put_many(
                    [Put("a", b"ours", if_match=etag), Put("b", b"ours")]
                )
                assert await read_all(store) == {"a": b"ours", "b": b"theirs", "gone": b"1"}
                meanwhile(remove)
                await store.put("lock", b"ours", if_absent=True)
                assert await store.get("lock") is None
                meanwhile(make)
                assert await store.delete("gone")
                meanwhile(replace)
                await store.put("a", b"ours", if_match=etag)
                meanwhile(replace)
                await store.put("a", b"ours")
                assert await read_all(store) == dict.fromkeys(("a", "b", "gone"), b"theirs")
                meanwhile(make)
                assert await store.delete("gone", if_match=(await store.get("gone")).etag)
                assert await read_all(store) == dict.fromkeys(("a", "b", "gone"), b"theirs")
                assert proxy.lost == 6

        asyncio.run(use())

    def test_a_batch_that_was_written_is_acknowledged_though_its_condition_failed_since(
        self, redis_server, proxy, namespace
    ):
        async def remove():
            async with open_state_store(redis_server.url(namespace=namespace)) as other:
                assert await other.delete("fence")

        async def use():
            async with open_state_store(through(proxy, redis_server, namespace=namespace)) as store:
                for mark, puts in (
                    (MARK, [Put("a", b"1", if_absent=True)]),
                    (MARK, [Put("a", b"2")]),
                    (MARK, [Put("b", b"1", if_absent=True), Put("z", b"1")]),
                ):
                    held = Condition("fence", await store.put("fence", b"1"))
                    proxy.lose_next_answer(mark, meanwhile=lambda: asyncio.run(remove()))
                    etags = await store.put_many(puts, conditions=[held])
                    for put, etag in zip(puts, etags, strict=True):
                        assert await store.get(put.key) == Entry(put.value, etag)
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many([Put("late", b"1")], conditions=[held])
                    assert caught.value.key == "fence"
                assert await read_all(store) == {"a": b"2", "b": b"1", "z": b"1"}
                assert proxy.lost == 3

        asyncio.run(use())

    def test_a_condition_that_does_not_hold_is_a_conflict_after_a_lost_request_too(
        self, redis_server, proxy, namespace
    ):
        async def use():
            async with open_state_store(through(proxy, redis_server, namespace=namespace)) as store:
                for puts in ([Put("a", b"1")], [Put("a", b"1"), Put("z", b"1")]):
                    held = Condition("fence", await store.put("fence", b"1"))
                    await store.delete("fence")
                    proxy.lose_next_request(at=MARK)
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many(puts, conditions=[held])
                    assert caught.value.key == "fence"
                assert await read_all(store) == {}
                assert proxy.lost == 2

        asyncio.run(use())

    def test_a_mark_of_a_done_write_goes_by_itself(self, redis_server, namespace):
        async def use():
            url = redis_server.url(namespace=namespace, timeout=2, patience=3)
            async with open_state_store(url) as store:
                await store.put_many([Put("a", b"1"), Put("b", b"1")])
                assert await store.delete("a")
                assert not await store.delete("a")
                with pytest.raises(ConflictError):
                    await store.put("b", b"1", if_absent=True)
            with redis_server.client() as client:
                marks = client.keys(f"{{holdfast:{namespace}}}:d:*")
                assert [60 < client.ttl(mark) <= 70 for mark in marks] == [True, True]

        asyncio.run(use())

    def test_a_conflict_after_a_lost_request_is_one(self, redis_server, proxy, namespace):
        async def use():
            async with open_state_store(through(proxy, redis_server, namespace=namespace)) as store:
                old = await store.put("a", b"1")
                await store.put("a", b"theirs")
                assert not await store.delete("missing")
                for attempt in (
                    lambda: store.put("a", b"2", if_match=old),
                    lambda: store.put("a", b"2", if_absent=True),
                    lambda: store.put_many([Put("b", b"2"), Put("a", b"2", if_match=old)]),
                    lambda: store.delete("a", if_match=old),
                ):
                    proxy.lose_next_request(at=MARK)
                    with pytest.raises(ConflictError):
                        await attempt()
                proxy.lose_next_request(at=MARK)
                assert not await store.delete("missing")
                assert await read_all(store) == {"a": b"theirs"}
                assert proxy.lost == 5

        asyncio.run(use())


class TestServerThatFails:
    def test_killed_in_the_middle_of_writes_it_loses_and_doubles_nothing(self, own_server):
        server = own_server()

        async def use():
            async with open_state_store(server.url()) as store:
                await write_through_deaths(server, store, deaths=3)

        asyncio.run(use())

    def test_one_that_hangs_is_not_waited_for(self, own_server):
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
                # On a busy machine the time may be over before a connection is asked for.
                assert "no connection free" in str(waiting) or "did not respond" in str(waiting)
                assert waiting.transient
                assert not waiting.unknown
                assert await store.get("a") is not None

        asyncio.run(use())

    def test_connections_that_it_ended_while_idle_are_made_anew(self, redis_server, namespace):
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

    def test_while_it_cannot_be_reached_it_is_tried_again(self, redis_server, proxy, namespace):
        async def use():
            url = through(proxy, redis_server, namespace=namespace)
            async with open_state_store(url) as store:
                etag = await store.put("a", b"1")
                proxy.refuse_for(0.5)
                found = await asyncio.gather(*(store.get("a") for _ in range(30)))
                assert found == [Entry(b"1", etag)] * 30
            async with open_state_store(f"{url}&patience=0.2") as store:
                await store.get("a")
                with proxy.refusing(), pytest.raises(StateStoreError, match="reached") as caught:
                    await asyncio.sleep(0.05)  # until the event loop has seen it
                    await store.put("a", b"2", if_match=etag)
                assert caught.value.transient
                assert not caught.value.unknown
                await store.put("a", b"3", if_match=etag)

        asyncio.run(use())

    def test_a_replica_that_becomes_the_master_is_waited_for(self, own_server):
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
    def test_what_does_not_pass_is_told_at_once_and_nothing_is_written(self, own_server, hint):
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
