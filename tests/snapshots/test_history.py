"""Listing the history from its newest end, without listing all of it."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Put
from holdfast.snapshots import history
from holdfast.snapshots.history import (
    find_newest_key,
    first_id_at,
    id_milliseconds,
    iterate_newest_first,
    list_history,
)
from support.async_tests import async_test
from support.observed_store import HERE, InterruptedStore, ObservedStore, collect

DAY = 86_400_000
OTHER = HERE.__class__("ses_abc123", scope_id="research-bot2")


def now():
    return time.time_ns() // 1_000_000


def id_at(millisecond, number=0):
    """Return the n-th id made in a millisecond."""
    return f"{first_id_at(millisecond)}-7000-8000-{number:012x}"


async def store_with_history(ids):
    store = ObservedStore()
    # Other keys nearby, which must not be found.
    around = [
        HERE.latest_key,
        HERE.manifest_key,
        OTHER.snapshot_key(id_at(now())),
        f"{HERE.prefix}log/1.json",
    ]
    await store.put_many([Put(key, b"{}") for key in around])
    await store.put_many([Put(HERE.snapshot_key(each), b"{}") for each in dict.fromkeys(ids)])
    store.forget()
    return store


def names_of(history_keys):
    return [each.name for each in history_keys]


def in_order(ids):
    """Return ids in the order of their keys, last first."""
    return sorted(set(ids), key=HERE.snapshot_key, reverse=True)


async def check(ids):
    store = await store_with_history(ids)
    assert names_of(await collect(iterate_newest_first(store, HERE))) == in_order(ids)
    assert names_of(await list_history(store, HERE)) == in_order(ids)[::-1]
    found = await find_newest_key(store, HERE)
    assert found is None if not ids else names_of([found]) == in_order(ids)[:1]


AGO = st.sampled_from([1, 1000, 60_000, 3_600_000, DAY, 30 * DAY, 365 * DAY, 50 * 365 * DAY])
MADE = st.builds(
    lambda unit, times, number: id_at(max(0, now() - unit * times), number),
    AGO,
    st.integers(0, 20),
    st.integers(0, 5),
)
AHEAD = st.builds(lambda unit, times: id_at(now() + unit * times), AGO, st.integers(0, 5))
DENSE = st.builds(lambda number: id_at(1_790_000_000_000, number), st.integers(0, 300))
OWN = st.from_regex(r"\A[A-Za-z0-9_-]{1,12}\Z")


@pytest.mark.parametrize("page", [100, 7, 2])
@given(ids=st.lists(MADE | AHEAD | DENSE | OWN, max_size=40))
def test_newest_first_holds_for_any_ids(page, ids):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history, "PAGE_SIZE", page)
        patch.setattr(history, "SEARCH_PAGE_SIZE", page)
        asyncio.run(check(ids))


SHAPES = {
    "none": [],
    "one": [id_at(now())],
    "one of long ago": [id_at(1)],
    "one at the epoch": [id_at(0)],
    "one of the far future": [id_at((1 << 48) - 1)],
    "just a page": [id_at(now() - at) for at in range(100)],
    "a page and one": [id_at(now() - at) for at in range(101)],
    "one a day for a year": [id_at(now() - at * DAY) for at in range(365)],
    "a thousand in one millisecond": [id_at(now() - DAY, at) for at in range(1000)],
    "three bursts": [id_at(now() - at * DAY, n) for at in (1, 100, 101) for n in range(150)],
    "many in the future": [id_at(now() + DAY + at) for at in range(250)],
    "on both sides of now": [id_at(now() + at * 10_000) for at in range(-150, 150)],
    "one's own before": [f"000{at:04}" for at in range(250)],
    "one's own after": [f"turn-{at:04}" for at in range(250)],
    "one's own around": [f"{where}-{at:04}" for where in "-AZ_az0" for at in range(20)]
    + [id_at(now() - at * 777) for at in range(200)],
    "longer and shorter": ["a", "a-b", "a0", "a_", "ab", "0", "0-", "00"],
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_snapshot_is_listed_once_and_in_order(shape):
    asyncio.run(check(SHAPES[shape]))


@pytest.mark.parametrize("after", [0, 60_000, 540_000, -60_000])
@pytest.mark.parametrize("own", ["019a8b5e-6f00", "019a8b5e", "019a8b5e-6f00-", "019a8b5e-6f0"])
def test_an_id_that_looks_like_a_time_is_listed_once(own, after, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: (0x019A8B5E6F00 + after) * 1_000_000)
    asyncio.run(check([own, id_at(now()), id_at(now() - 1), id_at(now() - DAY)]))


async def count_listings(ids):
    """Count the listings, and the keys read, to find the newest and the ten newest."""
    store = await store_with_history(ids)
    await find_newest_key(store, HERE)
    first = store.listings, store.listed
    store.forget()
    found = []
    async for each in iterate_newest_first(store, HERE):
        found.append(each)
        if len(found) == 10:
            break
    return first, (store.listings, store.listed)


FEW, MANY = 1000, 20_000
PACES = {
    "many a second": lambda at: id_at(now() - at * 20),
    "one a minute": lambda at: id_at(now() - at * 60_000),
    "one an hour": lambda at: id_at(now() - at * 3_600_000),
    "a few in each millisecond": lambda at: id_at(now() - at // 5, at % 5),
    "a burst a year ago": lambda at: id_at(now() - 365 * DAY - at),
}


@pytest.mark.parametrize("pace", PACES)
def test_cost_of_finding_the_newest_does_not_depend_on_their_number(pace):
    few = asyncio.run(count_listings([PACES[pace](at) for at in range(FEW)]))
    many = asyncio.run(count_listings([PACES[pace](at) for at in range(MANY)]))
    for (few_calls, few_keys), (many_calls, many_keys) in zip(few, many, strict=True):
        assert max(few_calls, many_calls) <= 64
        # The search halves the time since the newest, which grows on a slow machine.
        assert many_calls <= few_calls + 40
        assert max(few_keys, many_keys) <= 2000


def test_the_newest_of_ids_without_a_time_is_found_by_listing_once():
    (calls, keys), _ = asyncio.run(count_listings([f"turn-{at:06}" for at in range(MANY)]))
    assert calls <= 100
    assert keys <= 1.1 * MANY


@async_test
async def test_iterating_all_takes_about_one_listing_per_snapshot():
    store = await store_with_history([id_at(now() - at * 60_000) for at in range(5_000)])
    assert len(await collect(iterate_newest_first(store, HERE))) == 5_000
    assert store.listings < 1.1 * 5_000


@async_test
async def test_an_empty_history_takes_few_listings():
    store = await store_with_history([])
    assert await find_newest_key(store, HERE) is None
    assert store.listings <= 12
    assert store.read == []


@async_test
async def test_the_search_ends_when_all_are_deleted_during_it(monkeypatch):
    monkeypatch.setattr(history, "SEARCH_PAGE_SIZE", 2)
    ids = [id_at(now() - at * 1000) for at in range(9)]
    for at in range(1, 12):
        store = await store_with_history(ids)

        async def interrupt(store=store):
            for each in ids:
                await store.delete(HERE.snapshot_key(each))

        found = await find_newest_key(InterruptedStore(store, at, interrupt), HERE)
        assert found is None or found.snapshot_id in ids


def test_first_id_at_sorts_before_every_id_of_its_millisecond():
    for millisecond in (0, 1, 1_790_000_000_000, (1 << 48) - 1):
        assert id_milliseconds(id_at(millisecond, 7)) == millisecond
        assert first_id_at(millisecond) < id_at(millisecond)
        assert millisecond == 0 or id_at(millisecond - 1, (1 << 48) - 1) < first_id_at(millisecond)
