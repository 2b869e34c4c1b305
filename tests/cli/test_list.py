"""``holdfast state list``."""

from __future__ import annotations

import asyncio
import json

import pytest
from rich.cells import cell_len

import holdfast

CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def column(text: str, number: int = 0) -> list[str]:
    return [line.split()[number] for line in text.splitlines()]


def items(run, *arguments: str) -> list[dict]:
    return json.loads(run("state", "list", *arguments, "--format", "json").out)["items"]


def write(agent: str, session: str, *, status="running", tags=None, message=None) -> None:
    async def act() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id=agent, session_id=session) as opened,
        ):
            opened.status = status
            opened.set("x", 1)
            if message is not None:
                opened.add_message("assistant", None, **message)
            if tags is not None:
                await opened.save(tags=tags)

    asyncio.run(act())


@pytest.fixture
def various(world):
    """Sessions of every kind; the later ones were active later."""
    write("ann", "ses_failed", status="failed", tags={"env": "x", "team": "a"})
    write("bob", "ses_done", status="completed", tags={"env": "x"})
    write("research-bot", "ses_open", message={"tool_calls": [CALL]})


def test_the_sessions_of_all_agents_are_listed_newest_first(run, world):
    ran = run("state", "list")
    assert (ran.code, ran.err) == (0, "")
    head, *rows = ran.out.splitlines()
    assert head.split() == [
        "agent_id",
        "session_id",
        "status",
        "last",
        "activity",
        "messages",
        "size",
    ]
    assert [row.split()[:3] for row in rows] == [
        ["bob", "ses_shared", "pending"],
        ["ann", "ses_shared", "pending"],
        ["research-bot", "ses_1", "running"],
    ]
    found = json.loads(run("state", "list", "--format", "json").out)
    assert [item["agent_id"] for item in found["items"]] == ["bob", "ann", "research-bot"]
    assert found["next_token"] is None
    last = found["items"][-1]
    assert (last["messages"], last["events"], last["tags"]) == (2, 10, {"turn": "2"})
    assert last["size_bytes"] > 100
    assert last["active_at"] > last["started_at"]


def test_the_sessions_of_an_agent_are_listed(run, world):
    for arguments in (["research-bot"], ["--agent", "research-bot"]):
        ran = run("state", "list", *arguments)
        assert column(ran.out) == ["session_id", "ses_1"]
    (item,) = items(run, "ann")
    assert (item["agent_id"], item["session_id"], item["scope"]) == ("ann", "ses_shared", "agent")


def test_agents_are_listed_when_that_is_asked_for(run, world):
    ran = run("state", "list", "--agents")
    assert column(ran.out) == ["agent_id", "ann", "bob", "research-bot"]
    assert column(ran.out, 1) == ["latest_session", "ses_shared", "ses_shared", "ses_1"]
    assert [item["agent_id"] for item in items(run, "--agents")] == ["ann", "bob", "research-bot"]
    run("state", "list", "--agents", "--status", "failed").misused("--agents")
    run("state", "list", "ann", "--agents").misused("--agents")


def test_filters_must_all_hold(run, various):
    def names(*arguments: str) -> list[str]:
        return [item["session_id"] for item in items(run, *arguments)]

    assert names("--status", "failed") == ["ses_failed"]
    assert names("--status", "failed", "--status", "completed") == ["ses_done", "ses_failed"]
    assert names("--tag", "env=x") == ["ses_done", "ses_failed"]
    assert names("--tag", "env=x", "--tag", "team=a") == ["ses_failed"]
    assert names("--tag", "env=x", "bob") == ["ses_done"]
    assert names("--unfinished") == ["ses_open"]
    assert names("--since", "1h", "--limit", "3") == ["ses_open", "ses_done", "ses_failed"]
    assert names("--since", "2999-01-01") == []
    (failed,) = items(run, "--status", "failed")
    assert names("--since", failed["active_at"]) == ["ses_open", "ses_done", "ses_failed"]
    ran = run("state", "list", "--unfinished")
    assert ran.out.splitlines()[1].split()[:3] == ["research-bot", "ses_open", "running"]
    assert run("state", "list", "--tag", "env=none").out == "nothing matches\n"


def test_a_filter_that_means_nothing_is_wrong_usage(run, world):
    run("state", "list", "--status", "done").misused("--status", "completed")
    run("state", "list", "--tag", "env").misused("--tag", "K=V")
    run("state", "list", "--since", "soon").misused("--since", "2h")


def test_the_snapshots_of_a_session_are_listed_with_their_tags_as_they_are(run, world, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ran = run("state", "list", "--session", "ses_1")
    head, *ids = column(ran.out)
    assert head == "snapshot_id"
    assert len(ids) >= 2
    assert world.first.startswith(ids[0])
    assert ran.out.splitlines()[1].endswith("turn=1, odd=[bold]loud[/] :bug: \\x1b[2J\\")
    found = items(run, "--session", "ses_1")
    assert [item["messages"] for item in found] == [1, 2]
    assert found[1]["tags"] == {"turn": "2"}
    assert [item["snapshot_id"] for item in found] == [world.first, world.second]
    assert {item["agent_id"] for item in found} == {"research-bot"}


def test_the_snapshots_of_a_session_are_filtered_too(run, world):
    def ids(*arguments: str) -> list[str]:
        found = items(run, "--session", "ses_1", *arguments)
        return [item["snapshot_id"] for item in found]

    assert ids("--tag", "turn=2") == [world.second]
    assert ids("--status", "running") == [world.first, world.second]
    assert ids("--status", "failed") == []
    assert ids("--unfinished") == []
    assert ids("--since", "1d") == [world.first, world.second]


def test_ids_of_snapshots_are_short_where_the_terminal_is_narrow(run, world, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    short = column(run("state", "list", "--session", "ses_1").out)[1]
    assert len(short) < len(world.first)
    assert world.first.startswith(short)
    assert not world.second.startswith(short)
    monkeypatch.setenv("COLUMNS", "160")
    assert column(run("state", "list", "--session", "ses_1").out)[1:] == [
        world.first,
        world.second,
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_every_table_fits_the_terminal(run, various, monkeypatch, width):
    write("an-agent-with-a-long-name/東京", "0199f2aa-11b2-7cc0-9d6d-5a2f6a1e77aa", tags={"a": "b"})
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in ([], ["ann"], ["--agents"], ["--session", "ses_1"], ["--unfinished"]):
        ran = run("state", "list", *arguments)
        assert max(map(cell_len, ran.out.splitlines())) <= width, ran.out
    joined = "".join(run("state", "list").out.split())
    assert "0199f2aa" in joined


def test_a_session_of_several_agents_needs_one_of_them(run, world):
    run("state", "list", "--session", "ses_shared").failed("ann, bob")
    assert run("state", "list", "ann", "--session", "ses_shared").out == "nothing here yet\n"
    ran = run("state", "list", "--agent", "bob", "--session", "ses_shared", "--format", "json")
    assert json.loads(ran.out) == {"items": [], "next_token": None}


def pages(run, *arguments: str) -> list[str]:
    found, more = [], []
    while True:
        ran = run("state", "list", *arguments, "--limit", "1", *more)
        lines = ran.out.splitlines()
        if not lines[-1].startswith("more: --after "):
            return found + column(ran.out)[1:]
        found += [line.split()[0] for line in lines[1:-1]]
        more = ["--after", lines[-1].removeprefix("more: --after ")]


def test_every_list_comes_in_pages(run, world, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    write("ann", "ses_3")
    assert pages(run) == ["ann", "bob", "ann", "research-bot"]
    assert pages(run, "--agents") == ["ann", "bob", "research-bot"]
    assert pages(run, "ann") == ["ses_3", "ses_shared"]
    assert pages(run, "--session", "ses_1") == [world.first, world.second]


def test_what_is_not_there_is_an_error(run, world):
    run("state", "list", "anne").failed("there is no agent 'anne'", "ann")
    run("state", "list", "anne", "--status", "failed").failed("there is no agent 'anne'", "ann")
    run("state", "list", "--session", "ses").failed("there is no session 'ses'", "ses_1")
    run("state", "list", "--limit", "0").misused("--limit")
    run("state", "list", "--after", "x").failed("invalid next_token 'x'")


def test_a_damaged_session_is_listed_and_hides_no_other(run, world):
    async def damage() -> None:
        async with holdfast.open_state_store("sqlite:///state.db") as store:
            async for key in store.list("sessions/ses_1/"):
                if "/log/" in key:
                    await store.put(key, b"{}")

    asyncio.run(damage())
    ran = run("state", "list")
    assert ran.code == 0
    rows = [line.split()[:3] for line in ran.out.splitlines()]
    assert ["research-bot", "ses_1", "unreadable"] in rows
    assert ["ann", "ses_shared", "pending"] in rows
    assert ran.err.startswith("unreadable: ")
    assert "sessions/ses_1/" in ran.err
    assert "problem" in items(run)[-1]


def test_an_empty_store_says_so(run):
    assert run("state", "list", "--store", "memory:").out == "nothing here yet\n"


def test_an_empty_agent_is_none_and_two_are_too_many(run, world):
    run("state", "list", "").failed("agent_id must have 1 to 256")
    run("state", "list", "ann", "--agent", "bob").misused("--agent")
    assert run("state", "list", "ann", "--agent", "ann").code == 0


def test_how_to_go_on_can_be_typed_as_it_is_printed(run, world):
    for agent in ("a b", "a c"):
        assert run("state", "fork", "ses_1", f"of {agent}").code == 0
        assert run("state", "export", "research-bot", "-o", "x.json").code == 0
        assert run("state", "import", "x.json", "--agent", agent, "--session", "s").code == 0
    ran = run("state", "list", "--agents", "--limit", "1")
    assert ran.out.endswith("more: --after 'a b'\n")
