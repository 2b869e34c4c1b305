"""Agents and their sessions, and what queries cost."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import Put
from holdfast.snapshots import Catalog, SessionEntry, SnapshotArchive, SnapshotLocation
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.keys import agent_index_prefix, index_key
from support.async_tests import async_test
from support.observed_store import Watched, save, session_snapshot, state

START = dt.datetime(2026, 11, 15, 9, 30, tzinfo=dt.UTC)
HOSTILE = [
    "a",
    "a-b",
    "a.b",
    "a0",
    "a/b",
    "a%2Fb",
    "a b",
    ".",
    "..",
    "...",
    "/",
    "//",
    "0",
    "~",
    "é",
    "世界",
    "🦀",
    "\x00",
    "\n",
    "%",
    "A",
    "_",
    "sessions",
    "x" * 256,
]


async def make_store(*locations, store=None, every=dt.timedelta(seconds=1)):
    """Return a store with these sessions, started one after the other."""
    store = store or Watched()
    for number, location in enumerate(locations):
        this = Incarnation(store, location)
        log = this.timeline().log
        puts = [Put(log.key(1), b"{}"), Put(log.key(2), b"{}")]
        time = START + number * every
        await this.create(puts, started_at=time, active_at=time)
    store.forget()
    return store


def sessions_of(agent, count):
    return [SnapshotLocation(f"ses_{number:05}", scope_id=agent) for number in range(count)]


@async_test
async def test_saved_sessions_are_in_the_catalog():
    store = Watched()
    archive, catalog = SnapshotArchive(store), Catalog(store)
    assert await catalog.agents() == []
    assert await catalog.session_ids() == []
    assert await catalog.latest_session("writer") is None
    assert (await catalog.sessions("writer")).sessions == []
    before = dt.datetime.now(dt.UTC)
    for session, scope, agent in [
        ("one", "agent", "writer"),
        ("two", "agent", "writer"),
        ("two", "agent", "reader"),
        ("two", "multi_agent", "team"),
    ]:
        location = SnapshotLocation(session, scope, agent)
        for _ in range(2):
            await save(archive, session_snapshot(state(2), location), location)
    assert await catalog.agents() == ["reader", "team", "writer"]
    assert await catalog.session_ids() == ["one", "two"]
    latest = await catalog.latest_session("writer")
    assert latest.location == SnapshotLocation("two", "agent", "writer")
    assert before <= latest.started_at <= dt.datetime.now(dt.UTC)
    assert [each.session_id for each in (await catalog.sessions("writer")).sessions] == [
        "two",
        "one",
    ]
    assert await catalog.locations("two") == [
        SnapshotLocation("two", "agent", "reader"),
        SnapshotLocation("two", "agent", "writer"),
        SnapshotLocation("two", "multi_agent", "team"),
    ]
    assert await catalog.locations("three") == []


@async_test
async def test_the_last_started_session_comes_first():
    names = ["m", "a", "z", "b"]
    store = await make_store(*(SnapshotLocation(name, scope_id="bot") for name in names))
    page = await Catalog(store).sessions("bot")
    assert page.next_token is None
    assert [each.session_id for each in page.sessions] == names[::-1]
    time = START + dt.timedelta(seconds=3)
    assert page.sessions[0] == SessionEntry("bot", "b", "agent", time, time)
    assert page.sessions[0].location == SnapshotLocation("b", "agent", "bot")


@async_test
async def test_sessions_started_at_the_same_time_are_all_listed():
    locations = [*sessions_of("bot", 5), SnapshotLocation("ses_00000", "multi_agent", "bot")]
    store = await make_store(*locations, every=dt.timedelta())
    found = (await Catalog(store).sessions("bot")).sessions
    assert {each.location for each in found} == set(locations)


@pytest.mark.parametrize("limit", [1, 2, 3, 24, 25, 26, 100])
def test_pages_list_every_entry_once(limit):
    @async_test
    async def work():
        store = await make_store(*sessions_of("bot", 25))
        catalog = Catalog(store)
        found, token = [], None
        while True:
            page = await catalog.sessions("bot", limit=limit, next_token=token)
            assert len(page.sessions) <= limit
            found += [each.session_id for each in page.sessions]
            token = page.next_token
            if token is None:
                break
            assert len(page.sessions) == limit
        assert found == [f"ses_{number:05}" for number in reversed(range(25))]

    work()


@async_test
async def test_a_session_created_between_pages_does_not_change_the_next_page():
    store = await make_store(*sessions_of("bot", 6))
    catalog = Catalog(store)
    first = await catalog.sessions("bot", limit=3)
    late = SnapshotLocation("late", scope_id="bot")
    await make_store(*sessions_of("other", 9), late, store=store)
    rest = await catalog.sessions("bot", limit=3, next_token=first.next_token)
    names = [each.session_id for each in first.sessions + rest.sessions]
    assert names == [f"ses_{number:05}" for number in reversed(range(6))]


@async_test
async def test_unknown_keys_in_the_index_are_skipped():
    store = await make_store(*sessions_of("bot", 5))
    prefix = agent_index_prefix("bot")
    newest = index_key(SnapshotLocation("x", scope_id="bot"), START + dt.timedelta(seconds=10))
    for key in (f"{prefix}0_notes", newest + "/more", f"{prefix}zzz", newest[:-5] + "galaxy"):
        await store.put(key, b"notes")
    catalog = Catalog(store)
    assert len((await catalog.sessions("bot")).sessions) == 5
    assert (await catalog.latest_session("bot")).session_id == "ses_00004"
    found, token = [], None
    while True:
        page = await catalog.sessions("bot", limit=2, next_token=token)
        found += [each.session_id for each in page.sessions]
        token = page.next_token
        if token is None:
            break
    assert found == [f"ses_{number:05}" for number in reversed(range(5))]


@async_test
async def test_hostile_ids_are_listed_unchanged():
    locations = [SnapshotLocation(session, scope_id="bot") for session in HOSTILE]
    locations += [SnapshotLocation("s", "multi_agent", agent) for agent in HOSTILE]
    locations += [SnapshotLocation(name, scope_id=name) for name in HOSTILE]
    store = await make_store(*locations)
    catalog = Catalog(store)
    assert set(await catalog.agents()) == {"bot", *HOSTILE}
    assert len(await catalog.agents()) == 1 + len(HOSTILE)
    assert set(await catalog.session_ids()) == {"s", *HOSTILE}
    assert len(await catalog.session_ids()) == 1 + len(HOSTILE)
    assert {each.session_id for each in (await catalog.sessions("bot")).sessions} == set(HOSTILE)
    for name in HOSTILE:
        assert {each.location for each in (await catalog.sessions(name)).sessions} == {
            SnapshotLocation("s", "multi_agent", name),
            SnapshotLocation(name, "agent", name),
        }
        assert set(await catalog.locations(name)) == {
            SnapshotLocation(name, "agent", "bot"),
            SnapshotLocation(name, "agent", name),
        }
    assert {each.scope_id for each in await catalog.locations("s")} == set(HOSTILE)


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
def test_names_are_listed_in_pages(limit):
    @async_test
    async def work():
        store = await make_store(*(SnapshotLocation(name, scope_id=name) for name in HOSTILE))
        catalog = Catalog(store)
        for names in (catalog.agents, catalog.session_ids):
            found = []
            while page := await names(limit=limit, start_after=found[-1] if found else ""):
                assert len(page) <= limit
                found += page
            assert sorted(found) == sorted(HOSTILE)
            assert found == await names()

    work()


@async_test
async def test_a_page_of_names_can_start_after_a_missing_name():
    store = await make_store(*(SnapshotLocation(name, scope_id=name) for name in ("a", "c", "d")))
    assert await Catalog(store).agents(start_after="b") == ["c", "d"]
    assert await Catalog(store).session_ids(start_after="d") == []


async def count_costs(count):
    """Count listings and keys of each query, for a number of sessions per agent."""
    agents = ["reader", "team", "writer"]
    store = await make_store(*(each for agent in agents for each in sessions_of(agent, count)))
    catalog = Catalog(store)
    queries = {
        "agents": lambda: catalog.agents(),
        "first agent": lambda: catalog.agents(limit=1),
        "latest": lambda: catalog.latest_session("writer"),
        "page": lambda: catalog.sessions("team", limit=20),
        "ids": lambda: catalog.session_ids(limit=20),
        "parts": lambda: catalog.locations("ses_00001"),
    }
    found = {}
    for name, ask in queries.items():
        store.forget()
        assert await ask()
        found[name] = (store.listings, store.listed, len(store.read))
    return found


@async_test
async def test_cost_of_a_query_does_not_depend_on_the_size_of_the_store():
    few, many = await count_costs(100), await count_costs(600)
    assert few == many
    assert many["agents"] == (4, 3, 0)
    assert many["latest"] == (14, 78, 19)
    assert many["page"] == (1, 21, 21)
    assert many["ids"] == (20, 20, 0)
    assert many["parts"] == (4, 3, 0)


@pytest.mark.parametrize("bad", [0, -1, True, "1"])
def test_invalid_limit_is_rejected(bad):
    @async_test
    async def work():
        catalog = Catalog(Watched())
        for names in (catalog.agents, catalog.session_ids):
            with pytest.raises(ValueError, match="limit"):
                await names(limit=bad)
        with pytest.raises(ValueError, match="limit"):
            await catalog.sessions("bot", limit=bad)

    work()


@pytest.mark.parametrize("bad", ["", None, "x" * 257, "\ud800"])
def test_invalid_id_is_rejected(bad):
    @async_test
    async def work():
        catalog = Catalog(Watched())
        with pytest.raises((TypeError, ValueError), match="agent_id"):
            await catalog.sessions(bad)
        with pytest.raises((TypeError, ValueError), match="session_id"):
            await catalog.locations(bad)

    work()


@async_test
async def test_invalid_token_is_rejected():
    with pytest.raises(ValueError, match="invalid next_token"):
        await Catalog(Watched()).sessions("bot", next_token="ünknown")
