"""Lost responses, late requests and a server that is killed."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores import open_state_store
from holdfast.stores.base import Entry
from holdfast.stores.objectstore import ObjectStateStore
from holdfast.stores.urls import StoreURL
from servers.crashes import write_through_deaths
from servers.seaweed import BUCKET, SeaweedServer
from stores.listing import list_keys
from support.async_tests import async_test


def put_request(prefix, key):
    return f"PUT /{BUCKET}/{prefix}/{key}".encode()


@async_test
async def test_a_create_whose_response_is_lost_is_applied_once(s3_server, prefix, proxy):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        assert await store.get("a") is None
        proxy.lose_next_response(after=put_request(prefix, "a"))
        etag = await store.put("a", b"1", if_absent=True)
        assert proxy.lost == 1
        assert await store.get("a") == Entry(b"1", etag)
        with pytest.raises(ConflictError):
            await store.put("a", b"2", if_absent=True)


@async_test
async def test_a_create_over_a_tombstone_whose_response_is_lost_is_applied_once(
    s3_server, prefix, proxy
):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        await store.put("a", b"0")
        await store.delete("a")
        proxy.lose_next_response(after=b"if-match")
        etag = await store.put("a", b"1", if_absent=True)
        assert proxy.lost == 1
        assert await store.get("a") == Entry(b"1", etag)


@async_test
async def test_a_replacement_whose_response_is_lost_is_applied_once(s3_server, prefix, proxy):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        etag = await store.put("a", b"0")
        for number in range(1, 4):
            proxy.lose_next_response(after=put_request(prefix, "a"))
            etag = await store.put("a", b"%d" % number, if_match=etag)
            assert proxy.lost == number
            assert await store.get("a") == Entry(b"%d" % number, etag)
        proxy.lose_next_request(at=put_request(prefix, "a"))
        etag = await store.put("a", b"4", if_match=etag)
        assert await store.get("a") == Entry(b"4", etag)


@async_test
async def test_an_unconditional_write_whose_response_is_lost_is_applied(s3_server, prefix, proxy):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        await store.put("a", b"0")
        proxy.lose_next_response(after=put_request(prefix, "a"))
        etag = await store.put("a", b"1")
        assert proxy.lost == 1
        assert await store.get("a") == Entry(b"1", etag)


@async_test
async def test_a_delete_whose_response_is_lost_is_applied_once(s3_server, prefix, proxy):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        for condition in (False, True):
            etag = await store.put("a", b"0")
            proxy.lose_next_response(after=put_request(prefix, "a"))
            assert await store.delete("a", if_match=etag if condition else None)
            assert await store.get("a") is None
            assert not await store.delete("a")
        assert proxy.lost == 2


@async_test
async def test_reads_are_retried(s3_server, prefix, proxy):
    async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
        await store.put("a", b"1")
        proxy.lose_next_response(after=b"GET ")
        assert (await store.get("a")).value == b"1"
        proxy.lose_next_response(after=b"list-type")
        assert await list_keys(store) == ["a"]
        assert proxy.lost == 2
        proxy.refuse_for(0.3)
        assert await list_keys(store) == ["a"]


class OtherProcess:
    """Another process with a store on the same data, to act while a response is lost."""

    def __init__(self, url):
        self.url = url

    def __call__(self, *steps):
        async def do():
            async with open_state_store(self.url) as store:
                for name, *args in steps:
                    await getattr(store, name)(*args)

        return lambda: asyncio.run(do())


CHANGES = {
    "written": [("put", "a", b"other")],
    "deleted": [("delete", "a")],
    "written and deleted": [("put", "a", b"other"), ("delete", "a")],
    "deleted and written": [("delete", "a"), ("put", "a", b"other")],
}


@pytest.mark.parametrize("since", CHANGES)
@pytest.mark.parametrize("kind", ["if_absent", "if_absent over a tombstone", "if_match", "none"])
def test_a_write_whose_response_is_lost_is_not_repeated_over_newer_values(
    s3_server, prefix, proxy, since, kind
):
    other = OtherProcess(s3_server.url(prefix))

    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            condition = {"if_absent": True} if kind.startswith("if_absent") else {}
            if kind == "if_match":
                condition["if_match"] = await store.put("a", b"0")
            if kind == "if_absent over a tombstone":
                await store.put("a", b"0")
                await store.delete("a")
            proxy.lose_next_response(b"\nmine", action=other(*CHANGES[since]))
            with pytest.raises(StateStoreError, match="was lost") as caught:
                await store.put("a", b"mine", **condition)
            assert proxy.lost == 1
            assert caught.value.unknown
            assert not isinstance(caught.value, ConflictError)
            now = await store.get("a")
            assert (now and now.value) == (None if since.endswith("deleted") else b"other")

    asyncio.run(check())


@pytest.mark.parametrize("conditional", [False, True])
def test_a_delete_whose_response_is_lost_keeps_newer_values(s3_server, prefix, proxy, conditional):
    other = OtherProcess(s3_server.url(prefix))

    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            etag = await store.put("a", b"0")
            proxy.lose_next_response(b"holdfast 1 ended", action=other(("put", "a", b"other")))
            if conditional:
                with pytest.raises(StateStoreError) as caught:
                    await store.delete("a", if_match=etag)
                assert caught.value.unknown
            else:
                assert await store.delete("a")
            assert proxy.lost == 1
            assert (await store.get("a")).value == b"other"

    asyncio.run(check())


class Delayed(ObjectStateStore):
    """A store whose next write is delayed for longer than an attempt may take."""

    before_delay = None
    late = None

    async def _write(self, bucket, path, body, mode):
        if self.before_delay is None:
            return await super()._write(bucket, path, body, mode)
        act, self.before_delay = self.before_delay, None
        write = super()._write
        self.late = lambda: write(bucket, path, body, mode)
        await act()
        raise TimeoutError


async def nothing():
    return


@pytest.fixture
def delayed(s3_server, prefix):
    plain = open_state_store(s3_server.url(prefix))
    return Delayed(StoreURL(s3_server.url(prefix)), plain._new_bucket, root=plain._root)


@async_test
async def test_a_late_request_does_not_undo_an_acknowledged_write(delayed):
    async with delayed as store:
        for before in (nothing, lambda: store.put("a", b"0"), lambda: store.delete("a")):
            await before()
            for write in (store.put("a", b"1"), store.delete("a")):
                store.before_delay = nothing
                await write
                if store.late is None:
                    continue
                etag = await store.put("a", b"2")
                assert await store.late() is None  # it is rejected
                assert await store.get("a") == Entry(b"2", etag)
                store.late = None


@async_test
async def test_an_abandoned_write_is_not_repeated_over_newer_values(delayed):
    async with delayed as store:
        await store.put("a", b"0")
        store.before_delay = lambda: open_other(store).put("a", b"other")
        with pytest.raises(StateStoreError, match="written since") as caught:
            await store.put("a", b"mine")
        assert caught.value.unknown
        assert await store.late() is None
        assert (await store.get("a")).value == b"other"


@async_test
async def test_an_abandoned_delete_removes_only_the_value_it_was_meant_for(delayed):
    async with delayed as store:
        await store.put("a", b"0")
        store.before_delay = lambda: open_other(store).put("a", b"other")
        assert await store.delete("a")
        assert (await store.get("a")).value == b"other"
        store.before_delay = lambda: open_other(store).delete("a")
        assert not await store.delete("a")  # the other store did
        assert await store.late() is None
        assert await store.get("a") is None


def open_other(store):
    """Open another store on the same data."""
    return ObjectStateStore(store._url, store._new_bucket, root=store._root)


def test_a_cancelled_write_does_not_undo_a_later_one(s3_server, prefix):
    large = b"x" * 4_000_000

    async def check():
        async with open_state_store(s3_server.url(prefix)) as store:
            cancelled = 0
            for number in range(8):
                try:
                    await asyncio.wait_for(store.put("a", large), 0.005 + number * 0.004)
                except TimeoutError:
                    cancelled += 1
                etag = await store.put("a", b"small")
                await asyncio.sleep(0.05)
                assert await store.get("a") == Entry(b"small", etag)
            assert cancelled

    asyncio.run(check())


def test_nothing_is_lost_or_doubled_when_the_server_is_killed(tmp_path):
    async def use(server):
        async with open_state_store(server.url("killed", timeout=3, patience=60)) as store:
            await write_through_deaths(server, store, counters=2)

    with SeaweedServer(tmp_path) as server:
        asyncio.run(use(server))
