"""A session of several agents: one conversation, each agent's own values, one snapshot for all."""

from __future__ import annotations

import pytest

from holdfast import BlockingSession, Catalog
from holdfast.snapshots import SnapshotLocation
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test, run_async
from support.conversations import contents, everything, opened, reopened, types


@pytest.fixture
def crew():
    """A session of several agents that has just begun."""

    async def begun():
        return await opened(MemoryStateStore(), scope="multi_agent", agent_id="crew")

    return run_async(begun())


def test_who_takes_part_is_known_from_the_beginning(crew):
    assert crew.scope == "multi_agent"
    assert crew.agents == []
    writer = crew.agent("writer")
    crew.agent("critic")
    assert crew.agents == ["critic", "writer"]
    assert writer.agent_id == "writer"
    assert types(crew.events)[1:] == ["agent.joined", "agent.joined"]
    assert crew.events[1].data == {"agent": "writer"}
    before = everything(crew)
    crew.agent("writer")
    assert everything(crew) == before
    assert repr(writer).startswith("<SessionAgent writer of <Session ses of crew")


def test_messages_are_one_conversation_and_each_has_its_agent(crew):
    writer, critic = crew.agent("writer"), crew.agent("critic")
    crew.add_message("user", "write")
    writer.add_message("assistant", "draft", model="m")
    critic.append_message({"role": "assistant", "content": "no", "agent": "somebody else"})
    writer.add_message("assistant", "better")
    assert contents(crew) == ["write", "draft", "no", "better"]
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
    assert contents(critic) == ["no"]
    assert crew.message_count == 4


def test_each_agent_has_values_of_its_own_and_all_share_the_session_s(crew):
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


def test_agents_whose_names_look_alike_do_not_share_values(crew):
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
def test_an_agent_has_a_name(crew, agent_id, error):
    before = everything(crew)
    with pytest.raises(error, match="agent_id"):
        crew.agent(agent_id)
    assert everything(crew) == before


def test_events_are_signed_where_there_is_room_for_a_name(crew):
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


def test_an_agent_takes_back_its_own_messages_alone(crew):
    writer, critic = crew.agent("writer"), crew.agent("critic")
    for text in "abc":
        writer.add_message("assistant", f"writer {text}")
        critic.add_message("assistant", f"critic {text}")
    assert writer.pop_message()["content"] == "writer c"
    assert contents(crew)[-2:] == ["critic b", "critic c"]
    critic.clear_messages()
    assert contents(crew) == ["writer a", "writer b"]
    critic.add_message("assistant", "again")
    assert contents(crew) == ["writer a", "writer b", "again"]
    assert critic.pop_message()["content"] == "again"
    assert critic.pop_message() is None
    before = everything(crew)
    critic.clear_messages()
    assert everything(crew) == before


@async_test
async def test_one_snapshot_holds_all_agents_and_restoring_it_restores_all():
    crew = await opened(MemoryStateStore(), scope="multi_agent", agent_id="crew")
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
    assert contents(crew) == ["writer 1", "critic 1"]
    again = await reopened(crew)
    assert again.agents == ["critic", "writer"]
    assert contents(again.agent("critic")) == ["critic 1"]
    assert not again.is_dirty


@async_test
async def test_the_parts_go_on_after_reloading_and_putting_on_top():
    store = MemoryStateStore()
    one = await opened(store, scope="multi_agent", agent_id="crew")
    writer = one.agent("writer")
    await one.commit()
    other = await opened(store, scope="multi_agent", agent_id="crew")
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
        assert contents(session) == ["theirs", "mine"]
    assert (contents(writer), contents(critic)) == (["mine"], ["theirs"])
    assert (writer.get("step"), critic.get("step")) == (1, 2)


@pytest.mark.parametrize("how", ["rolled back", "reloaded"])
@async_test
async def test_who_goes_on_after_its_joining_was_undone_takes_part(how):
    crew = await opened(MemoryStateStore(), scope="multi_agent", agent_id="crew")
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
async def test_a_session_of_several_is_found_under_their_common_name():
    crew = await opened(MemoryStateStore(), scope="multi_agent", agent_id="crew")
    crew.agent("writer").add_message("assistant", "a")
    await crew.commit()
    catalog = Catalog(crew.state_store)
    assert (await catalog.latest_session("crew")).scope == "multi_agent"
    assert await catalog.locations("ses") == [SnapshotLocation("ses", "multi_agent", "crew")]
    alone = await opened(crew.state_store, agent_id="crew")
    assert alone.messages == []
    fork = await crew.fork("other")
    assert (fork.scope, fork.agents) == ("multi_agent", ["writer"])


def test_the_blocking_twin_has_parts_too():
    crew = BlockingSession.open("memory:", agent_id="crew", session_id="s", scope="multi_agent")
    with crew:
        writer = crew.agent("writer")
        writer.add_message("assistant", "a")
        writer.set("x", 1)
        writer.record("tick")
        assert crew.agents == ["writer"]
        assert contents(writer) == contents(crew) == ["a"]
        assert crew.events[-1].data == {"agent": "writer"}
        assert repr(writer).startswith("<SessionAgent writer of <BlockingSession s of crew")
    with (
        BlockingSession.open("memory:", agent_id="alone") as alone,
        pytest.raises(ValueError, match="belongs to a single agent"),
    ):
        alone.agent("writer")
