"""Lost responses, and a server that is killed."""

from __future__ import annotations

import asyncio

import pytest

import holdfast
from holdfast.errors import StateStoreError
from holdfast.stores.base import Entry
from holdfast.testing.state_store_suite import read_all
from servers.crashes import write_through_deaths
from servers.process import wait_until
from support.async_tests import async_test

CONDITION = b"Nats-Expected-Last-Subject-Sequence"
MEGABYTE = 1024 * 1024


@pytest.fixture
def cut_store(nats_server, bucket, proxy):
    """A store behind the proxy."""
    return lambda **options: holdfast.open_state_store(
        nats_server.url(bucket, port=proxy.port, **options)
    )


@pytest.mark.parametrize("fault", ["answer", "request"])
@async_test
async def test_a_write_whose_response_is_lost_is_applied_once(new_store, cut_store, proxy, fault):
    def lose() -> None:
        if fault == "answer":
            proxy.lose_next_response(after=CONDITION)
        else:
            proxy.lose_next_request(at=CONDITION)

    async with cut_store() as store, new_store() as witness:
        etag = await store.put("a", b"0")
        lose()
        etag = await store.put("a", b"1", if_match=etag)
        assert await witness.get("a") == Entry(b"1", etag)
        lose()
        created = await store.put("b", b"1", if_absent=True)
        assert await witness.get("b") == Entry(b"1", created)
        lose()
        again = await store.put("a", b"2")
        assert await witness.get("a") == Entry(b"2", again)
        assert int(again) - int(created) == 1, "written once"
        lose()
        assert await store.delete("a", if_match=again)
        lose()
        assert await store.delete("b")
        assert await read_all(witness) == {}
        assert proxy.lost == 5


@pytest.mark.parametrize("request_text", [CONDITION, b"=chunk", b"STREAM.PURGE"])
@async_test
async def test_a_large_write_whose_response_is_lost_is_applied_once(
    new_store, cut_store, behind, proxy, request_text
):
    old, new = b"o" * MEGABYTE, b"n" * MEGABYTE
    async with cut_store() as store, new_store() as witness, behind:
        etag = await store.put("a", old)
        proxy.lose_next_response(after=request_text)
        etag = await store.put("a", new, if_match=etag)
        assert proxy.lost == 1
        assert await witness.get("a") == Entry(new, etag)
        assert len(await behind.chunks()) == 2


@pytest.mark.parametrize("absent", [True, False])
@async_test
async def test_a_lost_write_that_was_overwritten_has_an_unknown_outcome(
    new_store, cut_store, proxy, monkeypatch, absent
):
    async with cut_store() as store, new_store() as other:
        monkeypatch.setattr(store, "_pauses", lambda: iter([0.5] * 9))
        etag = None if absent else await store.put("a", b"0")
        await store.get("a")
        proxy.lose_next_response(after=CONDITION)
        writing = asyncio.create_task(store.put("a", b"1", if_match=etag, if_absent=absent))
        await asyncio.to_thread(wait_until, lambda: proxy.lost, "the answer was not lost")
        with proxy.refusing():
            await other.put("a", b"2")
        with pytest.raises(StateStoreError, match="may or may not have been applied") as caught:
            await writing
        assert caught.value.unknown
        assert (await other.get("a")).value == b"2"


@async_test
async def test_a_large_write_with_an_unknown_outcome_keeps_its_chunks(new_store, cut_store, proxy):
    async with cut_store(patience=0) as store, new_store() as witness:
        await store.put("a", b"old")
        proxy.lose_next_response(after=CONDITION)
        with pytest.raises(StateStoreError, match="may or may not have been applied") as caught:
            await store.put("a", b"n" * MEGABYTE)
        assert caught.value.unknown
        assert (await witness.get("a")).value == b"n" * MEGABYTE


@async_test
async def test_reads_and_listings_are_retried_after_a_lost_connection(cut_store, proxy):
    async with cut_store() as store:
        await store.put("a", b"1")
        proxy.cut()
        assert await read_all(store) == {"a": b"1"}
        for request in (b"MSG.GET", b"CONSUMER.CREATE", b"MSG.NEXT", b"CONSUMER.DELETE"):
            proxy.lose_next_response(after=request)
            assert await read_all(store) == {"a": b"1"}
        assert proxy.lost == 4
        proxy.refuse_for(0.5)
        await asyncio.gather(*(store.put(f"b/{number}", b"2") for number in range(20)))
        assert len(await read_all(store)) == 21


@async_test
async def test_a_slow_response_is_awaited(new_store, monkeypatch):
    monkeypatch.setattr("holdfast.stores.nats.connection.CHECK_INTERVAL", 0.00001)
    async with new_store() as store:
        etag = await store.put("a", b"x" * MEGABYTE)
        assert await store.get("a") == Entry(b"x" * MEGABYTE, etag)


@async_test
async def test_a_pending_call_fails_when_the_store_is_closed(cut_store, new_store, proxy):
    store = cut_store()
    await store.put("a", b"1")
    proxy.refuse_for(60)
    waiting = asyncio.create_task(store.get("a"))
    await asyncio.sleep(0.3)
    await store.close()
    with pytest.raises(StateStoreError, match="closed"):
        await waiting


@async_test
async def test_nothing_is_lost_or_doubled_when_the_server_is_killed(own_server, bucket):
    server = own_server()
    async with holdfast.open_state_store(server.url(bucket)) as store:
        await write_through_deaths(server, store, deaths=3)
