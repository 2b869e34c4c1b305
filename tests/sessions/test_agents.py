"""Multi-agent sessions: one conversation, separate values, one snapshot for all agents."""

from __future__ import annotations

import pytest

from holdfast import BlockingSession, Catalog
from holdfast.snapshots import SnapshotLocation
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import (
    capture_state,
    list_contents,
    list_types,
    open_session,
    reopen_session,
)


@pytest.fixture
def crew():
    """A new multi-agent session."""

    async def begun():
        return await open_session(MemoryStateStore(), scope="multi_agent", agent_id="crew")

    return run_async(begun())


def test_agents_are_listed_once_they_joined(crew):
    assert crew.scope == "multi_agent"
    assert crew.agents == []
    writer = crew.agent("writer")
    crew.agent("critic")
    assert crew.agents == ["critic", "writer"]
    assert writer.agent_id == "writer"
    assert list_types(crew.events)[1:] == ["agent.joined", "agent.joined"]
    assert crew.events[1].data == {"agent": "writer"}
    before = capture_state(crew)
    crew.agent("writer")
    assert capture_state(crew) == before
    assert repr(writer).startswith("<SessionAgent writer of <Session ses of crew")


def test_agents_share_one_conversation_and_each_message_names_its_agent(crew):
    writer, critic = crew.agent("writer"), crew.agent("critic")
    crew.add_message("user", "write")
    writer.add_message("assistant", "draft", model="m")
    critic.append_message({"role": "assistant", "content": "no", "agent": "another agent"})
    writer.add_message("assistant", "better")
    assert list_contents(crew) == ["write", "draft", "no", "better"]
    assert [message.get("agent") for message in crew.messages] == [
        None,
        "writer",
        "critic",
        "writer",
    ]
    assert writer.messages == [
        {"role": "assistant", "content": "draft", "model": "m", "agent": "writer"},
        {"role": "assistant", "content": "better", "agent": "writer"},
    ]
    assert list_contents(critic) == ["no"]
    assert crew.message_count == 4


def test_agents_have_their_own_values_and_share_those_of_the_session(crew):
    writer, critic = crew.agent("writer"), crew.agent("critic")
    writer.set("plan", 1)
    critic.set("plan", 2)
    crew.set("plan", 3)
    assert (writer.get("plan"), critic.get("plan"), crew.get("plan")) == (1, 2, 3)
    assert (writer.state, critic.state, crew.state) == ({"plan": 1}, {"plan": 2}, {"plan": 3})
    assert writer.delete("plan") is True
    assert writer.delete("plan") is False
    assert (writer.get("plan"), critic.get("plan"), crew.get("plan")) == (None, 2, 3)
    assert crew.agent("critic").get("plan") == 2


def test_agents_with_similar_names_do_not_share_values(crew):
    names = ["a", "a/b", "state", "agent:a", "ä", "A"]
    for name in names:
        crew.agent(name).set("own", name)
    for name in names:
        assert crew.agent(name).get("own") == name
    assert crew.agents == sorted(names)
    assert crew.state == {}


@pytest.mark.parametrize(
    ("agent_id", "error"), [("", ValueError), (7, TypeError), (None, TypeError)]
)
def test_an_invalid_agent_id_is_rejected(crew, agent_id, error):
    before = capture_state(crew)
    with pytest.raises(error, match="agent_id"):
        crew.agent(agent_id)
    assert capture_state(crew) == before


def test_events_of_an_agent_have_its_id_if_their_data_is_a_dict(crew):
    writer = crew.agent("writer")
    writer.record("tool.called", {"tool": "search"})
    writer.record("tick")
    writer.record("number", 7)
    crew.record("tock")
    assert [event.data for event in crew.events[-4:]] == [
        {"tool": "search", "agent": "writer"},
        {"agent": "writer"},
        7,
        None,
    ]


def test_an_agent_removes_only_its_own_messages(crew):
    writer, critic = crew.agent("writer"), crew.agent("critic")
    for text in "abc":
        writer.add_message("assistant", f"writer {text}")
        critic.add_message("assistant", f"critic {text}")
    assert writer.pop_message()["content"] == "writer c"
    assert list_contents(crew)[-2:] == ["critic b", "critic c"]
    critic.clear_messages()
    assert list_contents(crew) == ["writer a", "writer b"]
    critic.add_message("assistant", "again")
    assert list_contents(crew) == ["writer a", "writer b", "again"]
    assert critic.pop_message()["content"] == "again"
    assert critic.pop_message() is None
    before = capture_state(crew)
    critic.clear_messages()
    assert capture_state(crew) == before


@async_test
async def test_restoring_a_snapshot_restores_all_agents():
    crew = await open_session(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    writer, critic = crew.agent("writer"), crew.agent("critic")
    for part in (writer, critic):
        part.add_message("assistant", f"{part.agent_id} 1")
        part.set("step", 1)
    crew.set("shared", 1)
    saved = await crew.save()
    assert saved.scope == "multi_agent"
    assert saved.state.namespaces == {"state/critic": {"step": 1}, "state/writer": {"step": 1}}
    for part in (writer, critic, crew.agent("late")):
        part.add_message("assistant", "undone")
        part.set("step", 2)
    crew.set("shared", 2)
    await crew.commit()
    assert crew.agents == ["critic", "late", "writer"]
    await crew.restore(saved.snapshot_id)
    assert crew.snapshot().digest == saved.digest
    assert crew.agents == ["critic", "writer"]
    assert (writer.get("step"), critic.get("step"), crew.get("shared")) == (1, 1, 1)
    assert list_contents(crew) == ["writer 1", "critic 1"]
    again = await reopen_session(crew)
    assert again.agents == ["critic", "writer"]
    assert list_contents(again.agent("critic")) == ["critic 1"]
    assert not again.is_dirty


@async_test
async def test_agents_continue_after_a_reload_and_a_rebase():
    store = MemoryStateStore()
    one = await open_session(store, scope="multi_agent", agent_id="crew")
    writer = one.agent("writer")
    await one.commit()
    other = await open_session(store, scope="multi_agent", agent_id="crew")
    critic = other.agent("critic")
    critic.add_message("assistant", "theirs")
    critic.set("step", 2)
    await other.commit()
    writer.add_message("assistant", "mine")
    writer.set("step", 1)
    await one.commit(on_conflict="rebase")
    await other.reload()
    for session in (one, other):
        assert session.agents == ["critic", "writer"]
        assert list_contents(session) == ["theirs", "mine"]
    assert (list_contents(writer), list_contents(critic)) == (["mine"], ["theirs"])
    assert (writer.get("step"), critic.get("step")) == (1, 2)


@pytest.mark.parametrize("how", ["rolled back", "reloaded"])
@async_test
async def test_an_agent_joins_again_after_its_joining_was_rolled_back(how):
    crew = await open_session(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    await crew.commit()
    mark = crew.snapshot()
    writer = crew.agent("writer")
    if how == "rolled back":
        crew.rollback(mark)
    else:
        await crew.reload()
    assert crew.agents == []
    writer.add_message("assistant", "still here")
    assert crew.agents == ["writer"]


@async_test
async def test_a_multi_agent_session_is_listed_under_its_group_id():
    crew = await open_session(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "a")
    await crew.commit()
    catalog = Catalog(crew.state_store)
    assert (await catalog.latest_session("crew")).scope == "multi_agent"
    assert await catalog.locations("ses") == [SnapshotLocation("ses", "multi_agent", "crew")]
    alone = await open_session(crew.state_store, agent_id="crew")
    assert alone.messages == []
    fork = await crew.fork("other")
    assert (fork.scope, fork.agents) == ("multi_agent", ["writer"])


def test_a_blocking_session_has_agents_too():
    crew = BlockingSession.open("memory:", agent_id="crew", session_id="s", scope="multi_agent")
    with crew:
        writer = crew.agent("writer")
        writer.add_message("assistant", "a")
        writer.set("x", 1)
        writer.record("tick")
        assert crew.agents == ["writer"]
        assert list_contents(writer) == list_contents(crew) == ["a"]
        assert crew.events[-1].data == {"agent": "writer"}
        assert repr(writer).startswith("<SessionAgent writer of <BlockingSession s of crew")
    with (
        BlockingSession.open("memory:", agent_id="alone") as alone,
        pytest.raises(ValueError, match="belongs to a single agent"),
    ):
        alone.agent("writer")
