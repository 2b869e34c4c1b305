"""Filters of listings."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import Session, SnapshotArchive
from holdfast.snapshots.filters import make_filter, parse_since
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test

NOW = dt.datetime(2026, 6, 1, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2h", NOW - dt.timedelta(hours=2)),
        ("3d", NOW - dt.timedelta(days=3)),
        ("90s", NOW - dt.timedelta(seconds=90)),
        ("15m", NOW - dt.timedelta(minutes=15)),
        ("1w", NOW - dt.timedelta(weeks=1)),
        ("2026-05-31", dt.datetime(2026, 5, 31, tzinfo=dt.UTC)),
        ("2026-05-31T10:30", dt.datetime(2026, 5, 31, 10, 30, tzinfo=dt.UTC)),
        ("2026-05-31T10:30:00Z", dt.datetime(2026, 5, 31, 10, 30, tzinfo=dt.UTC)),
        ("2026-05-31T10:30:00+02:00", dt.datetime(2026, 5, 31, 8, 30, tzinfo=dt.UTC)),
    ],
)
def test_parse_since_accepts_durations_and_times(text, expected):
    assert parse_since(text, NOW) == expected


@pytest.mark.parametrize(
    "text", ["", "2 h", "h", "-2h", "2y", "yesterday", "999999999w", "2026-13"]
)
def test_parse_since_rejects_other_text(text):
    with pytest.raises(ValueError, match=r"invalid time .*; use a duration such as 90s"):
        parse_since(text, NOW)


def test_invalid_filters_are_rejected():
    with pytest.raises(ValueError, match="status"):
        make_filter(status="finished")
    with pytest.raises(ValueError, match="time zone"):
        make_filter(since=dt.datetime(2026, 6, 1))
    with pytest.raises(TypeError, match="since must be a datetime"):
        make_filter(since="2h")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="tags"):
        make_filter(tags=["env=x"])  # type: ignore[arg-type]
    assert not make_filter()


async def save_snapshots(count: int) -> tuple[SnapshotArchive, object, list[str]]:
    store = MemoryStateStore()
    ids = []
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        for number in range(count):
            session.status = "failed" if number % 3 == 0 else "running"
            session.set("turn", number)
            tags = {"turn": str(number), "parity": "even" if number % 2 == 0 else "odd"}
            ids.append((await session.save(tags=tags)).snapshot_id)
    return SnapshotArchive(store), session.location, ids


@async_test
async def test_snapshots_are_filtered_by_status_and_tags():
    archive, here, ids = await save_snapshots(12)
    page = await archive.list_snapshots(location=here, status="failed")
    assert page.snapshot_ids == ids[::3]
    page = await archive.list_snapshots(location=here, tags={"parity": "odd"})
    assert page.snapshot_ids == ids[1::2]
    page = await archive.list_snapshots(location=here, status="failed", tags={"parity": "odd"})
    assert page.snapshot_ids == [ids[3], ids[9]]
    page = await archive.list_snapshots(location=here, status=["failed", "running"])
    assert (page.snapshot_ids, page.next_token) == (ids, None)
    page = await archive.list_snapshots(location=here, tags={"turn": "no such turn"})
    assert (page.snapshots, page.next_token) == ([], None)


@async_test
async def test_snapshots_are_filtered_by_time():
    archive, here, ids = await save_snapshots(5)
    infos = (await archive.list_snapshots(location=here)).snapshots
    page = await archive.list_snapshots(location=here, since=infos[3].created_at)
    assert page.snapshot_ids == ids[3:]


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
@async_test
async def test_filtered_pages_are_full_and_list_each_snapshot_once(limit):
    archive, here, ids = await save_snapshots(150)
    found, token = [], None
    while True:
        page = await archive.list_snapshots(
            location=here, limit=limit, next_token=token, status="failed"
        )
        found += page.snapshot_ids
        token = page.next_token
        if token is None:
            break
        assert len(page.snapshots) == limit
    assert found == ids[::3]


@async_test
async def test_a_filtered_listing_can_start_after_a_snapshot():
    archive, here, ids = await save_snapshots(5)
    page = await archive.list_snapshots(location=here, start_after=ids[1])
    assert page.snapshot_ids == ids[2:]
    page = await archive.list_snapshots(location=here, start_after=ids[1], limit=2)
    assert page.snapshot_ids == ids[2:4]
    page = await archive.list_snapshots(location=here, next_token=page.next_token, limit=2)
    assert (page.snapshot_ids, page.next_token) == (ids[4:], None)
    page = await archive.list_snapshots(location=here, start_after=ids[1], status="failed")
    assert page.snapshot_ids == [ids[3]]
