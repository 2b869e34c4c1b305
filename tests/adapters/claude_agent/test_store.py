"""Transcripts of the Claude Agent SDK as sessions: what is stored, and what is read of it."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import InMemorySessionStore, list_sessions_from_store
from hypothesis import given
from hypothesis import strategies as st

from adapters.claude_agent.transcripts import (
    CALL,
    KEY,
    PROJECT,
    SUB,
    TALK,
    make_assistant,
    make_user,
)
from holdfast import (
    Catalog,
    IntegrityError,
    InvalidDocumentError,
    Session,
    SnapshotManager,
    StateStoreError,
    UnsupportedValueError,
)
from holdfast.adapters.claude_agent import HoldfastSessionStore
from holdfast.redaction.redactor import Redactor
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.faults import Fault, FaultyStateStore
from support.observed_store import ObservedStore
from support.subprocesses import run_python


async def open_session(adapter, key=KEY):
    location = adapter.location(key)
    return await Session.open(
        adapter.state_store, agent_id=location.scope_id, session_id=location.session_id
    )


# --------------------------------------------------------------------------------- what is stored


@async_test
async def test_messages_values_and_status_are_those_of_an_ordinary_session():
    adapter = HoldfastSessionStore(MemoryStateStore())
    await adapter.append(KEY, TALK)
    session = await open_session(adapter)
    assert session.messages == [each for each in TALK if each["type"] in ("user", "assistant")]
    assert session.state == {
        "cwd": "/srv/agent",
        "git_branch": "main",
        "custom_title": "Tables",
        "permission_mode": "default",
    }
    assert session.status == "completed"
    assert await adapter.load(KEY) == TALK
    assert (session.agent_id, session.session_id) == (PROJECT, KEY["session_id"])
    types = [event.type for event in session.events]
    assert types.count("message.appended") == 4
    assert types.count("claude_agent.entry") == 5
    assert (await session.verify()).ok


@pytest.mark.parametrize(
    ("entry", "status"),
    [
        (make_user("Hello"), "running"),
        (make_assistant(CALL, stop_reason=None), "running"),
        (make_assistant("Let me see", stop_reason="tool_use"), "running"),
        (make_assistant("Done"), "completed"),
        (make_assistant("API Error: 500", isApiErrorMessage=True), "failed"),
        (make_user([{"type": "text", "text": "[Request interrupted by user]"}]), "cancelled"),
        ({"type": "summary", "summary": "A talk"}, "pending"),
    ],
)
@async_test
async def test_the_status_follows_the_last_message(entry, status):
    adapter = HoldfastSessionStore(MemoryStateStore())
    await adapter.append(KEY, [entry])
    assert (await open_session(adapter)).status == status


@async_test
async def test_an_entry_with_a_known_uuid_is_ignored_and_others_are_appended():
    adapter = HoldfastSessionStore(MemoryStateStore())
    marker, one = {"type": "mode", "mode": "plan"}, make_user("one")
    await adapter.append(KEY, [one, marker, one])
    await HoldfastSessionStore(adapter.state_store).append(KEY, [one, marker])
    assert await adapter.load(KEY) == [one, marker, marker]
    await adapter.append(SUB, [one])
    assert await adapter.load(SUB) == [one]
    head = (await open_session(adapter)).committer.working.head
    await adapter.append(KEY, [one])
    assert (await open_session(adapter)).committer.working.head == head


@async_test
async def test_entries_that_cannot_be_values_come_back_equal():
    adapter = HoldfastSessionStore(MemoryStateStore())
    odd = [
        make_user("half of a pair: \ud83d", uuid="\ud800"),
        {"type": "\ud800", "customTitle": "\udfff", "n": 10**30},
        {"type": "x", "uuid": 5},
        {"uuid": "u" * 500, "type": "user", "message": "no dict"},
    ]
    await adapter.append(KEY, odd)
    await adapter.append(KEY, [odd[0], odd[3]])
    assert await adapter.load(KEY) == odd
    (summary,) = await adapter.list_session_summaries(PROJECT)
    assert summary["data"]["custom_title"] == "\udfff"
    with pytest.raises(UnsupportedValueError, match="not JSON"):
        await adapter.append(KEY, [{"type": "x", "value": object()}])
    with pytest.raises(TypeError, match="must be a dict"):
        await adapter.append(KEY, ["text"])
    assert await adapter.load(KEY) == odd


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ENTRIES = st.builds(
    lambda kind, fields, message: {**fields, **message, "type": kind},
    st.sampled_from(["user", "assistant", "system", "summary", "x"]),
    st.dictionaries(st.sampled_from(["a", "cwd", "tag", "message", "timestamp"]), JSON),
    st.just({}) | st.builds(lambda text: {"message": {"content": text}}, JSON),
)


@given(st.lists(st.lists(ENTRIES, max_size=4), max_size=3))
def test_any_entries_are_loaded_and_summarized_as_by_the_sdks_own_store(batches):
    async def main():
        ours, theirs = HoldfastSessionStore(MemoryStateStore()), InMemorySessionStore()
        for batch in batches:
            await ours.append(KEY, batch)
            if batch:
                await theirs.append(KEY, batch)
        assert await ours.load(KEY) == await theirs.load(KEY)
        for each in await ours.list_session_summaries(PROJECT):
            (expected,) = await theirs.list_session_summaries(PROJECT)
            assert each["data"] == expected["data"]

    run_async(main())


@async_test
async def test_projects_and_subpaths_have_ids_of_their_own():
    adapter = HoldfastSessionStore(MemoryStateStore())
    long = "p" * 210
    keys = [
        {"project_key": project, "session_id": "s", **subpath}
        for project in ("a", "a/b", "a%2Fb", "a%2Fb/c", long, long + "x")
        for subpath in ({}, {"subpath": "b"}, {"subpath": "subagents/workflows/r-1/agent-2"})
    ]
    for number, key in enumerate(keys):
        await adapter.append(key, [{"type": "x", "n": number}])
    assert len({adapter.location(key) for key in keys}) == len(keys)
    for number, key in enumerate(keys):
        assert await adapter.load(key) == [{"type": "x", "n": number}]
        if "subpath" not in key:
            expected = ["b", "subagents/workflows/r-1/agent-2"]
            assert sorted(await adapter.list_subkeys(key)) == expected
            assert len(await adapter.list_sessions(key["project_key"])) == 1
    for wrong in ({"subpath": ""}, {"session_id": ""}, {"project_key": "p" * 300}):
        with pytest.raises(ValueError, match=next(iter(wrong)) + "|scope_id"):
            await adapter.load({**KEY, **wrong})
    with pytest.raises(TypeError, match="project_key of a session key must be a str, got None"):
        await adapter.load({"session_id": "s"})


# ------------------------------------------------------------------------------------ how it reads


@async_test
async def test_an_append_to_a_long_transcript_writes_and_reads_little():
    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    for number in range(4):
        await adapter.append(KEY, [make_user(f"{number} {n}") for n in range(500)])
    store.forget()
    await adapter.append(KEY, [make_user("one more"), {"type": "mode"}])
    assert store.read == []
    assert store.bytes_written < 8_000
    assert len(await adapter.load(KEY)) == 2_002


@async_test
async def test_lists_read_one_small_record_per_session():
    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    for number in range(20):
        key = {**KEY, "session_id": f"s{number}"}
        await adapter.append(key, TALK)
        await adapter.append(key, [make_user("x" * 10_000)])
        await adapter.append({**key, "subpath": "subagents/agent-1"}, TALK)
    fresh = HoldfastSessionStore(store)
    store.forget()
    listed = await fresh.list_sessions(PROJECT)
    summaries = await fresh.list_session_summaries(PROJECT)
    assert [key for key in store.read if "/log/" in key or "/keyframes/" in key] == []
    assert {each["session_id"]: each["mtime"] for each in listed} == {
        each["session_id"]: each["mtime"] for each in summaries
    }
    assert len(listed) == 20
    assert store.written == []


@async_test
async def test_lists_show_what_other_programs_changed():
    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    await adapter.append(KEY, TALK)
    session = await open_session(adapter)
    saved = await session.save()
    await adapter.append(KEY, [{"type": "custom-title", "customTitle": "Chairs"}])
    (before,) = await adapter.list_sessions(PROJECT)
    await session.refresh()
    await session.restore(saved.snapshot_id)
    assert await adapter.load(KEY) == TALK
    (after,) = await adapter.list_session_summaries(PROJECT)
    assert after["data"]["custom_title"] == "Tables"
    assert after["mtime"] >= before["mtime"]
    store.forget()
    assert await adapter.list_session_summaries(PROJECT) == [after]
    assert [key for key in store.read if "/log/" in key] == []
    # What was rolled back can be appended again.
    title = {"type": "custom-title", "customTitle": "Chairs", "uuid": "u1"}
    await adapter.append(KEY, [title])
    await session.refresh()
    await session.restore(saved.snapshot_id)
    await adapter.append(KEY, [title])
    assert await adapter.load(KEY) == [*TALK, title]
    (last,) = await adapter.list_session_summaries(PROJECT)
    assert last["mtime"] > after["mtime"]


@async_test
async def test_a_restore_to_any_event_leaves_a_transcript_that_goes_on():
    adapter = HoldfastSessionStore(MemoryStateStore())
    await adapter.append(KEY, TALK)
    end = (await open_session(adapter)).committer.working.head.seq
    for seq in range(1, end + 1):
        session = await open_session(adapter)
        await session.restore(seq)
        before = await adapter.load(KEY) or []
        new = [{"type": "mode", "n": seq}, make_user("go on"), {"type": "mode", "n": -seq}]
        await adapter.append(KEY, new)
        assert await adapter.load(KEY) == [*before, *new]
    session = await open_session(adapter)
    session.pop_message()
    await session.commit()
    await adapter.append(KEY, [new[1]])
    assert await adapter.load(KEY) == [*before, new[0], new[2], new[1]]


@async_test
async def test_a_damaged_record_or_summary_is_found():
    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    await adapter.append(KEY, TALK)
    (expected,) = await adapter.list_session_summaries(PROJECT)
    (record,) = store.keys_with("claude_agent/summary.json")
    for damaged in (b"", b"{}", store.content[record].replace(b"Tables", b"Chairs")):
        await store.put(record, damaged)
        assert await adapter.list_session_summaries(PROJECT) == [expected]
    for space, key, value, problem in (
        ("claude_agent", "transcript", {"mtime": -1}, "does not describe a transcript"),
        ("claude_agent", "transcript", {"mtime": 0, "summary": "["}, "summary"),
        ("claude_agent", "last_entry", 5, "last_entry.* is damaged"),
        ("claude_agent/opaque", f"{0:012}.{9:012}", "{", "is damaged"),
        ("claude_agent/entries", "x", {}, "its key has no number"),
        ("messages", f"{0:012}", "text", "instead of a dict"),
    ):
        session = await open_session(adapter)
        mark = session.snapshot()
        session.record("test", changes={"set": [(space, key, value)], "delete": []})
        await session.commit()
        with pytest.raises(IntegrityError, match=problem):
            await adapter.load(KEY)
            await adapter.append(KEY, [make_user("x")])
        session.rollback(mark)
        await session.commit()


@async_test
async def test_a_record_that_is_written_again_has_the_time_of_the_append(monkeypatch):
    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    monkeypatch.setattr("holdfast.adapters.claude_agent.store.now_in_ms", lambda: 1_000)
    await adapter.append(KEY, TALK)  # its events are later
    expected = [{"session_id": KEY["session_id"], "mtime": 1_000}]
    (record,) = store.keys_with("claude_agent/summary.json")
    await store.delete(record)
    assert await adapter.list_sessions(PROJECT) == expected


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda data: b"{}", IntegrityError),
        (lambda data: data.replace(b'"format":1', b'"format":9'), InvalidDocumentError),
    ],
    ids=["damaged", "newer"],
)
@async_test
async def test_a_damaged_session_does_not_hide_others_in_lists(change, error):
    store = ObservedStore()
    adapter = HoldfastSessionStore(store)
    other = {**KEY, "session_id": "other"}
    for key in (KEY, other):
        await adapter.append(key, TALK)
    for key in store.keys_with(KEY["session_id"]):
        if "/log/" in key or "claude_agent/" in key:
            await store.damage(key, change)
    fresh = HoldfastSessionStore(store)
    assert {each["session_id"] for each in await fresh.list_sessions(PROJECT)} == {
        KEY["session_id"],
        "other",
    }
    (summary,) = await fresh.list_session_summaries(PROJECT)
    assert summary["session_id"] == "other"
    with pytest.raises(error):
        await fresh.load(KEY)


def test_another_version_of_the_sdk_is_refused():
    program = (
        "import importlib.metadata as m\n"
        "m.version = lambda name: '0.3.1'\n"
        "import holdfast.adapters.claude_agent\n"
    )
    last = run_python(program).stderr.splitlines()[-1]
    assert "needs claude-agent-sdk >=0.2.180,<0.3, but 0.3.1 is installed" in last


# ------------------------------------------------------------------------------- several processes


@async_test
async def test_concurrent_writers_lose_nothing_on_every_backend(new_state_store):
    async with new_state_store() as one, new_state_store() as two:
        adapters = [HoldfastSessionStore(one), HoldfastSessionStore(two)]

        async def write(number):
            for n in range(4):
                await adapters[number].append(KEY, [make_user(f"{number} {n}"), {"type": "mode"}])

        await asyncio.gather(write(0), write(1))
        entries = await adapters[0].load(KEY)
        texts = [each["message"]["content"] for each in entries if each["type"] == "user"]
        for number in range(2):
            mine = [text for text in texts if text.startswith(f"{number} ")]
            assert mine == [f"{number} {n}" for n in range(4)]
        assert len(entries) == 16
        assert await adapters[1].load(KEY) == entries
        (summary,) = await adapters[1].list_session_summaries(PROJECT)
        (listed,) = await adapters[0].list_sessions(PROJECT)
        assert summary["mtime"] == listed["mtime"]


WRITER = """
import asyncio, sys
from holdfast.adapters.claude_agent import HoldfastSessionStore
from adapters.claude_agent.transcripts import KEY, make_user

async def main():
    async with HoldfastSessionStore.from_url(sys.argv[1]) as store:
        for n in range(10):
            await store.append(KEY, [make_user("same", uuid=f"u{n}"), make_user(sys.argv[2])])

asyncio.run(main())
"""


@async_test
async def test_processes_append_to_one_transcript(tmp_path):
    url = f"sqlite:///{tmp_path}/agents.db"
    async with HoldfastSessionStore.from_url(url) as adapter:
        other = asyncio.create_task(asyncio.to_thread(run_python, WRITER, url, "two"))
        while not await adapter.list_sessions(PROJECT) and not other.done():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for n in range(10):
            await adapter.append(KEY, [make_user("same", uuid=f"u{n}"), make_user("one")])
        done = await other
        assert done.returncode == 0, done.stderr
        texts = [each["message"]["content"] for each in await adapter.load(KEY)]
    assert sorted(texts) == ["one"] * 10 + ["same"] * 10 + ["two"] * 10


@async_test
async def test_a_deletion_elsewhere_is_seen_by_the_next_append():
    store = MemoryStateStore()
    one, two = HoldfastSessionStore(store), HoldfastSessionStore(store)
    for adapter in (one, two):
        await adapter.append(KEY, TALK)
    await two.delete(KEY)
    await one.append(KEY, TALK[1:3])
    assert await two.load(KEY) == TALK[1:3]
    assert [each["session_id"] for each in await two.list_sessions(PROJECT)] == [KEY["session_id"]]


@async_test
async def test_an_interrupted_deletion_keeps_other_projects():
    other = {**KEY, "project_key": "other"}
    for number in range(1, 40):
        store = FaultyStateStore(MemoryStateStore())
        adapter = HoldfastSessionStore(store)
        for key in (KEY, SUB, other, {**other, "subpath": "subagents/agent-a1"}):
            await adapter.append(key, TALK)
        store.plan(Fault(number, "error"))
        try:
            await HoldfastSessionStore(store).delete(KEY)
        except StateStoreError:
            store.plan(None)
        else:
            break
        assert await adapter.load(other) == TALK
        await adapter.delete(KEY)
        assert await adapter.load(KEY) is None
        assert await adapter.load(SUB) is None
        assert await adapter.load(other) == TALK
        assert await adapter.list_subkeys(other) == ["subagents/agent-a1"]
        assert set(await Catalog(store).locations(KEY["session_id"])) == {
            adapter.location(other),
            adapter.location({**other, "subpath": "subagents/agent-a1"}),
        }
    assert number > 5


# ------------------------------------------------------------------------------- the rest of ours


@async_test
async def test_redaction_reaches_texts_in_entries_and_the_rest_still_loads():
    adapter = HoldfastSessionStore(MemoryStateStore())
    secret = "jo@example.com"
    entries = [
        make_user(f"I am {secret}"),
        {"type": "last-prompt", "lastPrompt": f"I am {secret}"},
        make_user(f"{secret} \ud800"),
    ]
    await adapter.append(KEY, entries)
    document = await (await open_session(adapter)).export()
    redacted = Redactor().redact(document)
    assert secret not in b"".join(redacted.chunks()).decode()
    target = HoldfastSessionStore(MemoryStateStore())
    await SnapshotManager(target.state_store).import_session(redacted)
    loaded = await target.load(KEY)
    assert [each["type"] for each in loaded] == [each["type"] for each in entries]
    assert [each.get("uuid") for each in loaded] == [each.get("uuid") for each in entries]
    assert (await list_summaries(target))[0]["data"]["first_prompt"].startswith("I am ")


async def list_summaries(adapter):
    return await adapter.list_session_summaries(PROJECT)


@async_test
async def test_a_document_imported_elsewhere_is_listed_and_continued(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    adapter, target = (HoldfastSessionStore(MemoryStateStore()) for _ in range(2))
    await adapter.append(KEY, TALK)
    document = await (await open_session(adapter)).export()
    await SnapshotManager(target.state_store).import_session(document)
    assert await list_sessions_from_store(target) == []
    assert (await list_summaries(target))[0]["data"] == (await list_summaries(adapter))[0]["data"]
    await target.append(KEY, [TALK[1], make_user("Thanks")])
    assert len(await target.load(KEY)) == len(TALK) + 1
