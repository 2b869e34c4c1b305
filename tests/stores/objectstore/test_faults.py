"""Answers that get lost, and a server that dies."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores import open_state_store
from holdfast.stores.contract import Entry
from servers.crashes import write_through_deaths
from servers.seaweed import BUCKET, SeaweedServer


async def listed(store, *args, **options):
    return [key async for key in store.list(*args, **options)]


def put_request(prefix, key):
    return f"PUT /{BUCKET}/{prefix}/{key}".encode()


def test_a_creation_whose_answer_gets_lost_is_done_once(s3_server, prefix, proxy):
    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            assert await store.get("a") is None
            proxy.lose_next_answer(after=put_request(prefix, "a"))
            etag = await store.put("a", b"1", if_absent=True)
            assert proxy.lost == 1
            assert await store.get("a") == Entry(b"1", etag)
            with pytest.raises(ConflictError):
                await store.put("a", b"2", if_absent=True)

    asyncio.run(check())


def test_a_creation_over_a_mark_whose_answer_gets_lost_is_done_once(s3_server, prefix, proxy):
    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            await store.put("a", b"0")
            await store.delete("a")
            proxy.lose_next_answer(after=b"if-match")
            etag = await store.put("a", b"1", if_absent=True)
            assert proxy.lost == 1
            assert await store.get("a") == Entry(b"1", etag)

    asyncio.run(check())


def test_a_change_whose_answer_gets_lost_is_done_once(s3_server, prefix, proxy):
    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            etag = await store.put("a", b"0")
            for number in range(1, 4):
                proxy.lose_next_answer(after=put_request(prefix, "a"))
                etag = await store.put("a", b"%d" % number, if_match=etag)
                assert proxy.lost == number
                assert await store.get("a") == Entry(b"%d" % number, etag)
            proxy.lose_next_request(at=put_request(prefix, "a"))
            etag = await store.put("a", b"4", if_match=etag)
            assert await store.get("a") == Entry(b"4", etag)

    asyncio.run(check())


def test_a_write_without_a_condition_whose_answer_gets_lost_is_done(s3_server, prefix, proxy):
    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            await store.put("a", b"0")
            proxy.lose_next_answer(after=put_request(prefix, "a"))
            etag = await store.put("a", b"1")
            assert proxy.lost == 1
            assert await store.get("a") == Entry(b"1", etag)

    asyncio.run(check())


def test_a_deletion_whose_answer_gets_lost_is_done_once(s3_server, prefix, proxy):
    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            for condition in (False, True):
                etag = await store.put("a", b"0")
                proxy.lose_next_answer(after=put_request(prefix, "a"))
                assert await store.delete("a", if_match=etag if condition else None)
                assert await store.get("a") is None
                assert not await store.delete("a")
            assert proxy.lost == 2

    asyncio.run(check())


def test_reads_are_tried_again(s3_server, prefix, proxy):
    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            await store.put("a", b"1")
            proxy.lose_next_answer(after=b"GET ")
            assert (await store.get("a")).value == b"1"
            proxy.lose_next_answer(after=b"list-type")
            assert await listed(store) == ["a"]
            assert proxy.lost == 2
            proxy.refuse_for(0.3)
            assert await listed(store) == ["a"]

    asyncio.run(check())


async def in_between(there, store, task, do):
    """Do something while the answer to a write that was done is on its way to be lost."""
    found = await store.get("a")
    while found is None or found.value != there:
        await asyncio.sleep(0.001)
        found = await store.get("a")
    await do(found)
    with pytest.raises(StateStoreError) as caught:
        await task
    return caught.value


def test_a_lost_answer_after_which_another_deleted_is_told_as_unknown(s3_server, prefix, proxy):
    async def check():
        async with (
            open_state_store(s3_server.url(prefix, port=proxy.port)) as store,
            open_state_store(s3_server.url(prefix)) as other,
        ):
            assert await store.get("a") is None
            proxy.lose_next_answer(after=put_request(prefix, "a"))
            task = asyncio.create_task(store.put("a", b"1", if_absent=True))
            error = await in_between(b"1", other, task, lambda _: other.delete("a"))
            assert error.unknown
            assert "deleted since" in str(error)
            assert await other.get("a") is None  # and it was not written again

    asyncio.run(check())


def test_a_lost_answer_after_which_another_wrote_is_told_as_unknown(s3_server, prefix, proxy):
    async def check():
        async with (
            open_state_store(s3_server.url(prefix, port=proxy.port)) as store,
            open_state_store(s3_server.url(prefix)) as other,
        ):
            etag = await store.put("a", b"0")
            proxy.lose_next_answer(after=put_request(prefix, "a"))
            task = asyncio.create_task(store.put("a", b"1", if_match=etag))
            error = await in_between(
                b"1", other, task, lambda found: other.put("a", b"2", if_match=found.etag)
            )
            assert error.unknown
            assert (await other.get("a")).value == b"2"

    asyncio.run(check())


def test_killed_in_the_middle_of_writes_it_loses_and_doubles_nothing(tmp_path):
    async def use(server):
        async with open_state_store(server.url("killed", timeout=3, patience=60)) as store:
            await write_through_deaths(server, store, counters=2)

    with SeaweedServer(tmp_path) as server:
        asyncio.run(use(server))
