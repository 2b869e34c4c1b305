"""A suite for stores that record completed writes: requests and responses that get lost.

A subclass says how its requests can be recognized, and opens the store with and without a proxy.
"""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import read_all
from support.async_tests import async_test


def through(proxy, url, server):
    """Return a store URL that leads through a proxy."""
    return url.replace(f":{server.port}/", f":{proxy.port}/")


class LostResponseSuite:
    """Whatever is lost, each write is applied once, and a conflict means another writer."""

    write_request = b""
    """In every request that writes one entry."""

    batch_request = b""
    """In the last request of a batch."""

    read_request = b""
    """In every request that reads one entry."""

    @pytest.fixture
    def url(self):
        raise NotImplementedError

    @pytest.fixture
    def proxied_url(self):
        raise NotImplementedError

    @pytest.fixture
    def lose_response(self, proxy, url):
        """Lose the next response; before the store notices, another one does something."""

        def lose(after, act):
            async def act_elsewhere():
                async with open_state_store(url) as other:
                    await act(other)

            proxy.lose_next_response(after, action=lambda: asyncio.run(act_elsewhere()))

        return lose

    @async_test
    async def test_a_write_whose_response_was_lost_is_applied_once(self, proxied_url, proxy):
        async with open_state_store(proxied_url) as store:
            await store.put("first", b"so that the server knows the script")
            await store.delete("first")
            proxy.lose_next_response(after=self.write_request)
            first = await store.put("a", b"1", if_absent=True)
            assert await store.get("a") == Entry(b"1", first)
            proxy.lose_next_response(after=self.write_request)
            second = await store.put("a", b"2", if_match=first)
            assert await store.get("a") == Entry(b"2", second)
            proxy.lose_next_response(after=self.batch_request)
            puts = [
                Put("c", b"3", if_absent=True),
                Put("a", b"3", if_match=second),
                Put("b", b"3"),
            ]
            etags = await store.put_many(puts)
            for key, etag in zip("cab", etags, strict=True):
                assert await store.get(key) == Entry(b"3", etag)
            proxy.lose_next_response(after=self.write_request)
            assert await store.delete("a", if_match=etags[1])
            proxy.lose_next_response(after=self.write_request)
            assert await store.delete("b")
            assert await read_all(store) == {"c": b"3"}
            assert proxy.lost == 5

    @async_test
    async def test_a_request_that_was_lost_is_sent_again(self, proxied_url, proxy):
        async with open_state_store(proxied_url) as store:
            assert not await store.delete("missing")
            for request in (self.write_request, self.read_request):
                proxy.lose_next_request(at=request)
            etag = await store.put("a", b"1", if_absent=True)
            assert await store.get("a") == Entry(b"1", etag)
            assert proxy.lost == 2

    @async_test
    async def test_a_retry_keeps_what_others_wrote_since_the_lost_response(
        self, proxied_url, proxy, lose_response
    ):
        async def overwrite(other):
            found = await other.get("b")
            assert found.value == b"ours"
            await other.put("b", b"theirs", if_match=found.etag)

        async def delete(other):
            assert await other.delete("lock", if_match=(await other.get("lock")).etag)

        async def create(other):
            await other.put("gone", b"theirs", if_absent=True)

        async def replace(other):
            await other.put("a", b"theirs")

        async with open_state_store(proxied_url) as store:
            etag, *_ = await store.put_many([Put("a", b"1"), Put("b", b"1"), Put("gone", b"1")])
            assert not await store.delete("missing")
            lose_response(self.batch_request, overwrite)
            etag, _ = await store.put_many([Put("a", b"ours", if_match=etag), Put("b", b"ours")])
            assert await read_all(store) == {"a": b"ours", "b": b"theirs", "gone": b"1"}
            lose_response(self.write_request, delete)
            await store.put("lock", b"ours", if_absent=True)
            assert await store.get("lock") is None
            lose_response(self.write_request, create)
            assert await store.delete("gone")
            lose_response(self.write_request, replace)
            await store.put("a", b"ours", if_match=etag)
            lose_response(self.write_request, replace)
            await store.put("a", b"ours")
            assert await read_all(store) == dict.fromkeys(("a", "b", "gone"), b"theirs")
            lose_response(self.write_request, create)
            assert await store.delete("gone", if_match=(await store.get("gone")).etag)
            assert await read_all(store) == dict.fromkeys(("a", "b", "gone"), b"theirs")
            assert proxy.lost == 6

    @async_test
    async def test_a_written_batch_is_acknowledged_though_its_condition_failed_since(
        self, proxied_url, proxy, lose_response
    ):
        async def delete(other):
            assert await other.delete("fence")

        async with open_state_store(proxied_url) as store:
            for request, puts in (
                (self.write_request, [Put("a", b"1", if_absent=True)]),
                (self.write_request, [Put("a", b"2")]),
                (self.batch_request, [Put("b", b"1", if_absent=True), Put("z", b"1")]),
            ):
                held = Condition("fence", await store.put("fence", b"1"))
                lose_response(request, delete)
                etags = await store.put_many(puts, conditions=[held])
                for put, etag in zip(puts, etags, strict=True):
                    assert await store.get(put.key) == Entry(put.value, etag)
                with pytest.raises(ConflictError) as caught:
                    await store.put_many([Put("late", b"1")], conditions=[held])
                assert caught.value.key == "fence"
            assert await read_all(store) == {"a": b"2", "b": b"1", "z": b"1"}
            assert proxy.lost == 3

    @async_test
    async def test_a_failed_condition_is_a_conflict_after_a_lost_request(self, proxied_url, proxy):
        async with open_state_store(proxied_url) as store:
            for puts in ([Put("a", b"1")], [Put("a", b"1"), Put("z", b"1")]):
                held = Condition("fence", await store.put("fence", b"1"))
                await store.delete("fence")
                proxy.lose_next_request(at=self.write_request)
                with pytest.raises(ConflictError) as caught:
                    await store.put_many(puts, conditions=[held])
                assert caught.value.key == "fence"
            assert await read_all(store) == {}
            assert proxy.lost == 2

    @async_test
    async def test_a_conflict_after_a_lost_request_is_a_conflict(self, proxied_url, proxy):
        async with open_state_store(proxied_url) as store:
            old = await store.put("a", b"1")
            await store.put("a", b"theirs")
            assert not await store.delete("missing")
            for attempt in (
                lambda: store.put("a", b"2", if_match=old),
                lambda: store.put("a", b"2", if_absent=True),
                lambda: store.put_many([Put("b", b"2"), Put("a", b"2", if_match=old)]),
                lambda: store.delete("a", if_match=old),
            ):
                proxy.lose_next_request(at=self.write_request)
                with pytest.raises(ConflictError):
                    await attempt()
            proxy.lose_next_request(at=self.write_request)
            assert not await store.delete("missing")
            assert await read_all(store) == {"a": b"theirs"}
            assert proxy.lost == 5

    @async_test
    async def test_an_unreachable_server_is_retried_until_patience_ends(self, proxied_url, proxy):
        async with open_state_store(proxied_url) as store:
            etag = await store.put("a", b"1")
            proxy.refuse_for(0.4)
            found = await asyncio.gather(*(store.get("a") for _ in range(30)))
            assert found == [Entry(b"1", etag)] * 30
        async with open_state_store(f"{proxied_url}&patience=0.2") as store:
            await store.get("a")
            with proxy.refusing(), pytest.raises(StateStoreError, match="reached") as caught:
                await asyncio.sleep(0.05)  # until the event loop has noticed
                await store.put("a", b"2", if_match=etag)
            assert caught.value.transient
            assert not caught.value.unknown
            await store.put("a", b"3", if_match=etag)
