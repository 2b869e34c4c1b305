"""Threads are sessions: everything that works on a session works on a thread."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.types import Command

from adapters.langgraph.graphs import at, build_agent, build_deltas, build_steps, user_message
from cli.conftest import isolate_environment, run  # noqa: F401 - fixtures
from holdfast import Catalog, Session, SnapshotManager, open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from support.async_tests import run_async
from support.backends import make_opener
from support.rest_api import connect

URL = "sqlite:///state.db"


@pytest.fixture
def store(isolate_environment, monkeypatch):  # noqa: F811
    """A store with a conversation and a thread that waits at an interrupt."""
    monkeypatch.setenv("HOLDFAST_STORE", URL)
    with HoldfastSaver.from_url(URL) as saver:
        graph = build_agent(saver)
        for number, day in enumerate(("monday", "sunday")):
            graph.invoke({**user_message(day, str(number)), "plan": {"day": day}}, at("talk"))
        build_steps(saver).invoke({"log": ["in"]}, at("ask"))
    return URL


def tree(ran):
    assert ran.code == 0, ran
    return json.loads(ran.out)


def snapshots(run, thread):  # noqa: F811
    """The ids of a thread's snapshots, oldest first."""
    listed = tree(run("state", "list", "--session", thread, "--format", "json"))
    return sorted(each["snapshot_id"] for each in listed["items"])


def test_threads_are_listed_shown_and_compared(run, store):  # noqa: F811
    listed = tree(run("state", "list", "langgraph", "--format", "json"))
    assert {each["session_id"] for each in listed["items"]} == {"talk", "ask"}
    ids = snapshots(run, "talk")
    assert len(ids) == 10
    shown = tree(run("state", "show", "talk", "--format", "json"))["state"]
    assert shown["messages"][-1]["content"] == "There are two tables on sunday."
    assert shown["status"] == "completed"
    compared = run("state", "diff", f"talk@{ids[4]}", "talk")
    assert compared.code == 0
    assert "two tables on sunday" in compared.out
    assert "two tables on monday" not in compared.out
    assert run("state", "verify").code == 0
    waiting = tree(run("state", "show", "ask", "--format", "json"))["state"]
    assert waiting["status"] == "waiting"


def test_a_graph_continues_from_a_restored_snapshot(run, store):  # noqa: F811
    with HoldfastSaver.from_url(store) as saver:
        graph = build_agent(saver)
        assert len(graph.get_state(at("talk")).values["messages"]) == 8  # now cached
        assert run("state", "restore", "talk", snapshots(run, "talk")[4], "--yes").code == 0
        kept = graph.get_state(at("talk"))
        assert len(kept.values["messages"]) == 4
        assert kept.values["plan"] == {"day": "monday"}
        ended = graph.invoke(user_message("friday", "9"), at("talk"))
        assert [each.content for each in ended["messages"]][3:5] == [
            *("There are two tables on monday.", "friday")
        ]
        assert len(list(graph.get_state_history(at("talk")))) == 15
    assert run("state", "verify").code == 0


def test_a_fork_of_a_thread_continues(run, store):  # noqa: F811
    assert run("state", "fork", "ask", "what-if").code == 0
    assert run("state", "fork", "talk", "early", "--at", snapshots(run, "talk")[4]).code == 0
    with HoldfastSaver.from_url(store) as saver:
        graph = build_steps(saver)
        (asked,) = graph.get_state(at("what-if")).interrupts
        assert asked.value == "really?"
        assert graph.invoke(Command(resume="fork"), at("what-if"))["log"][2:] == [
            *("answer fork", "two")
        ]
        assert graph.get_state(at("ask")).next == ("asking",)
        ended = build_agent(saver).invoke(user_message("friday", "9"), at("early"))
        assert len(ended["messages"]) == 8
    assert run("state", "verify").code == 0


@pytest.mark.parametrize("backend", ["sqlite", "files", "postgresql"])
def test_a_thread_exported_to_another_store_continues_there(run, store, request, backend):  # noqa: F811
    for thread in ("talk", "ask"):
        out = f"{thread}.json.gz"
        ran = run("state", "export", "langgraph", "--session", thread, "-o", out)
        assert ran.code == 0
    new = make_opener(backend, request)

    async def imported():
        async with new() as target:
            for thread in ("talk", "ask"):
                manager = SnapshotManager(target)
                await manager.import_session(manager.from_file(f"{thread}.json.gz"))

    run_async(imported())
    with HoldfastSaver.from_url(store) as here, HoldfastSaver(new()) as there:
        for graph_of, thread in ((build_agent, "talk"), (build_steps, "ask")):
            one, other = graph_of(here), graph_of(there)
            before, after = one.get_state(at(thread)), other.get_state(at(thread))
            assert after == before
            states = list(other.get_state_history(at(thread)))
            assert states == list(one.get_state_history(at(thread)))
            assert other.get_state(states[2].config) == states[2]
        assert build_steps(there).invoke(Command(resume="yes"), at("ask"))["log"] == [
            *("in", "one", "answer yes", "two")
        ]
        ended = build_agent(there).invoke(user_message("friday", "9"), at("talk"))
        assert len(ended["messages"]) == 12
        verify(there.state_store)


def verify(store):
    async def check():
        for entry in (await Catalog(store).sessions("langgraph")).sessions:
            session = await Session.open(
                store, agent_id="langgraph", session_id=entry.session_id, must_exist=True
            )
            found = await session.verify()
            assert found.ok, found.damage

    run_async(check())


def test_an_exported_thread_can_be_redacted(run, store):  # noqa: F811
    with HoldfastSaver.from_url(store) as saver:
        build_agent(saver).invoke(user_message("write to ada@example.com", "m"), at("talk"))
    ran = run("state", "export", "langgraph", "--session", "talk", "--redact", "-o", "out.json")
    assert ran.code == 0
    text = Path("out.json").read_text()
    assert "ada@example.com" not in text
    assert "two tables on sunday" in text
    assert run("state", "import", "out.json", "--session", "clean").code == 0
    with HoldfastSaver.from_url(store) as saver:
        ended = build_agent(saver).invoke(user_message("friday", "9"), at("clean"))
        assert len(ended["messages"]) == 16
        assert "ada@" not in str(ended)


def test_the_server_shows_a_thread(store):
    async def asked():
        async with open_state_store(store) as state_store, connect(state_store) as api:
            found = await api.get("/agents/langgraph/sessions/talk/state")
            listed = await api.get("/agents/langgraph/sessions/talk/snapshots")
            return found, listed

    found, listed = run_async(asked())
    assert found.status_code == listed.status_code == 200
    assert "There are two tables on sunday." in found.text
    assert len(listed.json()["snapshots"]) == 10


def test_messages_are_stored_as_readable_dicts(store):
    async def opened():
        async with open_state_store(store) as state_store:
            session = await Session.open(state_store, agent_id="langgraph", session_id="talk")
            return session.messages, session.state, session.unfinished

    messages, state, unfinished = run_async(opened())
    assert messages[0] == {
        "role": "user",
        "content": "monday",
        "id": "0",
        "langchain": "HumanMessage",
    }
    assert [each["role"] for each in messages[:4]] == ["user", "assistant", "tool", "assistant"]
    assert state["plan"] == {"day": "sunday"}
    assert unfinished == []


def test_changes_made_in_the_session_reach_the_graph(store):
    async def change():
        async with (
            open_state_store(store) as state_store,
            Session.open(state_store, agent_id="langgraph", session_id="talk") as live,
        ):
            live.set("plan", {"day": "by hand"})
            live.add_message("user", "one more thing")

    run_async(change())
    with HoldfastSaver.from_url(store) as saver:
        kept = build_agent(saver).get_state(at("talk")).values
        assert kept["plan"] == {"day": "by hand"}
        assert len(kept["messages"]) == 9


@pytest.mark.parametrize("durability", ["async", "exit"])
@pytest.mark.parametrize("frequency", [4, 100])
def test_a_thread_with_delta_channels_is_forked_moved_and_pruned(run, store, frequency, durability):  # noqa: F811
    with HoldfastSaver.from_url(store) as saver:
        graph = build_deltas(saver, frequency)
        for number in range(3):
            graph.invoke({"log": [number]}, at("delta"), durability=durability)
        old = [state for state in graph.get_state_history(at("delta")) if not state.next][1]
        other = graph.invoke(None, graph.update_state(old.config, {"log": ["x"]}, as_node="one"))
        expected = graph.get_state(at("delta")).values
        assert other == expected
    assert run("state", "fork", "delta", "forked").code == 0
    for options in ([], ["--redact"]):
        ran = run("state", "export", "langgraph", "--session", "delta", "-o", "d.json", *options)
        assert ran.code == 0
        assert run("state", "import", "d.json", "--session", f"moved{len(options)}").code == 0
    assert run("state", "prune", "delta", "--last", "1", "--yes").code == 0
    with HoldfastSaver.from_url(store) as saver:
        graph = build_deltas(saver, frequency)
        for thread in ("delta", "moved0", "moved1", "forked"):
            assert graph.get_state(at(thread)).values == expected, thread
            ended = graph.invoke({"log": ["on"]}, at(thread))
            assert ended["log"] == [*expected["log"], "on", "one", "two"]
            assert graph.get_state(at(thread)).values == ended


def test_a_fork_at_a_checkpoint_can_be_resumed(run, store):  # noqa: F811
    with HoldfastSaver.from_url(store) as saver:
        graph = build_steps(saver)
        graph.invoke(Command(resume="yes"), at("ask"))
        asked = next(state for state in graph.get_state_history(at("ask")) if state.interrupts)
        # Late, because another checkpoint is current.
        saver.put_writes(asked.config, [("__error__", "late")], "some task")
        assert len(saver.get_tuple(asked.config).pending_writes) == 6
    ids = snapshots(run, "ask")
    assert run("state", "fork", "ask", "at-the-question", "--at", ids[2]).code == 0
    assert run("state", "fork", "ask", "at-the-end").code == 0
    assert run("state", "restore", "ask", ids[2], "--yes").code == 0
    with HoldfastSaver.from_url(store) as saver:
        graph = build_steps(saver)
        assert graph.get_state(at("at-the-end")).next == ()
        for thread in ("at-the-question", "ask"):
            assert graph.get_state(at(thread)).next == ("asking",)
            graph.invoke(None, at(thread))
            assert graph.invoke(Command(resume="so"), at(thread))["log"][2] == "answer so"
    assert run("state", "verify").code == 0


@pytest.mark.parametrize(
    "messages", [["plain", "text"], [1, None], [{"no": "role"}], [{"role": "user", "langchain": 1}]]
)
def test_a_messages_channel_with_other_items_can_be_exported(run, store, messages):  # noqa: F811
    def put(saver):
        versions = {"messages": "00000001.0"}
        checkpoint = {
            **empty_checkpoint(),
            "channel_values": {"messages": messages},
            "channel_versions": versions,
        }
        saver.put(at("odd", checkpoint_ns=""), checkpoint, {"source": "input", "step": 0}, versions)

    with HoldfastSaver.from_url(store) as saver:
        put(saver)
    assert run("state", "show", "odd").code == 0
    assert run("state", "export", "langgraph", "--session", "odd", "-o", "odd.json").code == 0
    assert run("state", "import", "odd.json", "--session", "moved").code == 0
    with HoldfastSaver.from_url(store) as saver:
        assert saver.get_tuple(at("moved")).checkpoint["channel_values"] == {"messages": messages}
