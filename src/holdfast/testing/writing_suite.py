"""Reads and writes of one key and of several."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import ConflictError
from holdfast.stores.entries import Entry, Put
from holdfast.testing.checks import NewStore, async_test, collect_keys, read_all


class WritingSuite:
    """get, put, delete, get_many and put_many."""

    @async_test
    async def test_get_returns_what_was_put(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert await store.get("a") is None
            for value in (b"", b"plain", bytes(range(256)), b'{"json": [1, 2]}', b"\x00" * 100):
                etag = await store.put("a", value)
                assert await store.get("a") == Entry(value, etag)
                assert isinstance(etag, str)
                assert etag

    @async_test
    async def test_large_values_round_trip(self, new_store: NewStore) -> None:
        value = bytes(range(251)) * 13_000  # 3.2 MB
        async with new_store() as store:
            etag = await store.put("large", value)
            found = await store.get("large")
            assert found == Entry(value, etag)
            etag = await store.put("large", value[::-1], if_match=etag)
            found = await store.get("large")
            assert found == Entry(value[::-1], etag)
            await store.put("large", b"small now", if_match=etag)
            assert await read_all(store) == {"large": b"small now"}
            assert await store.delete("large")
            assert await read_all(store) == {}

    @async_test
    async def test_every_value_has_its_own_etag(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etags = [await store.put("a", bytes([number])) for number in range(5)]
            assert len(set(etags)) == 5

    @async_test
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
            assert await read_all(store) == {"a": b"third"}

    @async_test
    async def test_if_match_fails_with_another_etag(self, new_store: NewStore) -> None:
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
            assert await read_all(store) == {"a": b"2"}

    @async_test
    async def test_etag_is_invalid_after_a_delete(self, new_store: NewStore) -> None:
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
            assert await read_all(store) == {"a": b"3"}

    @async_test
    async def test_delete_returns_whether_the_key_existed(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert not await store.delete("a")
            etag = await store.put("a", b"1")
            with pytest.raises(ConflictError):
                await store.delete("a", if_match="no-such-etag")
            assert await read_all(store) == {"a": b"1"}
            assert await store.delete("a", if_match=etag)
            assert await store.get("a") is None
            assert not await store.delete("a")
            with pytest.raises(ConflictError):
                await store.delete("a", if_match=etag)
            assert await collect_keys(store.list()) == []

    @async_test
    async def test_get_many_returns_existing_keys_in_the_requested_order(
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

    @async_test
    async def test_put_many_returns_etags_in_order(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert await store.put_many([]) == []
            old = await store.put("b", b"old")
            etags = await store.put_many(
                [Put("c", b"3"), Put("b", b"2", if_match=old), Put("a", b"1", if_absent=True)]
            )
            for key, value, etag in zip("cba", (b"3", b"2", b"1"), etags, strict=True):
                assert await store.get(key) == Entry(value, etag)

    @async_test
    async def test_failed_put_many_writes_nothing_or_a_prefix(self, new_store: NewStore) -> None:
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
                assert await read_all(store) == expected

    @async_test
    async def test_put_many_accepts_hundreds_of_keys(self, new_store: NewStore) -> None:
        async with new_store() as store:
            puts = [Put(f"batch/{number:04}", str(number).encode()) for number in range(300)]
            assert len(set(await store.put_many(puts))) == 300
            assert await read_all(store) == {put.key: put.value for put in puts}
            assert len(await store.get_many([put.key for put in puts])) == 300

    @async_test
    async def test_atomic_batch_is_never_read_partially(self, new_store: NewStore) -> None:
        keys = [f"version/{number:04}" for number in range(700)]
        async with new_store() as store:
            if not (store.atomic_put_many and store.atomic_get_many):
                pytest.skip("the store declares no atomic batches")

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
