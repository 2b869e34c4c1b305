"""Whatever a client sends, it gets one clear text, and nothing is written."""

from __future__ import annotations

import pytest
from mcp import MCPError

import holdfast
from holdfast.errors import IntegrityError, StateStoreError
from holdfast.mcp_server import Access
from holdfast.mcp_server.errors import explain_error
from holdfast.mcp_server.server import check_size
from support.async_tests import async_test
from support.mcp_clients import Agent, connect
from support.rest_api import dump_store

SESSION = {"agent": "a", "session": "s"}
NOBODY = {"agent": "nobody", "session": "s"}


def nest(depth):
    """Return lists in lists."""
    value = "x"
    for _ in range(depth):
        value = [value]
    return value


DEEP = nest(200)

CALLS = [
    # Names.
    ("save_checkpoint", {}, "agent: Field required; see the input schema"),
    ("save_checkpoint", {"agent": ""}, "agent: String should have at least 1 character, got ''"),
    ("save_checkpoint", {"agent": 5}, "agent: Input should be a valid string, got 5"),
    ("save_checkpoint", {"agent": "a" * 257}, "agent: String should have at most 256 characters"),
    ("save_checkpoint", {"agent": "\ud800"}, "arguments have a lone surrogate; send"),
    ("save_checkpoint", SESSION | {"tag": {}}, "tag: Extra inputs are not permitted"),
    ("restore", SESSION, "to: Field required"),
    ("restore", NOBODY | {"to": 1}, "no agent 'nobody' in this store; there are a"),
    ("restore", {"agent": "a", "session": "x", "to": 1}, "agent a has no session 'x'; there are s"),
    ("fork", NOBODY, "no agent 'nobody' in this store"),
    ("diff", NOBODY | {"from": 1}, "no agent 'nobody' in this store"),
    ("diff", SESSION | {"from": 1, "to_session": "x"}, "agent a has no session 'x'"),
    ("search", {"agent": "nobody", "query": "x"}, "no agent 'nobody' in this store"),
    ("list_checkpoints", {"agent": "nobody"}, "no agent 'nobody' in this store"),
    # References.
    ("restore", SESSION | {"to": 99}, "99"),
    ("restore", SESSION | {"to": "0"}, "invalid event number 0; events are counted from 1"),
    ("restore", SESSION | {"to": -1}, "has no checkpoint -1; call list_checkpoints"),
    ("restore", SESSION | {"to": "head"}, "'head' is the current state already; restore to"),
    ("restore", SESSION | {"to": "../x"}, "invalid reference '../x'; use a snapshot id"),
    ("restore", SESSION | {"to": "tag:x"}, "invalid tag 'x'; write tag:NAME=VALUE"),
    ("restore", SESSION | {"to": "tag:x=1"}, "has no checkpoint 'tag:x=1'; call list_checkpoints"),
    ("restore", SESSION | {"to": "019a-no"}, "has no checkpoint '019a-no'; call list_checkpoints"),
    ("restore", SESSION | {"to": 10**30}, "has no checkpoint"),
    ("restore", SESSION | {"to": ["x"]}, "to"),
    ("fork", SESSION | {"at": "nope"}, "has no checkpoint 'nope'"),
    ("fork", SESSION | {"new_session": "s"}, "session s of a already exists"),
    ("diff", SESSION | {"from": "x y"}, "invalid reference 'x y'"),
    # Types and limits.
    ("save_checkpoint", SESSION | {"messages": "hi"}, "messages: Input should be a valid list"),
    ("save_checkpoint", SESSION | {"messages": ["hi"]}, "messages.0: Input should be a valid dict"),
    ("save_checkpoint", SESSION | {"values": [1]}, "values: Input should be a valid dictionary"),
    ("save_checkpoint", SESSION | {"tags": {"a": 1}}, "tags.a: Input should be a valid string"),
    ("save_checkpoint", SESSION | {"status": "busy"}, "status: Input should be 'pending', "),
    ("save_checkpoint", SESSION | {"expected_seq": -1}, "expected_seq: Input should be greater"),
    ("save_checkpoint", SESSION | {"messages": [{}] * 1001}, "messages: List should have at most"),
    (
        "save_checkpoint",
        SESSION | {"values": {"big": "x" * (1 << 20)}},
        "and the limit is 1,048,576",
    ),
    ("save_checkpoint", SESSION | {"values": {"deep": DEEP}}, "nest"),
    ("search", {"agent": "a", "query": ""}, "query: String should have at least 1 character"),
    ("search", {"agent": "a", "query": "x" * 201}, "query: String should have at most 200"),
    ("search", {"agent": "a", "query": "x", "limit": 0}, "limit: Input should be greater than"),
    ("list_checkpoints", {"agent": "a", "limit": 1000}, "limit: Input should be less than"),
    ("list_checkpoints", {"agent": "a", "limit": "many"}, "limit: Input should be a valid integer"),
    # Heads.
    ("save_checkpoint", SESSION | {"expected_seq": 1}, "session s of a changed: it is at seq 2"),
    ("save_checkpoint", SESSION | {"expected_seq": 0}, "session s of a changed: it is at seq 2"),
    ("restore", SESSION | {"to": 1, "expected_seq": 7}, "retry with expected_seq 2"),
    (
        "save_checkpoint",
        {"agent": "a", "session": "new", "expected_seq": 3},
        "session new of a does not exist, and expected_seq is 3; check the ids",
    ),
]


@async_test
async def test_every_invalid_call_is_one_clear_text_and_writes_nothing():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        await agent.call("save_checkpoint", **SESSION, values={"n": 1})
        before = await dump_store(store)
        for tool, arguments, wanted in CALLS:
            error = await agent.fail(tool, **arguments)
            assert wanted in error, (tool, arguments, error)
            assert len(error) < 1600
            assert "; " in error, error  # the remedy
        assert await dump_store(store) == before


@async_test
async def test_unknown_tools_and_resources_are_protocol_errors():
    async with holdfast.open_state_store("memory:") as store, connect(store) as client:
        agent = Agent(client)
        await agent.call("save_checkpoint", **SESSION)
        with pytest.raises(MCPError, match="no tool 'delete_all'; use one of save_checkpoint"):
            await client.call_tool("delete_all", {})
        for uri in (
            "holdfast://agents/a/sessions/x",
            "holdfast://agents/x",
            "holdfast://agents/a/sessions/s/snapshots/nope",
            "holdfast://agents/a/sessions/s/snapshots/a%2Fb",
            "holdfast://agents",
            "holdfast://agents//sessions/s",
            "holdfast://agents/a/sessions/%ff",
            "holdfast://agents/a/sessions/s?before=x",
            "holdfast://agents/a/sessions/s?before=-1",
            "holdfast://agents/a/sessions/s?after=1",
            "holdfast://agents/a/sessions/s/events/1",
            "holdfast://agents/a/" + "x" * 9000,
            "holdfast://[agents/a",
            "file:///etc/passwd",
            "",
        ):
            with pytest.raises(MCPError) as caught:
                await client.read_resource(uri)
            assert caught.value.code == -32602
            assert "; " in caught.value.message
            assert "internal error" not in caught.value.message
            assert len(caught.value.message) < 1600
        with pytest.raises(MCPError, match="invalid cursor 'nope'"):
            await client.list_resources(cursor="nope")


@async_test
async def test_read_only_access_lists_and_allows_only_what_reads():
    async with holdfast.open_state_store("memory:") as store:
        async with connect(store) as client:
            saved = await Agent(client).call("save_checkpoint", **SESSION, values={"n": 1})
        before = await dump_store(store)
        async with connect(store, Access(can_write=False)) as client:
            agent = Agent(client)
            names = [tool.name for tool in (await client.list_tools()).tools]
            assert names == ["list_checkpoints", "diff", "search"]
            for tool, more in (
                ("save_checkpoint", {}),
                ("restore", {"to": 1}),
                ("fork", {}),
            ):
                error = await agent.fail(tool, **SESSION, **more)
                assert error == (
                    f"{tool} is not allowed: the server is read-only; start it without --read-only"
                )
            assert (await agent.call("list_checkpoints", **SESSION))["checkpoints"]
            assert (await agent.call("diff", **SESSION, from_=1))["added"] == 1
            assert (await agent.read(saved["uri"]))["values"] == {"n": 1}
        assert await dump_store(store) == before


@async_test
async def test_other_agents_are_not_reachable_and_not_named():
    async with holdfast.open_state_store("memory:") as store:
        async with connect(store) as client:
            for name in ("ann", "bob"):
                await Agent(client).call("save_checkpoint", agent=name, session=f"{name}'s")
        async with connect(store, Access(agents=frozenset(["ann"]))) as client:
            agent = Agent(client)
            bob = {"agent": "bob", "session": "bob's"}
            for tool, arguments in (
                ("save_checkpoint", bob),
                ("list_checkpoints", bob),
                ("list_checkpoints", {"agent": "nobody"}),
                ("diff", bob | {"from": 1}),
                ("diff", {"agent": "ann", "session": "ann's", "from": 1, "to_agent": "bob"}),
                ("restore", bob | {"to": 1}),
                ("fork", bob),
                ("fork", {"agent": "ann", "session": "ann's", "new_agent": "bob"}),
                ("search", {"agent": "bob", "query": "x"}),
            ):
                error = await agent.fail(tool, **arguments)
                assert error.startswith("this server does not cover agent '")
                assert error.endswith("'; use ann")
            error = await agent.fail("restore", agent="ann", session="bob's", to=1)
            assert (
                error
                == "agent 'ann' has no session \"bob's\"; call list_checkpoints to see what exists"
            )
            listed = (await client.list_resources()).resources
            assert [each.name for each in listed] == ["ann/ann's"]
            with pytest.raises(MCPError, match="does not cover agent 'bob'"):
                await client.read_resource("holdfast://agents/bob/sessions/bob's")


@async_test
async def test_a_server_for_no_agents_says_so():
    nobody = Access(agents=frozenset())
    async with holdfast.open_state_store("memory:") as store, connect(store, nobody) as client:
        error = await Agent(client).fail("save_checkpoint", **SESSION)
        assert error == "this server does not cover agent 'a'; use another token"


class BrokenStore(type(holdfast.open_state_store("memory:"))):
    """A store that fails."""

    error = StateStoreError("the disk is on fire")

    async def get_many(self, keys):
        raise self.error

    async def get(self, key):
        raise self.error


@async_test
async def test_failures_of_the_store_are_explained(caplog):
    store = BrokenStore()
    async with connect(store) as client:
        agent = Agent(client)
        for error, wanted in (
            (StateStoreError("no route"), "no route; ask the operator to run holdfast doctor"),
            (StateStoreError("x", transient=True), "x; nothing was written; retry later"),
            (StateStoreError("x", unknown=True), "x; it may have been written; call list_check"),
            (IntegrityError("damaged"), "damaged; ask the operator to run holdfast state verify"),
            (RuntimeError("secret"), "internal error (RuntimeError); see the server's log"),
        ):
            store.error = error
            assert (await agent.fail("save_checkpoint", **SESSION)).startswith(wanted)
    assert "secret" in caplog.text  # only in the log


def test_texts_of_errors_are_bounded():
    assert len(explain_error(ValueError("x " * 5000))) < 1600
    assert explain_error(ValueError("\ud800\n\nb")) == "\\ud800 b"


def test_arguments_that_no_client_of_the_sdk_sends_are_refused():
    with pytest.raises(ValueError, match="nested too deeply; send flatter data"):
        check_size({"values": nest(100_000)})
