"""HoldfastSaver has imported LangGraph threads as the saver that wrote them, and continues them."""

from __future__ import annotations

import shutil

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command

import holdfast
import holdfast.importers
from holdfast.adapters.langgraph import BlockedTypeWarning, HoldfastSaver
from importers.graphs import (
    THREADS,
    build,
    build_deltas,
    build_nested,
    check_thread,
    import_documents,
    make_config,
    read_values,
    write_threads,
)
from support.async_tests import async_test, run_async
from support.subprocesses import run_python


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A database with all threads."""
    path = tmp_path_factory.mktemp("langgraph") / "checkpoints.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        write_threads(saver)
    return path


@pytest.fixture
def theirs(original, tmp_path):
    """LangGraph's saver on a copy of the database."""
    copy = tmp_path / "checkpoints.sqlite"
    shutil.copy(original, copy)
    with SqliteSaver.from_conn_string(str(copy)) as saver:
        yield saver


@pytest.fixture
def ours(original):
    """Our saver on a store into which all threads were imported."""
    store = holdfast.open_state_store("memory:")
    import_documents(store, *holdfast.importers.read(str(original)))
    with HoldfastSaver(store) as saver:
        yield saver


@pytest.mark.parametrize("thread", THREADS)
def test_checkpoints_and_states_are_those_of_the_original_saver(original, theirs, thread):
    (document,) = holdfast.importers.read(str(original), thread=thread)
    check_thread(theirs, document, thread)


@pytest.mark.parametrize(("thread", "graph"), [("waiting", build), ("nested", build_nested)])
def test_a_graph_resumes_an_imported_interrupt(theirs, ours, thread, graph):
    results = [
        read_values(graph(saver).invoke(Command(resume="yes"), make_config(thread)))
        for saver in (theirs, ours)
    ]
    assert results[0] == results[1]
    assert "yes" in str(results[1]["messages"])
    states = [
        [
            (state.next, read_values(state.values))
            for state in graph(saver).get_state_history(make_config(thread))
        ]
        for saver in (theirs, ours)
    ]
    assert states[0] == states[1]


def test_a_graph_continues_from_the_last_and_from_an_older_imported_checkpoint(theirs, ours):
    results = []
    for saver in (theirs, ours):
        graph = build(saver)
        old = [state for state in graph.get_state_history(make_config()) if state.next == ("use",)][
            -1
        ]
        result = [graph.invoke({"messages": [("user", "Again?")]}, make_config())]
        result.append(graph.invoke(None, old.config))
        result.append(graph.invoke(Command(resume="now"), make_config()))
        results.append([read_values(each) for each in result])
    assert results[0] == results[1]
    assert "sun (now)" in str(results[1][-1])


def test_a_delta_channel_grows_on_after_the_import(theirs, ours):
    results = [
        build_deltas(saver).invoke({"items": ["more"]}, make_config("deltas"))
        for saver in (theirs, ours)
    ]
    assert results[0] == results[1]
    assert results[1]["items"][-3:] == ["a", "more", "a"]


def test_objects_of_types_that_are_not_allowed_come_back_as_plain_data(ours):
    with pytest.warns(BlockedTypeWarning, match="Plan|Card"):
        values = ours.get_tuple(make_config("typed")).checkpoint["channel_values"]
    assert values["plan"] == {"goal": "x"}
    assert values["items"][0] == {"number": 7}


@async_test
async def test_a_thread_imported_under_another_session_id_continues_there(original):
    store = holdfast.open_state_store("memory:")
    documents = holdfast.importers.read(
        str(original), thread="waiting", agent_id="bot", session_id="moved"
    )
    await holdfast.SnapshotManager(store).import_session(*documents)
    graph = build(HoldfastSaver(store, agent_id="bot"))
    assert (await graph.aget_state(make_config("moved"))).next == ("use",)
    result = await graph.ainvoke(Command(resume="there"), make_config("moved"))
    assert "sun (there)" in str(result["messages"])


def test_a_thread_imported_over_a_session_becomes_its_state(original, ours):
    async def work():
        manager = holdfast.SnapshotManager(ours.state_store)
        (document,) = holdfast.importers.read(str(original), thread="waiting", session_id="t1")
        assert not (await manager.import_session(document)).created

    run_async(work())
    assert build(ours).get_state(make_config("t1")).next == ("use",)


def test_messages_of_a_thread_are_messages_of_the_session(original):
    (document,) = holdfast.importers.read(str(original), thread="t1")
    assert (document.agent_id, document.session_id) == ("langgraph", "t1")
    assert document.tags == {"format": "langgraph-sqlite"}
    assert document.state.status == "completed"
    messages = document.state.messages
    assert [each["role"] for each in messages] == ["user", "assistant", "tool", "assistant"]
    assert messages[2]["content"].startswith("sun (")
    assert document.state.values == {"notes": ["called", "used"], "step": 2}


@pytest.mark.parametrize(
    ("thread", "status"),
    [("t1", "completed"), ("waiting", "waiting"), ("nested", "waiting"), ("failed", "failed")],
)
def test_the_status_of_a_session_is_that_of_its_thread(original, thread, status):
    (document,) = holdfast.importers.read(str(original), thread=thread)
    assert document.state.status == status


def test_objects_are_stored_as_bytes_with_a_text_for_people(original):
    (document,) = holdfast.importers.read(str(original), thread="typed")
    plan = document.state.values["plan"]
    assert (plan["langchain"], plan["type"]) == ("serialized", "msgpack")
    assert plan["shown"].startswith("Plan(")
    assert document.state.values["tags"] == {1, 2}
    roles = [each.get("role") for each in document.state.messages]
    assert roles == ["user", None, "assistant"]


def test_events_have_the_times_of_their_checkpoints(theirs, original):
    (document,) = holdfast.importers.read(str(original), thread="t1")
    times = {each.checkpoint["id"]: each.checkpoint["ts"] for each in theirs.list(make_config())}
    for event in document.events[1:]:
        assert event.at.isoformat() == times[event.data["checkpoint_id"]]
    assert document.events[0].at.isoformat() == min(times.values())


def test_every_checkpoint_is_a_snapshot_with_its_parent_and_tags(theirs, ours):
    async def work():
        location = ours.location("t1")
        return await holdfast.SnapshotArchive(ours.state_store).list_snapshots(location=location)

    snapshots = run_async(work()).snapshots
    listed = sorted(theirs.list(make_config()), key=lambda each: each.checkpoint["id"])
    assert len(snapshots) == len(listed)
    ids = {
        each.checkpoint["id"]: info.snapshot_id
        for each, info in zip(listed, snapshots, strict=True)
    }
    for each, info in zip(listed, snapshots, strict=True):
        parent = each.parent_config and ids[each.parent_config["configurable"]["checkpoint_id"]]
        assert info.parent_id == parent
        assert info.tags["step"] == str(each.metadata["step"])
        assert info.tags["source"] == each.metadata["source"]
        assert info.tags.get("subgraph", "") == each.config["configurable"]["checkpoint_ns"]
        assert info.created_at.isoformat() == each.checkpoint["ts"]


def test_a_missing_langgraph_is_one_clear_error(original):
    code = (
        "import importlib.metadata as m\n"
        "from holdfast import SnapshotManager, importers\n"
        "def version(name): raise m.PackageNotFoundError(name)\n"
        "m.version = version\n"
        f"importers.read({str(original)!r})\n"
    )
    ran = run_python(code)
    assert ran.returncode == 1
    last = ran.stderr.splitlines()[-1]
    assert "the extra 'langgraph'" in last
    assert "pip install 'holdfast[langgraph]'" in last
