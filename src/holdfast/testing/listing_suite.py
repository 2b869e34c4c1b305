"""Listings, and the keys that a store must support."""

from __future__ import annotations

import enum
from typing import Any

import pytest

from holdfast.stores.entries import Entry, Put
from holdfast.testing.checks import STRANGE_KEYS, NewStore, async_test, collect_keys, read_all


class ListingSuite:
    """Order, bounds, pages, and any text as a key."""

    many = 1100
    """Number of keys in the test of long listings; more than a page."""

    keys: tuple[str, ...] = STRANGE_KEYS
    """Keys that must round-trip. A store with tighter limits removes some."""

    @async_test
    async def test_keys_are_listed_in_order(self, new_store: NewStore) -> None:
        keys = ["b", "a", "a/b", "a.b", "ab", "a/", "a!", "B", "é", "z", "zz", "\U0001f419"]
        async with new_store() as store:
            assert await collect_keys(store.list("")) == []
            for key in keys:
                await store.put(key, b"1")
            ordered = sorted(keys)
            assert await collect_keys(store.list()) == ordered
            for at, key in enumerate(ordered):
                assert await collect_keys(store.list("", start_after=key)) == ordered[at + 1 :]
                assert (
                    await collect_keys(store.list("", start_after=key, limit=2))
                    == ordered[at + 1 :][:2]
                )
            assert await collect_keys(store.list("", start_after="a0")) == [
                k for k in ordered if k > "a0"
            ]

    @async_test
    async def test_prefix_is_not_a_pattern(self, new_store: NewStore) -> None:
        keys = ["a%b", "a_b", "aXb", "a*b", "a/b", "a/c/d", "a/c/e", "ab", "A/b", "a/cc", "a["]
        async with new_store() as store:
            for key in keys:
                await store.put(key, b"1")
            for prefix in (
                "a",
                "a%",
                "a_",
                "a*",
                "a/",
                "a/c",
                "a/c/",
                "a/c/d",
                "b",
                "A",
                "a[",
                "[",
            ):
                expected = sorted(key for key in keys if key.startswith(prefix))
                assert await collect_keys(store.list(prefix)) == expected
                assert await collect_keys(store.list(prefix, limit=1)) == expected[:1]
            assert await collect_keys(store.list("a/", start_after="a/c/d")) == ["a/c/e", "a/cc"]
            assert await collect_keys(store.list("a/", start_after="Z")) == [
                "a/b",
                "a/c/d",
                "a/c/e",
                "a/cc",
            ]
            assert await collect_keys(store.list("a/", start_after="b")) == []
            assert await collect_keys(store.list("a/", limit=0)) == []

    @async_test
    async def test_listing_longer_than_a_page_is_complete(self, new_store: NewStore) -> None:
        async with new_store() as store:
            keys = [f"page/{number:06}" for number in range(self.many)]
            for start in range(0, self.many, 100):
                await store.put_many([Put(key, b"1") for key in keys[start : start + 100]])
            assert await collect_keys(store.list("page/")) == keys
            assert await collect_keys(store.list("page/", limit=self.many - 1)) == keys[:-1]
            assert await collect_keys(store.list("page/", start_after=keys[-3])) == keys[-2:]

    @async_test
    async def test_keys_can_be_deleted_while_listing(self, new_store: NewStore) -> None:
        async with new_store() as store:
            await store.put_many([Put(f"gone/{number}", b"1") for number in range(30)])
            await store.put("stays", b"1")
            async for key in store.list("gone/"):
                assert await store.delete(key)
            assert await collect_keys(store.list()) == ["stays"]

    @async_test
    async def test_keys_may_be_any_text(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etags = {}
            for number, key in enumerate(self.keys):
                etags[key] = await store.put(key, b"%d" % number, if_absent=True)
            assert await collect_keys(store.list()) == sorted(self.keys)
            assert set(await store.get_many(self.keys)) == set(self.keys)
            for number, key in enumerate(self.keys):
                assert await store.get(key) == Entry(b"%d" % number, etags[key])
                assert key in await collect_keys(store.list(key))
                assert key not in await collect_keys(store.list("", start_after=key))
            for key in self.keys:
                assert await store.delete(key, if_match=etags[key])
            assert await collect_keys(store.list()) == []

    @async_test
    async def test_key_of_a_str_subclass_is_its_text(self, new_store: NewStore) -> None:
        class Colour(str, enum.Enum):  # noqa: UP042 - its str() differs
            RED = "red"

        async with new_store() as store:
            await store.put(Colour.RED, b"1")
            assert await collect_keys(store.list(Colour.RED)) == ["red"]
            assert list(await store.get_many([Colour.RED, "red"])) == ["red"]
            with pytest.raises(ValueError, match="twice"):
                await store.put_many([Put(Colour.RED, b"2"), Put("red", b"2")])
            assert await store.delete("red")

    @async_test
    async def test_invalid_input_is_refused_before_any_write(self, new_store: NewStore) -> None:
        wrong: Any = 7
        async with new_store() as store:
            for key in ("", "x" * 8193, "é" * 4097, wrong, 7, b"bytes", "\ud800", "a\udfffb"):
                for call in (
                    lambda key=key: store.get(key),
                    lambda key=key: store.get_many(["good", key]),
                    lambda key=key: store.put(key, b"1"),
                    lambda key=key: store.put_many([Put("good", b"1"), Put(key, b"1")]),
                    lambda key=key: store.delete(key),
                ):
                    with pytest.raises((TypeError, ValueError)):
                        await call()
            values: list[Any] = ["text", 7, None, [b"1"]]
            for value in values:
                with pytest.raises(TypeError):
                    await store.put("good", value)
                with pytest.raises(TypeError):
                    await store.put_many([Put("good", b"1"), Put("bad", value)])
            with pytest.raises(ValueError, match="both"):
                await store.put("good", b"1", if_match="etag", if_absent=True)
            with pytest.raises(ValueError, match="twice"):
                await store.put_many([Put("good", b"1"), Put("good", b"2")])
            with pytest.raises(TypeError):
                await store.put_many([("good", b"1")])  # type: ignore[list-item]
            with pytest.raises(TypeError):
                await store.put("good", b"1", if_match=wrong)
            with pytest.raises(TypeError, match="several"):
                await store.get_many("good")
            for arguments in ({"limit": -1}, {"limit": "1"}, {"start_after": 7}, {"prefix": wrong}):
                with pytest.raises((TypeError, ValueError)):
                    await collect_keys(store.list(**{"prefix": "", **arguments}))
            assert await read_all(store) == {}
