"""The tools, by the client of the SDK."""

from __future__ import annotations

import asyncio
import tracemalloc

import pytest
from mcp import Client

import holdfast
from holdfast.mcp_server import Access, create_server
from holdfast.mcp_server.cursors import encode_cursor
from support.async_tests import async_test
from support.mcp_clients import Agent, connect

HELLO = {"role": "user", "content": "Hello"}
HI = {"role": "assistant", "content": "Hi there"}


@async_test
async def test_checkpoints_on_every_backend(new_state_store):
    async with new_state_store() as store, connect(store) as client:
        agent = Agent(client)
        first = await agent.call(
            "save_checkpoint",
            agent="coder",
            messages=[HELLO],
            values={"plan": ["read", "write"], "draft": "x"},
            status="running",
            tags={"step": "1"},
        )
        assert first["created_session"]
        assert (first["seq"], first["message_count"], first["status"]) == (5, 1, "running")
        session = first["session"]
        second = await agent.call(
            "save_checkpoint",
            agent="coder",
            session=session,
            messages=[HI],
            values={"plan": ["write"]},
            delete_values=["draft", "never existed"],
            expected_seq=first["seq"],
        )
        assert not second["created_session"]
        assert (second["seq"], second["message_count"], second["tags"]) == (8, 2, {})

        listed = await agent.call("list_checkpoints", agent="coder", session=session)
        assert [each["snapshot"] for each in listed["checkpoints"]] == [
            second["snapshot"],
            first["snapshot"],
        ]
        assert (listed["head_seq"], listed["next_cursor"]) == (8, None)

        compared = await agent.call(
            "diff", agent="coder", session=session, from_=first["snapshot"], to="latest"
        )
        assert (compared["added"], compared["removed"], compared["changed"]) == (1, 1, 1)
        assert {each["key"]: (each["before"], each["after"]) for each in compared["entries"]} == {
            "000000000001": (None, '{"role":"assistant","content":"Hi there"}'),
            "draft": ('"x"', None),
            "plan": ('["read","write"]', '["write"]'),
        }

        fork = await agent.call(
            "fork", agent="coder", session=session, at="tag:step=1", new_session="other"
        )
        assert (fork["session"], fork["message_count"], fork["seq"]) == ("other", 1, 1)
        assert fork["origin"]["snapshot"] == first["snapshot"]

        restored = await agent.call(
            "restore", agent="coder", session=session, to=first["snapshot"], expected_seq=8
        )
        assert (restored["seq"], restored["undo_seq"]) == (9, 8)
        assert restored["values"] == {"plan": ["read", "write"], "draft": "x"}
        assert restored["last_messages"] == [HELLO]
        undone = await agent.call("restore", agent="coder", session=session, to=8)
        assert undone["last_messages"] == [HELLO, HI]
        assert undone["values"] == {"plan": ["write"]}

        found = await agent.call("search", agent="coder", query="hi THERE")
        assert found["complete"]
        assert [(each["session"], each["excerpt"]) for each in found["matches"]] == [
            (session, "Hi there")
        ]

    async with new_state_store() as store:  # an ordinary session
        live = await holdfast.Session.open(store, agent_id="coder", session_id=session)
        assert live.messages == [HELLO, HI]
        assert live.get("plan") == ["write"]
        assert (await live.verify()).ok


@async_test
async def test_restores_of_others_are_seen():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        first = await agent.call("save_checkpoint", agent="a", session="s", messages=[HELLO])
        await agent.call("save_checkpoint", agent="a", session="s", messages=[HI])
        live = await holdfast.Session.open(store, agent_id="a", session_id="s")
        await live.restore(first["snapshot"])
        saved = await agent.call("save_checkpoint", agent="a", session="s", messages=[HI, HELLO])
        assert saved["message_count"] == 3


@async_test
async def test_group_of_agents_is_found_by_its_id():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        async with await holdfast.Session.open(
            store, agent_id="team", session_id="s", scope="multi_agent"
        ) as live:
            live.agent("ann").add_message("user", "Hello")
        saved = await agent.call("save_checkpoint", agent="team", session="s", messages=[HI])
        assert saved["message_count"] == 2
        await live.reload()
        assert live.message_count == 2


@async_test
async def test_tools_describe_themselves():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        hints = {
            name: (
                tool.annotations.read_only_hint,
                tool.annotations.destructive_hint,
                tool.annotations.idempotent_hint,
            )
            for name, tool in tools.items()
        }
        assert hints == {
            "save_checkpoint": (False, False, False),
            "list_checkpoints": (True, False, True),
            "diff": (True, False, True),
            "restore": (False, True, True),
            "fork": (False, False, False),
            "search": (True, False, True),
        }
        for tool in tools.values():
            assert tool.input_schema["type"] == "object"
            assert tool.input_schema["additionalProperties"] is False
            assert "agent" in tool.input_schema["required"]
            assert tool.output_schema["type"] == "object"
        assert "from" in tools["diff"].input_schema["properties"]


@async_test
async def test_values_come_back_as_they_were_given():
    values = {
        "big": 10**30,
        "like a tag": {"$bytes": "x", "": {"$int": 5}},
        "odd": ["\x00", 1.5, -0.0, None, True, {}, []],
        "": "empty name",
    }
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        saved = await agent.call("save_checkpoint", agent="a", session="s", values=values)
        restored = await agent.call("restore", agent="a", session="s", to="latest")
        assert restored["values"] == values
        assert (await agent.read(saved["uri"]))["values"] == values
        live = await holdfast.Session.open(store, agent_id="a", session_id="s")
        assert live.state == values
        live.set("bytes", b"\x00\xff")
        live.set("keys", {1: {(2, 3)}})
        await live.commit()
        page = await agent.call("diff", agent="a", session="s", from_=saved["snapshot"])
        assert page["entries"][0]["after"] == '{"$bytes":"AP8="}'
        assert page["added"] == 2
        assert (await agent.call("search", agent="a", query="AP8="))["matches"]


@async_test
async def test_instructions_name_the_agents_of_a_restricted_server():
    async with holdfast.open_state_store("memory:") as store:
        access = Access(agents=frozenset(["ann", "bob"]))
        async with Client(create_server(store, access), mode="legacy") as client:
            assert client.instructions.endswith("The agent is ann or bob.")


# ------------------------------------------------------------------------------------------ pages


@async_test
async def test_pages_of_checkpoints_are_complete_and_in_order(monkeypatch):
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        saved = {}
        for session in ("one", "two", "three"):
            saved[session] = [
                (
                    await agent.call(
                        "save_checkpoint", agent="a", session=session, tags={"odd": str(n % 2)}
                    )
                )["snapshot"]
                for n in range(4)
            ]

        async def read_all(**arguments):
            found, cursor, pages = [], None, 0
            while True:
                page = await agent.call("list_checkpoints", agent="a", cursor=cursor, **arguments)
                assert len(page["checkpoints"]) <= arguments["limit"]
                found += page["checkpoints"]
                cursor, pages = page["next_cursor"], pages + 1
                if cursor is None:
                    return [each["snapshot"] for each in found], pages

        wanted = [each for name in ("three", "two", "one") for each in reversed(saved[name])]
        for limit in (1, 3, 4, 5, 12, 100):
            found, _ = await read_all(limit=limit)
            assert found == wanted
        assert await read_all(limit=3, session="two") == (saved["two"][::-1], 2)
        odd, _ = await read_all(limit=2, tags={"odd": "1"})
        tagged = {each for ids in saved.values() for each in ids[1::2]}
        assert odd == [each for each in wanted if each in tagged]
        monkeypatch.setattr("holdfast.mcp_server.listing.MAX_SESSIONS", 1)
        assert await read_all(limit=100) == (wanted, 3)
        monkeypatch.setattr("holdfast.mcp_server.listing.MAX_RECORDS", 2)
        assert (await read_all(limit=100))[0] == wanted
        assert (await read_all(limit=2, tags={"odd": "1"}))[0] == odd


@async_test
async def test_cursor_of_another_list_is_refused():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        for session in ("one", "two"):
            for _ in range(3):
                await agent.call("save_checkpoint", agent="a", session=session, messages=[HELLO])
        page = await agent.call("list_checkpoints", agent="a", session="one", limit=1)
        cursor = page["next_cursor"]
        error = await agent.fail("list_checkpoints", agent="a", session="two", cursor=cursor)
        assert error.startswith("invalid cursor ")
        for tool, more in (
            ("list_checkpoints", {}),
            ("search", {"query": "x"}),
            ("diff", {"session": "one", "from_": 1}),
        ):
            for invalid in (
                "",
                "%",
                "bnVsbA",
                "x" * 2000,
                encode_cursor(["s", "agent", None, "no token"]),
                encode_cursor(["s", "no scope", "name", None]),
                encode_cursor([None, "agent", "", "", "no token"]),
                encode_cursor(["s", "no scope", "", "", None]),
            ):
                error = await agent.fail(tool, agent="a", cursor=invalid, **more)
                assert "invalid cursor" in error, (tool, invalid)


@async_test
async def test_long_diffs_have_pages_and_short_texts():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        await agent.call("save_checkpoint", agent="a", session="s")
        values = {f"value {n:02}": "x" * 5000 for n in range(30)}
        await agent.call("save_checkpoint", agent="a", session="s", values=values)
        keys, cursor = [], None
        while True:
            page = await agent.call("diff", agent="a", session="s", from_=1, cursor=cursor)
            assert page["added"] == 30
            assert sum(len(each["after"]) for each in page["entries"]) < 25_000
            keys += [each["key"] for each in page["entries"]]
            cursor = page["next_cursor"]
            if cursor is None:
                break
        assert keys == sorted(values)
        assert page["entries"][0]["after"].endswith("… (3002 more characters)")


@async_test
async def test_diff_of_two_sessions():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        await agent.call("save_checkpoint", agent="a", session="s", values={"n": 1})
        await agent.call("save_checkpoint", agent="b", session="t", values={"n": 2})
        page = await agent.call(
            "diff", agent="a", session="s", from_="head", to_agent="b", to_session="t"
        )
        assert [(each["before"], each["after"]) for each in page["entries"]] == [("1", "2")]
        assert page["to"]["session"] == "t"


# ----------------------------------------------------------------------------------------- search


@async_test
async def test_search_continues_where_it_stopped(monkeypatch):
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        for session in ("one", "two", "three"):
            messages = [{"role": "user", "content": [{"text": f"a Fish, {n}"}]} for n in range(3)]
            await agent.call(
                "save_checkpoint",
                agent="a",
                session=session,
                messages=messages,
                values={"note": {"deep": ["fish"]}, "other": 5},
            )
        wanted = [
            (session, path)
            for session in ("three", "two", "one")
            for path in ["content[0].text"] * 3 + ["deep[0]"]
        ]

        async def search_all(**arguments):
            found, cursor, pages = [], None, 0
            while True:
                page = await agent.call("search", agent="a", cursor=cursor, **arguments)
                found += [(each["session"], each["path"]) for each in page["matches"]]
                cursor, pages = page["next_cursor"], pages + 1
                assert page["complete"] == (cursor is None) == (page["stopped"] is None)
                if cursor is None:
                    return found, pages

        for limit in (1, 2, 3, 4, 5, 100):
            assert (await search_all(query="FISH", limit=limit))[0] == wanted
        assert await search_all(query="fish", session="two", limit=3) == (wanted[4:8], 2)
        assert await search_all(query="a.f") == ([], 1)
        monkeypatch.setattr("holdfast.mcp_server.search.MAX_SESSIONS", 1)
        assert await search_all(query="fish") == (wanted, 3)
        monkeypatch.setattr("holdfast.mcp_server.search.MAX_CHARACTERS", 15)
        assert (await search_all(query="fish"))[0] == wanted
        page = await agent.call("search", agent="a", query="fish")
        assert page["stopped"] == "15 characters were searched"


@async_test
async def test_search_of_one_session_does_not_continue_in_another():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        for session in ("one", "two"):
            await agent.call("save_checkpoint", agent="a", session=session, messages=[HELLO] * 3)
        page = await agent.call("search", agent="a", query="hello", session="one", limit=1)
        error = await agent.fail(
            "search", agent="a", query="hello", session="two", cursor=page["next_cursor"]
        )
        assert error.startswith("invalid cursor ")


@async_test
async def test_matches_are_excerpts():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        text = "x" * 500 + "needle" + "y" * 500
        await agent.call("save_checkpoint", agent="a", session="s", values={"big": text})
        (match,) = (await agent.call("search", agent="a", query="needle"))["matches"]
        assert match["excerpt"] == f"…{'x' * 80}needle{'y' * 80}…"
        assert (match["namespace"], match["key"], match["message_number"]) == ("state", "big", None)


@async_test
async def test_paths_of_matches_are_short():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        value = {"k" * 100_000: {str(n): ["needle"] for n in range(200)}}
        await agent.call("save_checkpoint", agent="a", session="s", values={"v": value})
        tracemalloc.start()
        try:
            (match,) = (await agent.call("search", agent="a", query="needle"))["matches"]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert match["path"] == f"…{'k' * 198}.0[0]"
        assert peak < 10_000_000


@async_test
async def test_lists_of_long_ids_and_tags_have_pages():
    agent_id, tags = "\N{GRINNING FACE}" * 256, {"t" * 1000: "v" * 1000}
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        saved = []
        for n in range(14):
            session = f"{n:02}" + "\N{GRINNING FACE}" * 254
            made = await agent.call("save_checkpoint", agent=agent_id, session=session, tags=tags)
            saved.append(made["snapshot"])
        assert (await agent.read(made["uri"]))["session_id"] == session
        for limit in (5, 100):
            found, cursor = [], None
            while cursor is not None or not found:
                page = await agent.call(
                    "list_checkpoints", agent=agent_id, limit=limit, cursor=cursor
                )
                assert len(page["checkpoints"]) <= 10  # about 20,000 characters
                found += [each["snapshot"] for each in page["checkpoints"]]
                cursor = page["next_cursor"]
            assert found == saved[::-1]


# ----------------------------------------------------------------------------- concurrent writers


@async_test
async def test_concurrent_clients_lose_nothing(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    async with (
        holdfast.open_state_store(url) as one,
        holdfast.open_state_store(url) as two,
        connect(one) as first,
        connect(two) as second,
    ):

        async def save_many(agent, name):
            for n in range(20):
                await agent.call(
                    "save_checkpoint",
                    agent="a",
                    session="s",
                    messages=[{"role": name, "content": n}],
                    values={"last": name, name: n},
                )

        await asyncio.gather(save_many(Agent(first), "one"), save_many(Agent(second), "two"))
        live = await holdfast.Session.open(one, agent_id="a", session_id="s")
        for name in ("one", "two"):
            mine = [each["content"] for each in live.messages if each["role"] == name]
            assert mine == list(range(20))
            assert live.get(name) == 19
        listed = await Agent(first).call("list_checkpoints", agent="a", session="s", limit=100)
        assert len(listed["checkpoints"]) == 40


@async_test
async def test_only_one_of_two_writers_that_expect_the_same_head_succeeds(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    async with (
        holdfast.open_state_store(url) as one,
        holdfast.open_state_store(url) as two,
        connect(one) as first,
        connect(two) as second,
    ):
        head = (await Agent(first).call("save_checkpoint", agent="a", session="s"))["seq"]
        for n in range(10):
            results = await asyncio.gather(
                *(
                    client.call_tool(
                        "save_checkpoint",
                        {
                            "agent": "a",
                            "session": "s",
                            "values": {"winner": f"{name} {n}"},
                            "expected_seq": head,
                        },
                    )
                    for name, client in (("one", first), ("two", second))
                )
            )
            (won,) = [each.structured_content for each in results if not each.is_error]
            (lost,) = [each.content[0].text for each in results if each.is_error]
            head = won["seq"]
            assert f"it is at seq {head}" in lost
            assert f"retry with expected_seq {head}" in lost


def test_server_needs_a_store():
    with pytest.raises(TypeError, match="state_store must be a StateStore"):
        create_server("sqlite:///state.db")
