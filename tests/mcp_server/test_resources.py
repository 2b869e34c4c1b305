"""Sessions and snapshots as resources."""

from __future__ import annotations

import json

import holdfast
from support.async_tests import async_test
from support.mcp_clients import Agent, connect


@async_test
async def test_sessions_and_snapshots_are_resources():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        odd = {"agent": "a/b ü", "session": "s%2F?#"}
        first = await agent.call(
            "save_checkpoint", **odd, messages=[{"role": "user", "content": "1"}], values={"n": 1}
        )
        await agent.call(
            "save_checkpoint", **odd, messages=[{"role": "user", "content": "2"}], tags={"t": "2"}
        )
        (listed,) = (await client.list_resources()).resources
        assert listed.name == "a/b ü/s%2F?#"
        assert listed.uri == "holdfast://agents/a%2Fb%20%C3%BC/sessions/s%252F%3F%23"

        session = await agent.read(listed.uri)
        assert (session["agent_id"], session["session_id"]) == ("a/b ü", "s%2F?#")
        assert (session["seq"], session["status"], session["values"]) == (4, "pending", {"n": 1})
        assert [each["message"]["content"] for each in session["messages"]] == ["1", "2"]
        assert [each["tags"] for each in session["newest_checkpoints"]] == [{"t": "2"}, {}]
        assert session["newest_checkpoints"][1]["uri"] == first["uri"]

        snapshot = await agent.read(first["uri"])
        assert (snapshot["snapshot_id"], snapshot["seq"]) == (first["snapshot"], 3)
        assert [each["message"]["content"] for each in snapshot["messages"]] == ["1"]

        agent_page = await agent.read("holdfast://agents/a%2Fb%20%C3%BC")
        assert [each["uri"] for each in agent_page["sessions"]] == [listed.uri]
        assert not agent_page["truncated"]


@async_test
async def test_templates_name_the_resources():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        templates = (await client.list_resource_templates()).resource_templates
        assert [each.uri_template for each in templates] == [
            "holdfast://agents/{agent}",
            "holdfast://agents/{agent}/sessions/{session}{?before}",
            "holdfast://agents/{agent}/sessions/{session}/snapshots/{snapshot}{?before}",
        ]


@async_test
async def test_long_sessions_are_read_in_parts():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        async with await holdfast.Session.open(store, agent_id="a", session_id="s") as live:
            for number in range(100):
                live.add_message("user", f"{number} " + "x" * 3000)
            live.add_message("user", "x" * 500_000)
            for number in range(100):
                live.set(f"value {number:03}", "y" * 2000)
        numbers, uri = [], "holdfast://agents/a/sessions/s"
        while uri is not None:
            tree = await agent.read(uri)
            assert len(json.dumps(tree)) < 150_000
            numbers = [each["number"] for each in tree["messages"]] + numbers
            uri = tree["earlier"]
        assert numbers == list(range(101))
        assert tree["message_count"] == 101
        assert len(tree["values"]) + tree["values_omitted"] == 100
        assert tree["values_omitted"] > 0


@async_test
async def test_list_of_sessions_has_pages(monkeypatch):
    monkeypatch.setattr("holdfast.mcp_server.resources.PAGE_SIZE", 2)
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        for number in range(5):
            await agent.call("save_checkpoint", agent=f"a{number % 2}", session=f"s{number}")
        names, cursor = [], None
        while True:
            page = await client.list_resources(cursor=cursor)
            names += [each.name for each in page.resources]
            cursor = page.next_cursor
            if cursor is None:
                break
        assert names == ["a0/s4", "a1/s3", "a0/s2", "a1/s1", "a0/s0"]
        tree = await agent.read("holdfast://agents/a0")
        assert [each["session"] for each in tree["sessions"]] == ["s4", "s2"]
        assert tree["truncated"]
