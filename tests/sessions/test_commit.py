"""A commit is one conditional write, however long the log is; of two writers one fails."""

from __future__ import annotations

import logging

import pytest

from holdfast import ConflictError
from holdfast.log import timeline
from holdfast.sessions import backoff
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.base import WrappedStateStore
from support.async_tests import async_test
from support.conversations import (
    add_messages,
    list_contents,
    open_session,
    open_two_writers,
    reopen_session,
)
from support.faults import Fault, FaultyStateStore
from support.observed_store import ObservedStore

pytestmark = pytest.mark.usefixtures("one_incarnation")


class InterceptingStateStore(WrappedStateStore):
    """Calls a function before each write."""

    before_write = None

    async def put_many(self, puts, **conditions):
        if self.before_write is not None:
            await self.before_write()
        return await super().put_many(puts, **conditions)


# -------------------------------------------------------------------------------------- cost


@async_test
async def test_a_commit_writes_one_entry():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "first")
    store.forget()
    session.add_message("user", "second")
    session.set("plan", 1)
    session.record("tick")
    await session.commit()
    assert store.calls == ["put_many"]
    assert store.written == ["sessions/ses/scopes/agent/bot/log/00000000/000000000003.json"]


@async_test
async def test_the_first_commit_is_one_write():
    store = ObservedStore()
    session = await open_session(store)
    store.forget()
    await session.commit()
    assert store.calls == ["put_many"]
    assert len(store.written) == 3
    assert store.written[0].endswith("/log/00000000/000000000001.json")
    assert store.written[1].startswith("agents/bot/sessions/")
    assert store.written[2].endswith("/snapshots/manifest.json")


@async_test
async def test_a_commit_without_pending_events_writes_nothing():
    store = ObservedStore()
    session = await add_messages(await open_session(store), "first")
    store.forget()
    await session.commit()
    async with session:
        pass
    assert store.calls == []


@async_test
async def test_a_save_writes_two_entries_at_once():
    store = ObservedStore()
    session = await open_session(store)
    await session.save()
    session.add_message("user", "more")
    store.forget()
    saved = await session.save()
    assert store.calls == ["put_many"]
    assert store.written == [
        "sessions/ses/scopes/agent/bot/log/00000000/000000000002.json",
        session.location.snapshot_key(saved.snapshot_id),
    ]


@async_test
async def test_a_save_is_two_writes_without_atomic_batches():
    store = FaultyStateStore(MemoryStateStore(), atomic=False)
    session = await open_session(store)
    await session.save()
    session.add_message("user", "more")
    store.plan(None)
    await session.save()
    assert store.writes == 2


@pytest.mark.parametrize("how", ["commit", "save"])
@async_test
async def test_the_cost_of_a_commit_does_not_depend_on_the_length_of_the_session(how):
    store = ObservedStore()
    session = await open_session(store)
    cost = {}
    for turn in range(1, 1001):
        store.forget()
        session.add_message("user", f"question {turn:04}")
        session.add_message("assistant", f"answer {turn:04}")
        session.set("turn", f"{turn:04}")
        await (session.commit() if how == "commit" else session.save())
        cost[turn] = (list(store.calls), store.bytes_written)
    assert cost[10][0] == cost[1000][0] == ["put_many"]
    # The last seq has more digits.
    assert abs(cost[1000][1] - cost[10][1]) < 20
    assert cost[1000][1] < 2500
    ordinary = [calls for calls, _ in cost.values() if calls == ["put_many"]]
    assert len(ordinary) >= 1000 - 10


@async_test
async def test_opening_reads_only_what_follows_the_last_keyframe(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 4)
    store = ObservedStore()
    session = await add_messages(await open_session(store), *"abcdefghij")
    assert [key[-14:] for key in store.keys_with("/keyframes/")] == [
        "000005.json.gz",
        "000009.json.gz",
    ]
    other = await reopen_session(session)
    assert list_contents(other) == list("abcdefghij")
    saved = await other.save()
    assert saved.keyframe == 9
    assert (await other.verify()).ok


@async_test
async def test_a_keyframe_that_cannot_be_written_does_not_fail_the_commit(monkeypatch, caplog):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 2)
    store = FaultyStateStore(MemoryStateStore())
    session = await open_session(store)
    await session.commit()
    store.plan(Fault(2, "error"))
    with caplog.at_level(logging.WARNING):
        await add_messages(session, "a")
    assert "postponed to the next commit" in caplog.text
    assert not session.is_dirty
    await add_messages(session, "b")
    assert [key async for key in store.list(f"{session.location.prefix}keyframes/")] != []
    assert list_contents(await reopen_session(session)) == ["a", "b"]


# --------------------------------------------------------------------------------- conflicts


@async_test
async def test_a_commit_fails_and_writes_nothing_when_another_writer_committed_first():
    store = ObservedStore()
    one, other = await open_two_writers(store)
    await add_messages(one, "one")
    other.add_message("user", "other")
    there = dict(store._entries)
    with pytest.raises(
        ConflictError, match="cannot commit session ses of bot after event 1: another"
    ) as lost:
        await other.commit()
    assert store._entries == there
    assert lost.value.key == "sessions/ses/scopes/agent/bot/log/00000000/000000000002.json"
    assert lost.value.conflicts == []
    assert "or reload()" in str(lost.value)
    assert other.is_dirty
    assert list_contents(other) == ["other"]
    with pytest.raises(ConflictError):
        await other.commit()
    await other.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == ["one", "other"]


@async_test
async def test_a_rebase_succeeds_after_any_number_of_other_commits():
    store = InterceptingStateStore(MemoryStateStore())
    one, other = await open_two_writers(store)
    others = iter("abcde")

    async def speak():
        text = next(others, None)
        if text is not None:
            store.before_write = None
            await add_messages(other, text)
            store.before_write = speak

    store.before_write = speak
    one.add_message("user", "mine")
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == [*"abcde", "mine"]
    assert (await one.verify()).ok


@async_test
async def test_a_rebase_that_always_loses_fails_in_the_end(monkeypatch):
    monkeypatch.setattr(backoff, "GIVE_UP_AFTER", 0.2)
    store = InterceptingStateStore(MemoryStateStore())
    one, other = await open_two_writers(store)

    async def speak():
        store.before_write = None
        await add_messages(other, "first again")
        store.before_write = speak

    store.before_write = speak
    one.add_message("user", "mine")
    with pytest.raises(ConflictError, match="other writers committed first in"):
        await one.commit(on_conflict="rebase")
    store.before_write = None
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one))[-2:] == ["first again", "mine"]


@async_test
async def test_a_conflict_on_another_key_is_raised_as_it_is():
    store = InterceptingStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")

    async def refuse():
        raise ConflictError("another writer has it", key="agents/bot")

    store.before_write = refuse
    session.add_message("user", "b")
    with pytest.raises(ConflictError, match="another writer has it"):
        await session.commit(on_conflict="rebase")
    assert session.is_dirty


@async_test
async def test_a_conflict_without_another_writer_is_reported():
    store = InterceptingStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")

    async def refuse():
        raise ConflictError("a store that does not say which key")

    store.before_write = refuse
    session.add_message("user", "b")
    with pytest.raises(ConflictError, match="the segment at the head of the log disappeared"):
        await session.commit()


@async_test
async def test_events_recorded_during_a_commit_stay_pending():
    store = InterceptingStateStore(MemoryStateStore())
    session = await add_messages(await open_session(store), "a")

    async def speak():
        store.before_write = None
        session.add_message("user", "during the commit")
        session.set("x", 1)

    store.before_write = speak
    session.add_message("user", "b")
    saved = await session.save()
    assert [message["content"] for message in saved.state.messages] == ["a", "b"]
    assert session.is_dirty
    assert list_contents(await reopen_session(session)) == ["a", "b"]
    await session.commit()
    other = await reopen_session(session)
    assert list_contents(other) == list_contents(session) == ["a", "b", "during the commit"]
    assert other.get("x") == 1
