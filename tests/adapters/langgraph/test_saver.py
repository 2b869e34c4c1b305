"""Threads by their ids: listing, copying, pruning and deleting them."""

from __future__ import annotations

import pytest
from langgraph.types import Command

from adapters.langgraph.graphs import at, deltas, said, stepping, talking
from holdfast import ConflictError, NotFoundError, Session, open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.errors import HoldfastError
from support.async_tests import run_async

IDS = ["a/b/../c", "%2F", "é ☃ \U0001f600", "..", " ", "a|b:c", "line\nbreak", "x" * 256, 7]


def test_a_thread_id_may_have_any_characters(new_saver):
    graph = stepping(new_saver())
    for thread_id in IDS:
        graph.invoke({"log": [f"in {thread_id}"]}, at(thread_id))
    graph = stepping(new_saver())
    for thread_id in IDS:
        found = graph.invoke(Command(resume="yes"), at(thread_id))["log"]
        assert found == [f"in {thread_id}", "one", "answer yes", "two"]
        assert len(list(graph.get_state_history(at(thread_id)))) == 5


@pytest.mark.parametrize("thread_id", ["", "x" * 257, "\ud800"])
def test_a_thread_id_that_cannot_be_kept_is_one_clear_error(saver, thread_id):
    with pytest.raises(ValueError, match="thread_id"):
        stepping(saver).invoke({"log": []}, at(thread_id))


def test_what_is_no_store_is_refused_with_what_to_pass():
    with pytest.raises(TypeError, match=r"open_state_store\(url\).*'sqlite:///x.db'"):
        HoldfastSaver("sqlite:///x.db")


def test_checkpoints_of_all_threads_are_listed_and_filtered(saver):
    graph = stepping(saver)
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


def test_a_copy_has_all_of_a_thread_and_goes_its_own_way(saver):
    graph = stepping(saver)
    graph.invoke({"log": ["in"]}, at("a"))
    saver.copy_thread("a", "b")
    assert [(state.values, state.next) for state in graph.get_state_history(at("a"))] == [
        (state.values, state.next) for state in graph.get_state_history(at("b"))
    ]
    graph.invoke(Command(resume="b"), at("b"))
    assert graph.get_state(at("a")).next == ("asking",)
    assert graph.invoke(Command(resume="a"), at("a"))["log"][2] == "answer a"
    assert graph.get_state(at("b")).values["log"][2] == "answer b"
    verified(saver, "a", "b")
    with pytest.raises(ConflictError, match="copy to another id"):
        saver.copy_thread("a", "b")
    with pytest.raises(NotFoundError, match="there is no thread .nobody. to copy"):
        saver.copy_thread("nobody", "c")


def verified(saver, *threads):
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
        graph.invoke(said("monday", str(number)), config)


def test_the_checkpoints_of_runs_are_deleted_and_the_thread_stands_before_them(saver):
    graph = talking(saver)
    runs(graph)
    runs(graph, thread="u")
    saver.delete_for_runs(["run 2", "no such run"])
    for thread in "tu":
        assert len(graph.get_state(at(thread)).values["messages"]) == 8
        left = {state.metadata["run_id"] for state in graph.get_state_history(at(thread))}
        assert left == {"run 0", "run 1"}
    saver.delete_for_runs(["run 0"])
    assert len(graph.invoke(said("sunday", "9"), at())["messages"]) == 12
    saver.delete_for_runs(["run 1"])
    verified(saver, "t")
    assert graph.get_state(at("u")).values == {}


def test_what_was_deleted_stays_deleted_when_the_thread_is_restored(saver):
    graph = talking(saver)
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


def test_pruning_keeps_where_a_thread_stands_and_gives_the_log_back(saver):
    graph = talking(saver)
    runs(graph, 4)
    before = graph.get_state(at())
    saver.prune(["t", "nobody"])
    assert [state.config for state in graph.get_state_history(at())] == [before.config]
    assert graph.get_state(at()).values == before.values
    verified(saver, "t")

    async def first_event():
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        manifest = await session.archive.load_manifest(location=session.location)
        return manifest.log_start.seq

    assert run_async(first_event()) > 20
    with pytest.raises(ValueError, match="keep_latest or delete"):
        saver.prune(["t"], strategy="keep_some")


def test_pruning_keeps_an_older_checkpoint_that_the_thread_was_taken_back_to(saver):
    graph = talking(saver)
    runs(graph, 3)

    async def back():
        session = await Session.open(saver.state_store, agent_id="langgraph", session_id="t")
        ids = await session.archive.list_snapshot_ids(location=session.location)
        await session.save()  # somebody's own
        await session.restore(ids[4])

    run_async(back())
    assert len(graph.get_state(at()).values["messages"]) == 4
    saver.prune(["t"])
    assert len(graph.get_state(at()).values["messages"]) == 4
    assert len(list(graph.get_state_history(at()))) == 1
    verified(saver, "t")


@pytest.mark.parametrize("frequency", [3, 100])
@pytest.mark.parametrize("saved", [0, 5])
def test_pruning_keeps_what_delta_channels_are_made_of(saver, frequency, saved):
    graph = deltas(saver, frequency)
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
    verified(saver, "t")


def test_a_thread_that_shares_its_session_with_others_is_not_deleted(saver):
    stepping(saver).invoke({"log": []}, at())

    async def join():
        async with Session.open(saver.state_store, agent_id="other", session_id="t") as session:
            session.add_message("user", "me too")

    run_async(join())
    with pytest.raises(ConflictError, match="other agents than langgraph"):
        saver.delete_thread("t")


def test_savers_of_other_agents_have_threads_of_their_own():
    with HoldfastSaver(open_state_store("memory:"), agent_id="a") as one:
        two = HoldfastSaver(one.state_store, agent_id="b")
        stepping(one).invoke({"log": ["in"]}, at())
        assert stepping(two).get_state(at()).values == {}
        assert list(two.list(None)) == []
        with pytest.raises((ValueError, HoldfastError), match="agent_id"):
            HoldfastSaver(one.state_store, agent_id="")
