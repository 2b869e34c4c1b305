"""The names of objects, and listings by them."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from holdfast.errors import StateStoreError
from holdfast.stores import Put, open_state_store
from holdfast.stores.objectstore import ObjectStateStore
from holdfast.stores.objectstore.bodies import entry_body, new_token
from holdfast.stores.objectstore.names import (
    MAX_NAME,
    is_shortened,
    listing_window,
    object_key,
    object_name,
)
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange
from stores.listing import list_keys

LONG = st.sampled_from(
    ["k", "/", "é", ".", "~", "-", "k" * 178, "k" * 179, "k" * 180, "d/" * 170, "z" * 690]
)
LONG_KEYS = st.lists(LONG, min_size=1, max_size=6).map("".join)


@given(st.lists(LONG_KEYS, unique=True, max_size=12), LONG_KEYS, st.integers(0, 8), st.data())
@settings(max_examples=60, deadline=None)
def test_keys_of_any_length_are_listed_in_order(keys, other, limit, data):
    after = data.draw(st.sampled_from(["", other, *keys]))
    prefix = data.draw(st.sampled_from(["", other, *keys]))
    prefix = prefix[: data.draw(st.integers(0, len(prefix)))]
    memory = MemoryStore()

    async def check():
        async with ObjectStateStore(StoreURL("s3://bucket"), lambda: memory) as store:
            for key in keys:
                await store.put(key, key.encode(), if_absent=True)
            wanted = sorted(key for key in keys if key.startswith(prefix) and key > after)
            assert await list_keys(store, prefix, start_after=after) == wanted
            assert await list_keys(store, prefix, start_after=after, limit=limit) == wanted[:limit]
            assert {key: e.value for key, e in (await store.get_many(keys)).items()} == {
                key: key.encode() for key in keys
            }

    asyncio.run(check())


@given(LONG_KEYS, LONG_KEYS)
@settings(max_examples=100)
def test_names_sort_like_keys_by_bytes_and_by_folders(one, other):
    low, high = (object_name(key) for key in sorted((one, other)))
    if is_shortened(low) and is_shortened(high) and low[:MAX_NAME] == high[:MAX_NAME]:
        return  # adjacent, and sorted when their keys are known
    assert one == other or low < high
    assert one == other or low.split("/") < high.split("/")
    assert not high.startswith(f"{low}/")  # both a folder and a file
    for key in (one, other):
        assert is_shortened(object_name(key)) or object_key(object_name(key)) == key


@given(LONG_KEYS | st.text(min_size=1, max_size=40))
def test_names_fit_into_every_service(key):
    name = object_name(key)
    # With a prefix of 200 bytes and a slash; parts of 255 for services that use files.
    assert len(name.encode()) <= 1024 - 201
    assert all(0 < len(part) <= 255 for part in name.split("/"))


def test_only_names_that_are_too_long_are_shortened():
    assert object_name("k" * 180) == "k" * 180
    assert object_name("k" * 181) == "k" * 180 + "~-/k"
    assert object_name("k" * 400 + "/a") == f"{'k' * 180}~-/{'k' * 180}~-/{'k' * 40}.~/a"
    deep = "abc/" * 100  # 600 characters of a name
    assert not is_shortened(object_name(deep + "k" * 100))
    assert is_shortened(object_name(deep + "k" * 101))


def test_a_listing_starts_where_its_keys_start():
    assert (
        listing_window(KeyRange(""))
        == listing_window(KeyRange("", ""))
        != listing_window(KeyRange("", "a"))
    )
    assert listing_window(KeyRange("")).after is None
    assert listing_window(KeyRange("", "a")).after == "a"
    assert listing_window(KeyRange("a/b/")).folder == "a.~/b.~"
    assert listing_window(KeyRange("a/b/")).after is None
    assert listing_window(KeyRange("a/b/c")).folder == "a.~/b.~"
    assert listing_window(KeyRange("a/b/c")).after.startswith("a.~/b.~/b}")
    assert listing_window(KeyRange("a/b/", "a/b/c")).after == "a.~/b.~/c"
    assert listing_window(KeyRange("a/\x00")).after == "a.~/!-"
    assert listing_window(KeyRange("\ue000")).after.startswith("}ed}9f}bf")
    assert listing_window(KeyRange("a/" + "k" * 180)).folder == "a.~"
    assert listing_window(KeyRange("a/" + "k" * 181)).folder == f"a.~/{'k' * 180}~-"
    assert listing_window(KeyRange("", "k/" * 300)).after == ("k.~/" * 175) + "~"


def test_long_keys_with_a_common_prefix_are_listed_in_order(s3_server, prefix, proxy):
    keys = list(
        {
            *("s/" + "k" * count for count in range(176, 184)),
            *("s/" + "k" * 180 + end for end in ("/a", "/b", "-", ".", "é", "j", "l", "z/a")),
            *("s/" + "k" * 178 + "/" * count for count in range(4)),
            *("d/" * 174 + end for end in ("", "a", "a/b", "abc/d", "abcd", "abce", "b")),
        }
    )
    random.shuffle(keys)

    async def check():
        async with open_state_store(s3_server.url(prefix, port=proxy.port)) as store:
            await store.put_many([Put(key, key.encode()) for key in keys])
            wanted = sorted(keys)
            assert await list_keys(store) == wanted
            proxy.lose_next_request(at=b"~~")  # of an object with a shortened name
            assert await list_keys(store) == wanted
            for at, key in enumerate(wanted):
                assert await list_keys(store, start_after=key, limit=3) == wanted[at + 1 : at + 4]
                assert await list_keys(store, key) == [k for k in wanted if k.startswith(key)]
            assert proxy.lost == 0
            shortened = [key for key in wanted if is_shortened(object_name(key))]
            for key in shortened:
                assert await store.delete(key)
            assert await list_keys(store) == [key for key in wanted if key not in shortened]

    asyncio.run(check())


def test_the_cache_of_shortened_names_is_bounded(monkeypatch):
    monkeypatch.setattr("holdfast.stores.objectstore.store.MAX_CACHED_KEYS", 3)
    memory = MemoryStore()
    keys = ["k" * count for count in range(800, 810)]

    async def check():
        async with ObjectStateStore(StoreURL("s3://bucket"), lambda: memory) as store:
            await store.put_many([Put(key, b"1") for key in keys])
            assert await list_keys(store) == keys
            assert len(store._keys_of_shortened) == 3

    asyncio.run(check())


def test_a_shortened_name_with_the_body_of_another_key_is_skipped():
    memory = MemoryStore()

    async def check():
        async with ObjectStateStore(StoreURL("s3://bucket"), lambda: memory) as store:
            for key in ("a", "k" * 800):
                await store.put(key, b"1")
            memory.copy("a", object_name("k" * 801))
            memory.copy(object_name("k" * 800), object_name("k" * 802))
            assert await list_keys(store) == ["a", "k" * 800]

    asyncio.run(check())


def test_a_service_that_does_not_list_in_order_is_refused(tmp_path):
    folder = LocalStore(tmp_path)
    names = [f"{number:03}" for number in range(100)]
    random.shuffle(names)
    for name in names:
        folder.put(name, entry_body(b"1", new_token()))

    async def check():
        async with ObjectStateStore(StoreURL("s3://bucket"), lambda: folder) as store:
            with pytest.raises(StateStoreError, match="order"):
                await list_keys(store)

    asyncio.run(check())
