"""Summaries of sessions, and their order."""

from __future__ import annotations

import datetime as dt

import pytest

from holdfast import (
    Catalog,
    IntegrityError,
    RetentionPolicy,
    Session,
    SessionSnapshot,
    SnapshotArchive,
    SnapshotManager,
    Store,
)
from holdfast.snapshots.catalog import summary
from holdfast.snapshots.catalog.summary import summarize_sessions
from holdfast.snapshots.filters import make_filter
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test

CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


class CountingStore(MemoryStateStore):
    """A store that counts the bytes read from it."""

    def __init__(self):
        super().__init__()
        self.read = 0
        self.keys = []

    async def get_many(self, keys):
        found = await super().get_many(keys)
        self.read += sum(len(entry.value) for entry in found.values())
        self.keys += list(found)
        return found


async def write(store, agent, session, *, status="running", turns=1, tags=None, **fields):
    async with Session.open(store, agent_id=agent, session_id=session) as opened:
        for number in range(turns):
            opened.add_message("user", f"hello {number}", **fields)
        opened.status = status
        if tags is not None:
            await opened.save(tags=tags)
    return opened


@async_test
async def test_a_summary_describes_a_session():
    store = MemoryStateStore()
    session = await write(
        store, "bot", "ses", status="waiting", turns=3, tags={"env": "x"}, tool_calls=[CALL]
    )
    page = await Catalog(store).summaries()
    (found,) = page.sessions
    assert page.next_token is None
    assert (found.agent_id, found.session_id, found.scope) == ("bot", "ses", "agent")
    assert found.location == session.location
    assert (found.status, found.message_count, found.tags) == ("waiting", 3, {"env": "x"})
    assert (found.size_bytes, found.event_count) == (session.snapshot().size_bytes, 5)
    assert {call.tool for call in found.unfinished} == {"search"}
    assert found.problem is None
    events = (await session.export()).events
    assert found.active_at == events[-1].at
    assert found.started_at == events[0].at


@async_test
async def test_all_filters_must_match():
    store = MemoryStateStore()
    await write(store, "bot", "a", status="failed", tags={"env": "x", "team": "1"})
    await write(store, "bot", "b", status="failed", tags={"env": "y"})
    await write(store, "ann", "c", status="completed", tags={"env": "x"})
    await write(store, "ann", "d", tool_calls=[CALL])

    async def names(*arguments, **filters):
        page = await Catalog(store).summaries(*arguments, **filters)
        return [each.session_id for each in page.sessions]

    assert await names() == ["d", "c", "b", "a"]
    assert await names("bot") == ["b", "a"]
    assert await names(status="failed") == ["b", "a"]
    assert await names(status=["failed", "completed"]) == ["c", "b", "a"]
    assert await names(tags={"env": "x"}) == ["c", "a"]
    assert await names(tags={"env": "x", "team": "1"}) == ["a"]
    assert await names(status="failed", tags={"env": "x"}) == ["a"]
    assert await names(unfinished=True) == ["d"]
    assert await names("bot", unfinished=True) == []
    third = (await Catalog(store).summaries()).sessions[1]
    assert await names(since=third.active_at) == ["d", "c"]
    assert await names(since=dt.datetime.now(dt.UTC)) == []
    with pytest.raises(ValueError, match="status"):
        await names(status="done")


@pytest.mark.parametrize("limit", [1, 2, 7, 100])
@async_test
async def test_sessions_of_all_agents_are_merged_newest_first(limit):
    store = MemoryStateStore()
    written = []
    for number in range(40):
        agent = ("ann", "bob/x", "ü", "a b")[number * number % 7 % 4]
        await write(store, agent, f"ses_{number}", status="failed" if number % 4 else "running")
        written.append((agent, f"ses_{number}", number % 4 != 0))
    catalog = Catalog(store)
    for filters in ({}, {"status": "failed"}):
        found, token = [], None
        while True:
            page = await catalog.summaries(limit=limit, next_token=token, **filters)
            found += [(each.agent_id, each.session_id) for each in page.sessions]
            assert len(page.sessions) <= limit
            token = page.next_token
            if token is None:
                break
            assert token.isascii()
        wanted = [each[:2] for each in reversed(written) if each[2] or not filters]
        assert found == wanted


@async_test
async def test_sessions_active_at_the_same_time_are_listed_once_each():
    store = MemoryStateStore()
    manager = SnapshotManager(store)
    await write(store, "a", "s0")
    document = await manager.export_session(agent_id="a", session_id="s0")
    names = [("a", "s0")]
    for agent, session in (("a", "s/1"), ("b", "s-1"), ("a", "s"), ("b", "s"), ("a", "s~")):
        await manager.import_session(document, agent_id=agent, session_id=session)
        names.append((agent, session))
    found, token = [], None
    while True:
        page = await Catalog(store).summaries(limit=1, next_token=token)
        found += [(each.agent_id, each.session_id) for each in page.sessions]
        token = page.next_token
        if token is None:
            break
    assert sorted(found) == sorted(names)


@async_test
async def test_a_commit_moves_a_session_to_the_front():
    store = MemoryStateStore()
    for name in ("a", "b", "c"):
        await write(store, "bot", name)
    await write(store, "bot", "a")
    await write(store, "ann", "d")
    await write(store, "bot", "b")
    page = await Catalog(store).summaries()
    assert [each.session_id for each in page.sessions] == ["b", "d", "a", "c"]
    times = [each.active_at for each in page.sessions]
    assert times == sorted(times, reverse=True)
    first = await Catalog(store).summaries(limit=2)
    rest = await Catalog(store).summaries(limit=2, next_token=first.next_token)
    assert [*first.sessions, *rest.sessions] == page.sessions


@async_test
async def test_a_fork_is_not_activity():
    store = MemoryStateStore()
    await write(store, "bot", "a")
    await write(store, "bot", "b")
    before = (await Catalog(store).summaries()).sessions[-1]
    assert before.session_id == "a"
    async with Session.open(store, agent_id="bot", session_id="a") as session:
        fork = await session.fork("fork")
    found = {each.session_id: each for each in (await Catalog(store).summaries()).sessions}
    assert found["a"].active_at == before.active_at
    assert found["fork"].status == "running"
    fork.set("x", 1)
    await fork.commit()
    page = await Catalog(store).summaries()
    assert page.sessions[0].session_id == "fork"


@async_test
async def test_a_page_reads_only_the_sessions_it_shows(monkeypatch):
    monkeypatch.setattr(
        summary, "ACTIVITY_RESOLUTION", dt.timedelta(0)
    )  # as if they were minutes apart
    store = CountingStore()
    for number in range(30):
        await write(store, "bot", f"ses_{number}")
    store.keys.clear()
    page = await Catalog(store).summaries(limit=3)
    read = {key.split("/")[1] for key in store.keys if "/log/" in key}
    assert read == {each.session_id for each in page.sessions}
    assert page.next_token is not None


@async_test
async def test_a_summary_does_not_read_the_whole_log():
    store = CountingStore()
    async with Session.open(store, agent_id="bot", session_id="long") as session:
        for number in range(400):
            session.set("draft", f"{number} " * 200)
            await session.commit()
    log = [key async for key in store.list(f"{session.location.prefix}log/")]
    total = sum(len(entry.value) for entry in (await store.get_many(log)).values())
    store.read = 0
    (found,) = (await Catalog(store).summaries()).sessions
    assert found.event_count == 401
    assert store.read < total / 4


@async_test
async def test_max_scanned_bounds_the_sessions_read_for_a_page():
    store = MemoryStateStore()
    for number in range(30):
        await write(store, "bot", f"ses_{number}", status="failed" if number == 0 else "running")
    catalog, found, token, pages = Catalog(store), [], None, 0
    wanted = make_filter(status="failed")
    while pages == 0 or token is not None:
        page = await summarize_sessions(catalog, wanted=wanted, next_token=token, max_scanned=10)
        found += page.sessions
        token = page.next_token
        pages += 1
    assert [each.session_id for each in found] == ["ses_0"]
    assert pages == 3


@async_test
async def test_search_matches_part_of_the_id_in_any_case():
    store = MemoryStateStore()
    for name in ("Alpha", "beta", "alphabet"):
        await write(store, "bot", name)
    page = await summarize_sessions(Catalog(store), search="ALPHA")
    assert [each.session_id for each in page.sessions] == ["alphabet", "Alpha"]


@async_test
async def test_a_damaged_session_is_listed_with_its_problem():
    store = MemoryStateStore()
    session = await write(store, "bot", "bad", tags={})
    await write(store, "bot", "good")
    (key,) = [key async for key in store.list(f"{session.location.prefix}log/")]
    await store.put(key, b"{}")
    with pytest.raises(IntegrityError):
        await Session.open(store, agent_id="bot", session_id="bad")
    good, bad = (await Catalog(store).summaries()).sessions
    assert (good.session_id, good.status, good.problem) == ("good", "running", None)
    assert (bad.session_id, bad.status) == ("bad", None)
    assert key in bad.problem
    assert [each.session_id for each in (await Catalog(store).summaries(status="running")).sessions]


@async_test
async def test_last_activity_is_known_after_a_prune():
    store = MemoryStateStore()
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        for number in range(3):
            session.set("turn", number)
            saved = await session.save()
    (before,) = (await Catalog(store).summaries()).sessions
    archive = SnapshotArchive(store)
    await archive.prune(location=session.location, policy=RetentionPolicy(last=1))
    (after,) = (await Catalog(store).summaries()).sessions
    assert after.event_count == before.event_count
    assert before.active_at <= after.active_at <= saved.created_at


@pytest.mark.parametrize(
    "token", ["", "x", "1/a/b/agent", "0" * 18 + "/a/b/galaxy", "9" * 17 + "x/a/b/agent", "ü/a/b/c"]
)
@async_test
async def test_invalid_token_is_rejected(token):
    with pytest.raises(ValueError, match="invalid next_token"):
        await Catalog(MemoryStateStore()).summaries(next_token=token)


@async_test
async def test_a_saved_session_is_summarized_without_its_state(monkeypatch):
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 8)
    store = CountingStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for number in range(40):
        session.add_message("user", f"hello {number}")
        await session.save(tags={"number": str(number)})
        store.keys.clear()
        (found,) = (await Catalog(store).summaries()).sessions
        if number:
            assert not [key for key in store.keys if "/keyframes/" in key]
            assert len([key for key in store.keys if "/log/" in key]) <= 1
        with monkeypatch.context() as patched:
            patched.setattr(summary, "MAX_SEGMENTS_LISTED", 0)
            assert (await Catalog(store).summaries()).sessions == [found]
    session.status = "waiting"
    await session.commit()
    (found,) = (await Catalog(store).summaries()).sessions
    assert (found.status, found.tags, found.event_count) == ("waiting", {"number": "39"}, 42)


@async_test
async def test_unfinished_calls_of_a_state_saved_without_a_log_are_counted():
    state = Store()
    state.set("messages", "000000000000", {"role": "assistant", "tool_calls": [CALL]})
    snapshot = SessionSnapshot.from_snapshot(state.snapshot(), agent_id="bot", session_id="ses")
    store = MemoryStateStore()
    await SnapshotArchive(store).save_snapshot(
        location=snapshot.location, snapshot_id="one", is_latest=False, snapshot=snapshot
    )
    (found,) = (await Catalog(store).summaries()).sessions
    assert [call.tool for call in found.unfinished] == ["search"]
