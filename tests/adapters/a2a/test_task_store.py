"""Tasks of A2A servers as sessions."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("a2a")

from a2a.server.cluster.task_store import ConcurrentTaskModificationError, VersionedTaskStore
from a2a.server.cluster.version import TaskVersion
from a2a.server.tasks.task_store import TaskStore
from a2a.types.a2a_pb2 import Artifact, ListTasksRequest, Message, Part, Task
from google.protobuf.struct_pb2 import Struct

from adapters.a2a.tasks import (
    ANYONE,
    AUTH_REQUIRED,
    CANCELED,
    COMPLETED,
    FAILED,
    INPUT_REQUIRED,
    MISSING,
    REJECTED,
    SUBMITTED,
    WORKING,
    add_chunk,
    caller,
    collect,
    make_status,
    make_task,
    say,
    texts_of,
    update,
)
from holdfast import Catalog, IntegrityError, Session, SnapshotArchive, SnapshotManager
from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore
from holdfast.adapters.a2a.ids import format_session_id, parse_session_id
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import ObservedStore


@pytest.fixture
def store():
    return HoldfastTaskStore(MemoryStateStore())


async def create(store, task=None, context=ANYONE):
    """Save a new task and return it as stored."""
    task = task or make_task()
    await store.save(task, event=task, prev_version=MISSING, context=context)
    return await store.get(task.id, context)


def open_session(store, session_id="t1"):
    return Session.open(store.state_store, agent_id="a2a", session_id=session_id, must_exist=True)


@async_test
async def test_a_task_is_saved_listed_streamed_and_deleted_on_every_backend(new_state_store):
    async with (
        HoldfastTaskStore(new_state_store()) as one,
        HoldfastTaskStore(new_state_store()) as two,
    ):
        alice = caller("alice")
        stored = await create(one, context=alice)
        assert stored.task == make_task()
        version = await add_chunk(two, await two.get("t1", alice), "a", alice)
        with pytest.raises(ConcurrentTaskModificationError):
            await add_chunk(one, stored, "b", alice)
        found = await one.get("t1", alice)
        assert (found.version, found.task.artifacts[0].parts[0].text) == (version, "a")
        listed = await one.list(ListTasksRequest(context_id="c1"), alice)
        assert (list(listed.tasks), listed.total_size) == ([found.task], 1)
        assert (await one.list(ListTasksRequest(), ANYONE)).total_size == 0
        assert await one.get("t1", ANYONE) is None
        events = await collect(HoldfastTaskEventStream(two), "t1", MISSING, 2)
        assert texts_of(events) == ["working", "a"]
        assert events[-1].version == version
        await two.delete("t1", alice)
        assert await one.get("t1", alice) is None
        assert (await one.list(ListTasksRequest(), alice)).total_size == 0
        with pytest.raises(ConcurrentTaskModificationError):
            await add_chunk(one, found, "c", alice)
        assert (await create(one, context=alice)).task == make_task()


# ----------------------------------------------------------------------------------- what is stored


@async_test
async def test_messages_artifacts_and_status_can_be_looked_at(store):
    task = make_task(texts=["Hello", "there"])
    task.artifacts.append(Artifact(artifact_id="report", name="Report", parts=[Part(text="a")]))
    task.metadata.update({"priority": 2})
    await create(store, task)
    session = await open_session(store)
    assert session.messages == [
        {"messageId": "m Hello", "role": "ROLE_USER", "parts": [{"text": "Hello"}]},
        {"messageId": "m there", "role": "ROLE_USER", "parts": [{"text": "there"}]},
    ]
    assert session.state == {
        "artifacts/000000": {"artifactId": "report", "name": "Report"},
        "artifacts/000000/000000000": {"text": "a"},
        "task/context_id": "c1",
        "task/metadata": {"priority": 2},
        "task/status": {"state": "TASK_STATE_WORKING", "timestamp": "2027-01-15T08:00:00Z"},
    }
    assert session.status == "running"
    assert [event.type for event in session.events][-1] == "a2a.task"
    assert store.location("t1") == session.location


@pytest.mark.parametrize(
    ("state", "status"),
    [
        (SUBMITTED, "pending"),
        (WORKING, "running"),
        (INPUT_REQUIRED, "waiting"),
        (AUTH_REQUIRED, "waiting"),
        (COMPLETED, "completed"),
        (FAILED, "failed"),
        (REJECTED, "failed"),
        (CANCELED, "cancelled"),
    ],
)
@async_test
async def test_the_status_of_the_session_follows(store, state, status):
    stored = await create(store)
    stored.task.status.state = state
    await store.save(stored.task, event=update(state), prev_version=stored.version, context=ANYONE)
    assert (await open_session(store)).status == status


@async_test
async def test_a_chunk_or_message_writes_only_itself():
    observed = ObservedStore()
    store = HoldfastTaskStore(observed)
    stored = await create(store, make_task(texts=["a" * 5000, "b" * 5000]))
    for number in range(40):
        await add_chunk(store, await store.get("t1", ANYONE), f"chunk {number} " + "x" * 500)
    stored = await store.get("t1", ANYONE)
    stored.task.history.append(say("short"))
    session = await open_session(store)
    before = session.committer.working.head.seq
    await store.save(stored.task, prev_version=stored.version, context=ANYONE)
    await add_chunk(store, await store.get("t1", ANYONE), "last")
    session = await open_session(store)
    entries = [
        entry
        for event in await read_events(session, before + 1)
        for entry in (event.changes or {"set": []})["set"]
        if entry[0] != "a2a"
    ]
    assert [(space, key) for space, key, _ in entries] == [
        ("messages", "000000000002"),
        ("state", "artifacts/000000/000000040"),
    ]


async def read_events(session, first):
    return [event async for event in session.events.read(first)]


@async_test
async def test_a_history_that_is_rewritten_replaces_only_what_differs(store):
    stored = await create(store, make_task(texts=["one", "two", "three"]))
    del stored.task.history[1:]
    stored.task.history.append(say("2"))
    version = await store.save(stored.task, prev_version=stored.version, context=ANYONE)
    assert [each["parts"][0]["text"] for each in (await open_session(store)).messages] == [
        "one",
        "2",
    ]
    other = HoldfastTaskStore(store.state_store)
    found = await other.get("t1", ANYONE)
    assert (found.task, found.version) == (stored.task, version)


@async_test
async def test_values_that_json_cannot_hold_come_back_equal(store):
    task = make_task()
    unknown = b"\xba\x3e\x05hello"  # field 999 of a newer protocol
    task.MergeFromString(unknown)
    message = Message(message_id="odd")
    message.MergeFromString(unknown)
    message.metadata.update({"infinite": float("inf"), "nested": [{"a": None}, 1.5, "☃"]})
    task.history.append(message)
    task.artifacts.append(Artifact(artifact_id="a", parts=[Part(raw=b"\0\xff", filename="x")]))
    task.artifacts[0].MergeFromString(unknown)
    task.status.state = 77
    await create(store, task)
    found = await HoldfastTaskStore(store.state_store).get("t1", ANYONE)
    assert found.task.SerializeToString(deterministic=True) == task.SerializeToString(
        deterministic=True
    )


@async_test
async def test_an_empty_task_comes_back_equal(store):
    for task in (Task(id="t1"), Task(id="t2", metadata=Struct(), artifacts=[Artifact()])):
        assert (await create(store, task)).task == task
        assert (await HoldfastTaskStore(store.state_store).get(task.id, ANYONE)).task == task


@async_test
async def test_what_is_given_and_returned_is_copied(store):
    task = make_task()
    stored = await create(store, task)
    task.history.append(say("not saved"))
    stored.task.history.append(say("not saved"))
    assert (await store.get("t1", ANYONE)).task == make_task()


@pytest.mark.parametrize(
    ("space", "key", "value"),
    [
        ("state", "task/status", "working"),
        ("state", "task/status", {"state": ["?"]}),
        ("state", "task/context_id", 5),
        ("state", "artifacts/000003", {"artifactId": "gap"}),
        ("state", "artifacts/000000/000000000", {"_protobuf": "text"}),
        ("messages", "000000000000", {"role": "user", "content": "not A2A"}),
        ("a2a", "task", {}),
        ("a2a", "rest", "text"),
    ],
)
@async_test
async def test_entries_that_no_save_wrote_are_reported(store, space, key, value):
    await create(store)
    async with open_session(store) as session:
        session.record("test", changes={"set": [(space, key, value)], "delete": []})
    with pytest.raises(IntegrityError, match="is not what an A2A task store wrote"):
        await store.get("t1", ANYONE)


# -------------------------------------------------------------------------------- versions, owners


@async_test
async def test_the_first_save_is_refused_if_the_task_exists(store):
    await create(store)
    with pytest.raises(ConcurrentTaskModificationError):
        await store.save(make_task(), prev_version=MISSING, context=ANYONE)


@async_test
async def test_a_cancellation_needs_no_version_but_a_task_that_has_not_ended(store):
    canceled = make_task(state=CANCELED)
    with pytest.raises(ConcurrentTaskModificationError):
        await store.save(canceled, prev_version=MISSING, context=ANYONE)
    stored = await create(store)
    await add_chunk(store, stored, "a")
    version = await store.save(canceled, prev_version=stored.version, context=ANYONE)
    found = await store.get("t1", ANYONE)
    assert (found.task, found.version) == (canceled, version)
    with pytest.raises(ConcurrentTaskModificationError):
        await store.save(canceled, prev_version=version, context=ANYONE)


@async_test
async def test_of_many_writers_of_a_version_one_succeeds(new_state_store):
    one, two = HoldfastTaskStore(new_state_store()), HoldfastTaskStore(new_state_store())
    async with one, two:
        stored = await create(one)
        saves = [add_chunk(each, stored, str(n)) for n, each in enumerate([one, two] * 3)]
        found = await asyncio.gather(*saves, return_exceptions=True)
        versions = [each for each in found if isinstance(each, TaskVersion)]
        errors = [each for each in found if isinstance(each, ConcurrentTaskModificationError)]
        assert (len(versions), len(errors)) == (1, 5)
        assert (await two.get("t1", ANYONE)).version == versions[0]


@async_test
async def test_values_beside_a_task_do_not_change_its_version(store):
    stored = await create(store)
    for number in range(3):
        async with open_session(store) as session:
            session.set("guests", number)
    assert (await store.get("t1", ANYONE)).version == stored.version
    other = HoldfastTaskStore(store.state_store)
    assert (await other.get("t1", ANYONE)).version == stored.version
    version = await add_chunk(other, stored, "a")
    assert version.is_after(stored.version)
    assert (await open_session(store)).get("guests") == 2


@async_test
async def test_a_restore_is_a_new_version(store):
    stored = await create(store)
    saved = await (await open_session(store)).save()
    version = await add_chunk(store, stored, "a")
    await (await open_session(store)).restore(saved.snapshot_id)
    found = await store.get("t1", ANYONE)
    assert found.task == stored.task
    assert found.version.is_after(version)
    with pytest.raises(ConcurrentTaskModificationError):
        await store.save(make_task(state=COMPLETED), prev_version=version, context=ANYONE)
    await add_chunk(store, found, "b")
    listed = await store.list(ListTasksRequest(), ANYONE)
    assert [part.text for part in listed.tasks[0].artifacts[0].parts] == ["b"]


@async_test
async def test_a_version_of_a_deleted_task_is_stale(store):
    old = await create(store)
    await store.delete("t1", ANYONE)
    new = await create(store)
    assert new.version == old.version
    with pytest.raises(ConcurrentTaskModificationError):
        await add_chunk(store, old, "a")
    await add_chunk(store, new, "b")


@async_test
async def test_a_deletion_leaves_sessions_of_other_agents(store):
    other = HoldfastTaskStore(store.state_store, agent_id="other")
    for each in (store, other):
        await create(each)
    await store.delete("t1", ANYONE)
    assert await store.get("t1", ANYONE) is None
    assert (await other.get("t1", ANYONE)).task == make_task()


@async_test
async def test_tasks_of_other_owners_are_invisible(store):
    alice, bob = caller("alice"), caller("bob")
    await create(store, make_task(texts=["of alice"]), alice)
    await create(store, make_task(texts=["of bob"]), bob)
    assert (await store.get("t1", alice)).task.history[0].parts[0].text == "of alice"
    assert (await store.get("t1", ANYONE)) is None
    await store.delete("t1", alice)
    assert (await store.list(ListTasksRequest(), bob)).total_size == 1
    assert (await store.list(ListTasksRequest(), alice)).total_size == 0
    assert store.location("t1", "bob").session_id == "t1:bob"


@pytest.mark.parametrize("text", ["t", "a:b", "a%3Ab", "%", ":", "a/b", "…", "a:", " "])
def test_session_ids_are_parsed_back(text):
    for owner in ("", "alice", "a:b", "%3A", "x@example.org"):
        assert parse_session_id(format_session_id(text, owner)) == (text, owner)


@pytest.mark.parametrize("text", [":a", "a:", "a:b:c", "%41", "a:%41"])
def test_other_session_ids_name_no_task(text):
    assert parse_session_id(text) is None


@pytest.mark.parametrize("task_id", ["", "x" * 300])
@async_test
async def test_ids_that_cannot_be_stored(store, task_id):
    assert await store.get(task_id, ANYONE) is None
    await store.delete(task_id, ANYONE)
    with pytest.raises(ValueError, match="session_id must have 1 to 256 characters"):
        await store.save(Task(id=task_id), prev_version=MISSING, context=ANYONE)


@async_test
async def test_a_plain_task_store_has_the_same_tasks(store):
    plain = store.as_task_store
    assert isinstance(plain, TaskStore)
    assert isinstance(store, VersionedTaskStore)
    await plain.save(make_task(), ANYONE)
    stored = await store.get("t1", ANYONE)
    await plain.save(make_task(state=COMPLETED), ANYONE)
    assert await plain.get("t1", ANYONE) == make_task(state=COMPLETED)
    assert await plain.get("t2", ANYONE) is None
    with pytest.raises(ConcurrentTaskModificationError):
        await add_chunk(store, stored, "stale")
    assert (await plain.list(ListTasksRequest(), ANYONE)).total_size == 1
    await plain.delete("t1", ANYONE)
    assert await plain.get("t1", ANYONE) is None


# ------------------------------------------------------------------------------- lists, other tools


@async_test
async def test_a_list_reads_summaries_and_the_tasks_of_its_page():
    observed = ObservedStore()
    store = HoldfastTaskStore(observed)
    for number in range(30):
        status = make_status(WORKING, 1_800_000_000 + number)
        await create(store, make_task(f"t{number:02}", texts=["x" * 1000] * 3, status=status))
    fresh = HoldfastTaskStore(observed)
    observed.forget()
    page = await fresh.list(ListTasksRequest(page_size=2), ANYONE)
    assert [each.id for each in page.tasks] == ["t29", "t28"]
    assert page.total_size == 30
    found = [key for key in observed.read if key in observed.content]
    assert {key.split("/")[1] for key in found if "/log/" in key} == {"t29", "t28"}
    assert len(found) < 2 * 30 + 10


@async_test
async def test_forks_imports_and_deletions_of_other_tools_are_listed(store):
    await create(store, make_task("t1"))
    await create(store, make_task("t2"))
    session = await open_session(store)
    await session.fork("t3")
    document = await session.export()
    await SnapshotArchive(store.state_store).delete_session(session_id="t2")
    async with await Session.open(store.state_store, agent_id="a2a", session_id="beside") as other:
        other.set("not", "a task")
    for each in (store, HoldfastTaskStore(store.state_store)):
        listed = await each.list(ListTasksRequest(), ANYONE)
        assert [task.id for task in listed.tasks] == ["t3", "t1"]
        assert listed.tasks[0].history == make_task().history
    fork = await store.get("t3", ANYONE)
    await add_chunk(store, fork, "only in the fork")
    assert not (await store.get("t1", ANYONE)).task.artifacts
    elsewhere = HoldfastTaskStore(MemoryStateStore())
    await SnapshotManager(elsewhere.state_store).import_session(document)
    copy = await elsewhere.get("t1", ANYONE)
    assert copy.task == make_task()
    await add_chunk(elsewhere, copy, "only elsewhere")
    assert (await elsewhere.list(ListTasksRequest(status=WORKING), ANYONE)).total_size == 1


@async_test
async def test_a_damaged_summary_is_made_again(store):
    await create(store)
    key = f"{store.location('t1').prefix}a2a/summary.json"
    for damage in (b"", b"[]", b'{"format": 1, "digest": "", "content": {}}'):
        await store.state_store.put(key, damage)
        fresh = HoldfastTaskStore(store.state_store)
        assert (await fresh.list(ListTasksRequest(status=WORKING), ANYONE)).total_size == 1


@async_test
async def test_sessions_are_sound_and_listed_by_the_catalog(store):
    stored = await create(store)
    await add_chunk(store, stored, "a")
    assert (await (await open_session(store)).verify()).ok
    page = await Catalog(store.state_store).summaries("a2a")
    assert [(each.session_id, each.status) for each in page.sessions] == [("t1", "running")]


@async_test
async def test_changes_of_another_replica_are_read_in_part_or_in_full(store):
    other = HoldfastTaskStore(store.state_store)
    await create(store, make_task(texts=["one", "two"]))
    for edit in (
        lambda task: task.history.append(say("three")),
        lambda task: task.artifacts.add(artifact_id="a", parts=[Part(text="x"), Part(text="y")]),
        lambda task: task.artifacts[0].parts.add(text="z"),
        lambda task: setattr(task.artifacts[0], "name", "renamed"),
        lambda task: setattr(task.artifacts[0].parts[1], "text", "changed"),
        lambda task: setattr(task, "context_id", "c2"),
        lambda task: task.metadata.update({"a": [1]}),
        lambda task: setattr(task.history[0], "message_id", "changed"),
        lambda task: task.artifacts.pop(),
        lambda task: task.ClearField("metadata"),
        lambda task: task.ClearField("status"),
        lambda task: task.MergeFromString(b"\xba\x3e\x05hello"),
        lambda task: task.ClearField("history"),
    ):
        stored = await other.get("t1", ANYONE)
        edit(stored.task)
        await store.save(stored.task, prev_version=stored.version, context=ANYONE)
        assert (await other.get("t1", ANYONE)).task == stored.task
