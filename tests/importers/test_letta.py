"""Agent files of Letta become one session per agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from holdfast.snapshots.tool_calls import ToolCallIndex
from importers.graphs import check_imports

SAMPLES = Path(__file__).parent / "samples" / "letta"
TEAM = json.loads((SAMPLES / "team.af").read_bytes())
SINGLE = json.loads((SAMPLES / "single.af").read_bytes())


@pytest.fixture
def read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def call(tree, **options):
        (tmp_path / "agents.af").write_text(json.dumps(tree))
        return holdfast.importers.read("agents.af", **options)

    return call


def change_agent(**changes):
    first, *others = TEAM["agents"]
    return {**TEAM, "agents": [{**first, **changes}, *others]}


def test_each_agent_becomes_a_session():
    planner, booker = holdfast.importers.read(str(SAMPLES / "team.af"))
    assert [(each.agent_id, each.session_id) for each in (planner, booker)] == [
        ("planner", "team"),
        ("booker", "team"),
    ]
    assert planner.tags == {"format": "letta"}
    for document, agent in zip((planner, booker), TEAM["agents"], strict=True):
        assert document.state.messages == agent["messages"]
        times = [each.at.isoformat() for each in document.events if each.type == "message.appended"]
        assert [each[:19] for each in times] == [
            each["created_at"][:19] for each in agent["messages"]
        ]
    assert planner.state.status == "pending"
    assert booker.state.status == "waiting"
    check_imports(planner, booker)


def test_memory_prompt_model_and_tools_are_values():
    planner, booker = holdfast.importers.read(str(SAMPLES / "team.af"))
    assert planner.state.values == {
        "system": "You plan trips.",
        "model": "openai/gpt-4o-mini",
        "memory": {"persona": "I am Sam.", "human": "Ada, lives in Oslo."},
        "tools": TEAM["tools"][:1],
    }
    assert booker.state.values["memory"] == {"persona": "I am Kim.", "human": "Ada, lives in Oslo."}
    assert booker.state.values["model"] == "claude-opus-4-5"
    assert booker.state.values["tools"] == TEAM["tools"][1:]


def test_nothing_else_of_the_file_is_dropped():
    documents = holdfast.importers.read(str(SAMPLES / "team.af"))
    for document, agent in zip(documents, TEAM["agents"], strict=True):
        own = document.state.namespaces["letta"]
        settings = {key: agent[key] for key in agent if key not in ("messages", "system")}
        assert own["agent"] == settings
        assert [each["id"] for each in own["blocks"]] == agent["block_ids"]
        for name in ("groups", "files", "sources", "mcp_servers"):
            assert own[name] == TEAM[name]
        assert own["file"] == {name: TEAM[name] for name in ("metadata", "created_at")}


def test_parallel_tool_returns_finish_their_calls():
    planner, booker = holdfast.importers.read(str(SAMPLES / "team.af"))
    assert ToolCallIndex().unfinished(planner.state.snapshot) == []
    called = [step.after for step in holdfast.replay(planner)][3]
    assert [each.call_id for each in ToolCallIndex().unfinished(called)] == ["call_a", "call_b"]
    assert [each.tool for each in ToolCallIndex().unfinished(booker.state.snapshot)] == ["book"]


def test_a_file_with_a_single_agent_is_read():
    (document,) = holdfast.importers.read(str(SAMPLES / "single.af"))
    assert (document.agent_id, document.session_id) == ("sam", "single")
    assert document.state.messages == SINGLE["messages"]
    assert document.state.values["memory"] == {
        "persona": "I am Sam.",
        "human": "Ada, likes sailing.",
    }
    assert document.state.values["tools"] == SINGLE["tools"]
    own = document.state.namespaces["letta"]
    assert own["blocks"] == SINGLE["core_memory"]
    assert own["agent"]["in_context_message_indices"] == [0, 2, 3]
    assert own["agent"]["version"] == "0.6.47"
    assert ToolCallIndex().unfinished(document.state.snapshot) == []
    check_imports(document)


def test_what_no_agent_refers_to_is_in_every_session(read):
    free = {"id": "block-9", "label": "free", "value": "x"}
    planner, booker = read({**TEAM, "blocks": [*TEAM["blocks"], free]})
    assert planner.state.values["memory"]["free"] == "x"
    assert booker.state.values["memory"]["free"] == "x"


def test_agents_with_the_same_name_are_called_by_their_ids(read):
    documents = read(change_agent(name="booker"))
    assert [each.agent_id for each in documents] == ["agent-0", "agent-1"]
    check_imports(*documents)
    with pytest.raises(InvalidDocumentError, match="two agents named 'agent-1'"):
        read(change_agent(name="booker", id="agent-1"))


def test_ids_can_be_given(read):
    planner, booker = read(TEAM, session_id="trip")
    assert (planner.session_id, booker.session_id) == ("trip", "trip")
    with pytest.raises(InvalidDocumentError, match="has 2 agents.*omit --agent"):
        read(TEAM, agent_id="one")
    (document,) = read({**TEAM, "agents": TEAM["agents"][:1]}, agent_id="one")
    assert document.agent_id == "one"


def test_a_file_without_agents_has_no_sessions(read):
    assert read({**TEAM, "agents": []}) == []


def test_an_agent_without_messages_and_times_is_read(read):
    (document,) = read({"agents": [{"name": "new"}], "blocks": None, "tools": None})
    assert document.state.messages == []
    assert document.state.values == {}
    check_imports(document)


def test_shared_blocks_that_multiply_beyond_the_limit_are_refused(read):
    agents = [{"name": f"a{n}", "block_ids": ["b"]} for n in range(200)]
    tree = {"agents": agents, "blocks": [{"id": "b", "value": "x" * 10_000}], "tools": []}
    assert len(read(tree)) == 200
    with pytest.raises(InvalidDocumentError, match="share blocks and tools whose copies"):
        read(tree, max_bytes=100_000)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({**TEAM, "agents": [5]}, "item 0 of agents of agents.af must be an object"),
        ({**TEAM, "blocks": 5}, "blocks of agents.af must be a list"),
        ({**TEAM, "tools": [None]}, "item 0 of tools of agents.af must be an object"),
        (change_agent(messages=5), "messages of agent 'planner' .*must be a list"),
        (change_agent(messages=[{}]), "item 0 of messages .*not a message with a role"),
        (change_agent(messages=[{"role": "user", "created_at": 5}]), "invalid time"),
        (change_agent(memory_blocks=5), "blocks of planner must be a list"),
        ({**TEAM, "created_at": "soon"}, "invalid time"),
        ({**SINGLE, "core_memory": [1]}, "item 0 of core_memory"),
        ({**SINGLE, "messages": {"role": "x"}}, "messages of agent 'sam' .*must be a list"),
    ],
)
def test_a_wrong_type_is_refused_with_its_place(read, tree, words):
    with pytest.raises(InvalidDocumentError, match=words):
        read(tree)


@pytest.mark.parametrize("tree", [{"songs": []}, [1], {"messages": []}])
def test_another_file_is_not_an_agent_file(read, tree):
    with pytest.raises(InvalidDocumentError, match="not a Letta agent file|must be an object"):
        read(tree, format="letta")
