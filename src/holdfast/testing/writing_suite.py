"""What a write does: to one key, to several, and under conditions."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError
from holdfast.stores.entries import Entry, Put
from holdfast.testing.checks import NewStore, content, in_loop, listed


class WritingSuite:
    """One key, and many."""

    @in_loop
    async def test_what_was_put_comes_back(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert await store.get("a") is None
            for value in (b"", b"plain", bytes(range(256)), b'{"json": [1, 2]}', b"\x00" * 100):
                etag = await store.put("a", value)
                assert await store.get("a") == Entry(value, etag)
                assert isinstance(etag, str)
                assert etag

    @in_loop
    async def test_a_large_value_comes_back(self, new_store: NewStore) -> None:
        value = bytes(range(251)) * 13_000  # 3.2 MB
        async with new_store() as store:
            etag = await store.put("large", value)
            found = await store.get("large")
            assert found == Entry(value, etag)
            etag = await store.put("large", value[::-1], if_match=etag)
            found = await store.get("large")
            assert found == Entry(value[::-1], etag)
            await store.put("large", b"small now", if_match=etag)
            assert await content(store) == {"large": b"small now"}
            assert await store.delete("large")
            assert await content(store) == {}

    @in_loop
    async def test_another_value_has_another_etag(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etags = [await store.put("a", bytes([number])) for number in range(5)]
            assert len(set(etags)) == 5

    @in_loop
    async def test_if_absent_writes_once(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etag = await store.put("a", b"first", if_absent=True)
            with pytest.raises(ConflictError) as caught:
                await store.put("a", b"second", if_absent=True)
            assert caught.value.key == "a"
            assert "'a'" in str(caught.value)
            assert await store.get("a") == Entry(b"first", etag)
            assert await store.delete("a")
            await store.put("a", b"third", if_absent=True)
            assert await content(store) == {"a": b"third"}

    @in_loop
    async def test_if_match_writes_over_what_was_read_and_nothing_else(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            first = await store.put("a", b"1")
            second = await store.put("a", b"2", if_match=first)
            for wrong in (first, "no-such-etag", "", "0", '"', "é", "*", "\n", "\ud800"):
                with pytest.raises(ConflictError):
                    await store.put("a", b"3", if_match=wrong)
            assert await store.get("a") == Entry(b"2", second)
            with pytest.raises(ConflictError) as caught:
                await store.put("b", b"3", if_match=second)
            assert caught.value.key == "b"
            assert await content(store) == {"a": b"2"}

    @in_loop
    async def test_an_etag_does_not_outlive_its_entry(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etag = await store.put("a", b"1")
            await store.delete("a")
            with pytest.raises(ConflictError):
                await store.put("a", b"2", if_match=etag)
            await store.put("a", b"3")
            with pytest.raises(ConflictError):
                await store.put("a", b"4", if_match=etag)
            with pytest.raises(ConflictError):
                await store.delete("a", if_match=etag)
            assert await content(store) == {"a": b"3"}

    @in_loop
    async def test_delete_tells_whether_there_was_one(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert not await store.delete("a")
            etag = await store.put("a", b"1")
            with pytest.raises(ConflictError):
                await store.delete("a", if_match="no-such-etag")
            assert await content(store) == {"a": b"1"}
            assert await store.delete("a", if_match=etag)
            assert await store.get("a") is None
            assert not await store.delete("a")
            with pytest.raises(ConflictError):
                await store.delete("a", if_match=etag)
            assert await listed(store.list()) == []

    @in_loop
    async def test_get_many_gives_those_that_exist_in_the_order_asked(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            assert await store.get_many([]) == {}
            etags = {key: await store.put(key, key.encode()) for key in ("b", "a", "c")}
            found = await store.get_many(["c", "missing", "a", "c"])
            assert list(found.items()) == [
                ("c", Entry(b"c", etags["c"])),
                ("a", Entry(b"a", etags["a"])),
            ]
            assert len(await store.get_many(key for key in "abc")) == 3

    @in_loop
    async def test_put_many_gives_etags_in_order(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert await store.put_many([]) == []
            old = await store.put("b", b"old")
            etags = await store.put_many(
                [Put("c", b"3"), Put("b", b"2", if_match=old), Put("a", b"1", if_absent=True)]
            )
            for key, value, etag in zip("cba", (b"3", b"2", b"1"), etags, strict=True):
                assert await store.get(key) == Entry(value, etag)

    @in_loop
    async def test_put_many_that_fails_writes_nothing_or_what_came_before(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            await store.put("held", b"0")
            for bad in (
                Put("held", b"9", if_absent=True),
                Put("held", b"9", if_match="no-such-etag"),
                Put("missing", b"9", if_match="no-such-etag"),
            ):
                with pytest.raises(ConflictError) as caught:
                    await store.put_many([Put("a", b"1"), bad, Put("z", b"1")])
                assert caught.value.key == bad.key
                expected = {"held": b"0"} if store.atomic_put_many else {"a": b"1", "held": b"0"}
                assert await content(store) == expected

    @in_loop
    async def test_a_batch_of_hundreds_is_written(self, new_store: NewStore) -> None:
        async with new_store() as store:
            puts = [Put(f"batch/{number:04}", str(number).encode()) for number in range(300)]
            assert len(set(await store.put_many(puts))) == 300
            assert await content(store) == {put.key: put.value for put in puts}
            assert len(await store.get_many([put.key for put in puts])) == 300

    @in_loop
    async def test_a_batch_is_never_seen_half_where_the_store_says_so(
        self, new_store: NewStore
    ) -> None:
        keys = [f"version/{number:04}" for number in range(700)]
        async with new_store() as store:
            if not (store.atomic_put_many and store.atomic_get_many):
                pytest.skip("a batch may be seen half, and the store says so")

            async def write() -> None:
                for version in range(3):
                    await store.put_many([Put(key, b"%d" % version) for key in keys])

            writing = asyncio.create_task(write())
            while not writing.done():
                found = await store.get_many(keys)
                assert len(found) in (0, len(keys))
                assert len({entry.value for entry in found.values()}) <= 1
                await asyncio.sleep(0.005)  # or the reads hold up the writes
            await writing
