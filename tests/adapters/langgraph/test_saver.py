"""Listing, copying, pruning and deleting threads."""

from __future__ import annotations

import pytest
from langgraph.types import Command

from adapters.langgraph.graphs import at, build_agent, build_deltas, build_steps, user_message
from holdfast import ConflictError, NotFoundError, Session, open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import HoldfastError
from support.async_tests import run_async

IDS = ["a/b/../c", "%2F", "é ☃ \U0001f600", "..", " ", "a|b:c", "line\nbreak", "x" * 256, 7]


def test_a_thread_id_may_have_any_characters(new_durable_saver):
    graph = build_steps(new_durable_saver())
    for thread_id in IDS:
        graph.invoke({"log": [f"in {thread_id}"]}, at(thread_id))
    graph = build_steps(new_durable_saver())
    for thread_id in IDS:
        found = graph.invoke(Command(resume="yes"), at(thread_id))["log"]
        assert found == [f"in {thread_id}", "one", "answer yes", "two"]
        assert len(list(graph.get_state_history(at(thread_id)))) == 5


@pytest.mark.parametrize("thread_id", ["", "x" * 257, "\ud800"])
def test_an_invalid_thread_id_is_refused(saver, thread_id):
    with pytest.raises(ValueError, match="thread_id"):
        build_steps(saver).invoke({"log": []}, at(thread_id))


def test_an_argument_that_is_not_a_store_is_refused():
    with pytest.raises(TypeError, match=r"got 'sqlite:///x.db'; use open_state_store\(url\)"):
        HoldfastSaver("sqlite:///x.db")


def test_checkpoints_of_all_threads_are_listed_and_filtered(saver):
    graph = build_steps(saver)
    for thread in "abc":
        graph.invoke({"log": []}, {**at(thread), "metadata": {"user": thread}})
    assert len(list(saver.list(None))) == 9
    ids = [each.config["configurable"]["checkpoint_id"] for each in saver.list(None)]
    assert ids == sorted(ids, reverse=True)
    found = list(saver.list(None, filter={"user": "b", "source": "loop"}))
    assert {each.config["configurable"]["thread_id"] for each in found} == {"b"}
    assert [each.metadata["step"] for each in found] == [1, 0]
    assert list(saver.list(None, filter={"user": "' OR 1=1 --"})) == []
    assert [each.metadata["step"] for each in saver.list(at("a"), limit=2)] == [1, 0]
    middle = next(each for each in saver.list(at("a")) if each.metadata["step"] == 0)
    assert [each.metadata["step"] for each in saver.list(at("a"), before=middle.config)] == [-1]
    assert [each.metadata["step"] for each in saver.list(middle.config)] == [0]


def test_a_copy_has_the_whole_history_and_is_independent(saver):
    graph = build_steps(saver)
    graph.invoke({"log": ["in"]}, at("a"))
    saver.copy_thread("a", "b")
    assert [(state.values, state.next) for state in graph.get_state_history(at("a"))] == [
        (state.values, state.next) for state in graph.get_state_history(at("b"))
    ]
    graph.invoke(Command(resume="b"), at("b"))
    assert graph.get_state(at("a")).next == ("asking",)
    assert graph.invoke(Command(resume="a"), at("a"))["log"][2] == "answer a"
    assert graph.get_state(at("b")).values["log"][2] == "answer b"
    check_verified(saver, "a", "b")
    with pytest.raises(ConflictError, match="copy to another id"):
        saver.copy_thread("a", "b")
    with pytest.raises(NotFoundError, match="thread 'missing' not found"):
        saver.copy_thread("missing", "c")


def check_verified(saver, *threads):
    async def check():
        for thread in threads:
            session = await Session.open(
                saver.state_store, agent_id="langgraph", session_id=thread, must_exist=True
            )
            found = await session.verify()
            assert found.ok, found.damage

    run_async(check())


def runs(graph, count=3, thread="t"):
    for number in range(count):
        config = {**at(thread), "metadata": {"run_id": f"run {number}"}}
        graph.invoke(user_message("monday", str(number)), config)


def test_deleting_the_checkpoints_of_runs_makes_an_earlier_one_current(saver):
    graph = build_agent(saver)
    runs(graph)
    runs(graph, thread="u")
    saver.delete_for_runs(["run 2", "no such run"])
    for thread in "tu":
        assert len(graph.get_state(at(thread)).values["messages"]) == 8
        left = {state.metadata["run_id"] for state in graph.get_state_history(at(thread))}
        assert left == {"run 0", "run 1"}
    saver.delete_for_runs(["run 0"])
    assert len(graph.invoke(user_message("sunday", "9"), at())["messages"]) == 12
    saver.delete_for_runs(["run 1"])
    check_verified(saver, "t")
    assert graph.get_state(at("u")).values == {}


def test_deleted_checkpoints_stay_deleted_after_a_restore(saver):
    graph = build_agent(saver)
    runs(graph, 2)

    async def restored(snapshot_id):
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        ids = await session.archive.list_snapshot_ids(location=session.location)
        await session.restore(snapshot_id or ids[-1])
        return ids

    ids = run_async(restored(None))
    saver.delete_for_runs(["run 0"])
    run_async(restored(ids[-1]))
    assert {state.metadata["run_id"] for state in graph.get_state_history(at())} == {"run 1"}


def test_pruning_keeps_the_current_checkpoint_and_truncates_the_log(saver):
    graph = build_agent(saver)
    runs(graph, 4)
    before = graph.get_state(at())
    saver.prune(["t", "missing"])
    assert [state.config for state in graph.get_state_history(at())] == [before.config]
    assert graph.get_state(at()).values == before.values
    check_verified(saver, "t")

    async def first_event():
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        manifest = await session.archive.load_manifest(location=session.location)
        return manifest.log_start.seq

    assert run_async(first_event()) > 20
    with pytest.raises(ValueError, match="keep_latest or delete"):
        saver.prune(["t"], strategy="keep_some")


def test_pruning_keeps_a_restored_older_checkpoint(saver):
    graph = build_agent(saver)
    runs(graph, 3)

    async def back():
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        ids = await session.archive.list_snapshot_ids(location=session.location)
        await session.save()
        await session.restore(ids[4])

    run_async(back())
    assert len(graph.get_state(at()).values["messages"]) == 4
    saver.prune(["t"])
    assert len(graph.get_state(at()).values["messages"]) == 4
    assert len(list(graph.get_state_history(at()))) == 1
    check_verified(saver, "t")


@pytest.mark.parametrize("frequency", [3, 100])
@pytest.mark.parametrize("saved", [0, 5])
def test_pruning_keeps_the_ancestors_that_delta_channels_need(saver, frequency, saved):
    graph = build_deltas(saver, frequency)
    for number in range(5):
        graph.invoke({"log": [number]}, at())
    before = graph.get_state(at()).values

    async def save():
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        for _ in range(saved):
            await session.save()

    run_async(save())
    saver.prune(["t"])
    assert graph.get_state(at()).values == before
    assert graph.invoke({"log": ["x"]}, at())["log"][-3:] == ["x", "one", "two"]
    saver.prune(["t"])
    assert graph.get_state(at()).values["log"] == [*before["log"], "x", "one", "two"]
    check_verified(saver, "t")


def test_a_thread_whose_session_has_other_agents_is_not_deleted(saver):
    build_steps(saver).invoke({"log": []}, at())

    async def join():
        async with Session.open(saver.state_store, agent_id="other", session_id="t") as session:
            session.add_message("user", "me too")

    run_async(join())
    with pytest.raises(ConflictError, match="also belongs to other agents"):
        saver.delete_thread("t")


def test_savers_of_different_agents_have_separate_threads():
    with HoldfastSaver(open_state_store("memory:"), agent_id="a") as one:
        two = HoldfastSaver(one.state_store, agent_id="b")
        build_steps(one).invoke({"log": ["in"]}, at())
        assert build_steps(two).get_state(at()).values == {}
        assert list(two.list(None)) == []
        with pytest.raises((ValueError, HoldfastError), match="agent_id"):
            HoldfastSaver(one.state_store, agent_id="")
