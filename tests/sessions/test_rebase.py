"""A rebase succeeds if keys differ, and otherwise reports the conflicting keys."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import ConflictError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import (
    add_messages,
    capture_state,
    list_contents,
    list_types,
    open_session,
    open_two_writers,
    reopen_session,
)
from support.sample_values import is_identical


async def rebase_on_top(state_store, theirs, ours, *, base=()):
    """Let another writer commit first, rebase ours on top, and return it."""
    one = await open_session(state_store)
    for key, value in base:
        one.set(key, value)
    await one.commit()
    other = await reopen_session(one)
    theirs(other)
    await other.commit()
    ours(one)
    await one.commit(on_conflict="rebase")
    again = await reopen_session(one)
    assert again.snapshot().digest == one.snapshot().digest
    assert again.message_count == one.message_count
    assert [event.hash for event in again.events] == [event.hash for event in one.events]
    assert (await one.verify()).ok
    return one


@async_test
async def test_changes_of_different_keys_are_combined():
    session = await rebase_on_top(
        MemoryStateStore(),
        lambda other: (other.set("theirs", 1), other.delete("old")),
        lambda mine: (mine.set("mine", 2), mine.delete("older")),
        base=[("old", 0), ("older", 0), ("same", 0)],
    )
    assert session.state == {"theirs": 1, "mine": 2, "same": 0}
    assert list_types(session.events)[-4:] == ["state.set", "state.deleted"] * 2


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (lambda other: other.set("x", 1), lambda mine: mine.set("x", 2)),
        (lambda other: other.delete("x"), lambda mine: mine.set("x", 2)),
        (lambda other: other.set("x", 1), lambda mine: mine.delete("x")),
        (lambda other: other.set("x", {"a": [1]}), lambda mine: mine.set("x", {"a": [2]})),
    ],
    ids=["both set", "deleted and set", "set and deleted", "inside"],
)
@async_test
async def test_different_changes_of_one_key_are_a_conflict(theirs, ours):
    store = MemoryStateStore()
    one, other = await open_two_writers(store)
    one.set("x", 0)
    await one.commit()
    await other.reload()
    theirs(other)
    await other.commit()
    ours(one)
    one.set("another", 1)
    one.add_message("user", "mine")
    before = capture_state(one)
    there = dict(store._entries)
    with pytest.raises(ConflictError, match="changed the same entries: state/x") as lost:
        await one.commit(on_conflict="rebase")
    assert lost.value.conflicts == [("state", "x")]
    assert capture_state(one) == before
    assert store._entries == there


@async_test
async def test_a_conflict_lists_all_keys_and_its_message_some_of_them():
    one, other = await open_two_writers(MemoryStateStore())
    for number in range(8):
        other.set(f"k{number}", "theirs")
        one.set(f"k{number}", "mine")
    other.status = "running"
    one.status = "failed"
    await other.commit()
    with pytest.raises(ConflictError, match="session/status, state/k0.* and more") as lost:
        await one.commit(on_conflict="rebase")
    expected = [("session", "status"), *(("state", f"k{number}") for number in range(8))]
    assert lost.value.conflicts == expected


@async_test
async def test_equal_changes_are_not_a_conflict():
    def same(session):
        session.set("plan", {"a": 1, "b": [2]})
        session.delete("old")
        session.status = "running"

    session = await rebase_on_top(MemoryStateStore(), same, same, base=[("old", 1)])
    assert session.state == {"plan": {"a": 1, "b": [2]}}
    assert list_types(session.events).count("state.set") == 3


@pytest.mark.parametrize(("theirs", "ours"), [(True, 1), (1, 1.0), ((1,), [1]), (0.0, -0.0)])
@async_test
async def test_equal_values_of_different_types_are_a_conflict(theirs, ours):
    one, other = await open_two_writers(MemoryStateStore())
    other.set("x", theirs)
    await other.commit()
    one.set("x", ours)
    with pytest.raises(ConflictError):
        await one.commit(on_conflict="rebase")
    assert is_identical((await reopen_session(other)).get("x"), theirs)


@async_test
async def test_nan_set_by_both_writers_is_not_a_conflict():
    def same(session):
        session.set("loss", math.nan)

    session = await rebase_on_top(MemoryStateStore(), same, same)
    assert math.isnan(session.get("loss"))


# ---------------------------------------------------------------------------------- messages


@async_test
async def test_appended_messages_move_behind_those_of_other_writers():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(one, "begun")
    await other.reload()
    await add_messages(other, "theirs 1", "theirs 2")
    one.add_message("user", "mine 1")
    one.add_message("user", "mine 2")
    await one.commit(on_conflict="rebase")
    expected = ["begun", "theirs 1", "theirs 2", "mine 1", "mine 2"]
    assert list_contents(one) == list_contents(await reopen_session(one)) == expected
    await add_messages(one, "next")
    assert list_contents(await reopen_session(one)) == [*expected, "next"]
    assert one.message_count == 6


@async_test
async def test_a_rollback_of_pending_messages_is_renumbered_with_them():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(other, "theirs")
    one.add_message("user", "mine 1")
    mark = one.snapshot()
    one.add_message("user", "undone 1")
    one.add_message("user", "undone 2")
    one.set("undone", 1)
    one.rollback(mark)
    one.add_message("user", "mine 2")
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == ["theirs", "mine 1", "mine 2"]
    assert one.state == {}
    assert list_contents(one) == ["theirs", "mine 1", "mine 2"]


@async_test
async def test_changes_of_older_messages_are_not_renumbered():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(one, "a", "b", "c")
    await other.reload()
    await add_messages(other, "theirs")
    assert one.pop_message()["content"] == "c"
    edited = [("messages", "000000000000", {"content": "A"})]
    one.record("message.edited", changes={"set": edited, "delete": []})
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == ["A", "b", "theirs"]
    assert one.message_count == 3


@async_test
async def test_entries_without_a_message_number_are_not_renumbered():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(other, "theirs")
    note = {"set": [("messages", "note", {"content": "note"})], "delete": []}
    one.record("noted", changes=note)
    one.add_message("user", "mine")
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == ["theirs", "mine", "note"]


@pytest.mark.parametrize("theirs", ["removed a message", "took one back", "cleared all"])
@async_test
async def test_appended_messages_follow_after_messages_were_removed(theirs):
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(one, "a", "b")
    await other.reload()
    if theirs == "took one back":
        other.add_message("user", "c")
    if theirs == "cleared all":
        other.clear_messages()
    else:
        other.pop_message()
    await other.commit()
    one.add_message("user", "mine")
    await one.commit(on_conflict="rebase")
    left = {"removed a message": ["a"], "took one back": ["a", "b"], "cleared all": []}[theirs]
    assert list_contents(await reopen_session(one)) == [*left, "mine"]


@async_test
async def test_removing_the_same_message_is_not_a_conflict():
    one, other = await open_two_writers(MemoryStateStore())
    await add_messages(one, "a", "b")
    await other.reload()
    other.pop_message()
    await other.commit()
    one.pop_message()
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == ["a"]
    assert one.message_count == 1


@async_test
async def test_an_effect_that_two_writers_restore_is_not_a_conflict():
    one = await open_session(MemoryStateStore())
    await one.once("pay", lambda: 1)
    mark = one.snapshot()
    forget = {"set": [], "delete": [("once", "pay")]}
    one.record("once.forgotten", changes=forget)
    await one.commit()
    other = await reopen_session(one)
    for session in (other, one):
        session.rollback(mark)
        await session.commit(on_conflict="rebase")
    assert await (await reopen_session(one)).once("pay", lambda: 2) == 1


@async_test
async def test_messages_that_were_rolled_back_and_restored_move_behind_the_others():
    one = await open_session(MemoryStateStore())
    await add_messages(one, "begun")
    other = await reopen_session(one)
    await add_messages(other, "x")
    one.add_message("user", "x")
    mark = one.snapshot()
    one.pop_message()
    one.add_message("user", "another at its place")
    one.rollback(mark)
    await one.commit(on_conflict="rebase")
    assert list_contents(await reopen_session(one)) == list_contents(one) == ["begun", "x", "x"]


# ----------------------------------------------------------------------------------- new sessions


@async_test
async def test_a_session_that_two_writers_start_starts_once():
    store = MemoryStateStore()
    one, other = await open_session(store), await open_session(store)
    other.status = "running"
    await add_messages(other, "theirs")
    one.add_message("user", "mine")
    await one.commit(on_conflict="rebase")
    again = await reopen_session(one)
    assert list_types(again.events).count("session.started") == 1
    assert list_contents(again) == list_contents(one) == ["theirs", "mine"]
    assert again.status == one.status == "running"
    assert (await one.verify()).ok


@async_test
async def test_a_writer_that_only_started_an_existing_session_has_nothing_to_commit():
    store = MemoryStateStore()
    one, other = await open_session(store), await open_session(store)
    await add_messages(other, "theirs")
    await one.commit(on_conflict="rebase")
    assert not one.is_dirty
    assert list_contents(one) == ["theirs"]
    assert len((await reopen_session(one)).events) == 2
    saved = await one.save()
    assert saved.event_log_count == 2


# ---------------------------------------------------------------------------------------- a model

KEYS = st.sampled_from("abc")
CHANGES = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers(0, 2)),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("say"), st.text("xyz", max_size=2)),
)
OURS = st.one_of(
    CHANGES, st.tuples(st.just("take back")), st.tuples(st.just("mark")), st.tuples(st.just("undo"))
)


class Model:
    """A session as plain data: values, messages and touched keys."""

    def __init__(self, values):
        self.values = dict(values)
        self.contents = []
        self.touched = set()
        self.mark = None

    def do(self, session, step):
        what, *rest = step
        if what == "set":
            key, value = rest
            session.set(key, value)
            if self.values.get(key) != value:
                self.touched.add(key)
            self.values[key] = value
        elif what == "delete":
            session.delete(rest[0])
            if self.values.pop(rest[0], None) is not None:
                self.touched.add(rest[0])
        elif what == "say":
            session.add_message("user", rest[0])
            self.contents.append(rest[0])
        elif what == "take back" and self.contents:
            session.pop_message()
            self.contents.pop()
        elif what == "mark":
            self.mark = (session.snapshot(), dict(self.values), list(self.contents))
        elif what == "undo" and self.mark is not None:
            session.rollback(self.mark[0])
            self.values, self.contents = dict(self.mark[1]), list(self.mark[2])


@given(
    base=st.dictionaries(KEYS, st.integers(0, 2)),
    theirs=st.lists(st.lists(CHANGES, min_size=1, max_size=3), min_size=1, max_size=3),
    ours=st.lists(OURS, min_size=1, max_size=8),
)
def test_a_rebase_combines_both_writers_or_reports_the_conflicting_keys(base, theirs, ours):
    async def work():
        one = await open_session(MemoryStateStore())
        for key, value in base.items():
            one.set(key, value)
        one.add_message("user", "begun")
        await one.commit()
        other = await reopen_session(one)
        there, here = Model(base), Model(base)
        for commit in theirs:
            for step in commit:
                there.do(other, step)
            await other.commit()
        one.record("tick")
        for step in ours:
            here.do(one, step)

        both = here.touched & there.touched
        expected = {key for key in both if here.values.get(key) != there.values.get(key)}
        if expected:
            with pytest.raises(ConflictError) as lost:
                await one.commit(on_conflict="rebase")
            assert lost.value.conflicts == sorted(("state", key) for key in expected)
            assert list_contents(await reopen_session(one)) == ["begun", *there.contents]
            return
        await one.commit(on_conflict="rebase")
        merged = {key: value for key, value in there.values.items() if key not in here.touched}
        merged |= {key: here.values[key] for key in here.touched if key in here.values}
        again = await reopen_session(one)
        assert again.state == one.state == dict(sorted(merged.items()))
        assert (
            list_contents(again) == list_contents(one) == ["begun", *there.contents, *here.contents]
        )
        assert again.message_count == one.message_count == len(again.messages)
        assert [event.hash for event in again.events] == [event.hash for event in one.events]

    run_async(work())
