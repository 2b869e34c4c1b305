"""``holdfast state list``."""

from __future__ import annotations

import asyncio
import json

import pytest
from rich.cells import cell_len

import holdfast

CALL = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}


def read_column(text: str, number: int = 0) -> list[str]:
    return [line.split()[number] for line in text.splitlines()]


def list_items(run, *arguments: str) -> list[dict]:
    return json.loads(run("state", "list", *arguments, "--format", "json").out)["items"]


def write_session(agent: str, session: str, *, status="running", tags=None, message=None) -> None:
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
def various_sessions(sample):
    """Write sessions of every kind, in order of activity."""
    write_session("ann", "ses_failed", status="failed", tags={"env": "x", "team": "a"})
    write_session("bob", "ses_done", status="completed", tags={"env": "x"})
    write_session("research-bot", "ses_open", message={"tool_calls": [CALL]})


def test_list_sessions_newest_first(run, sample):
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


def test_list_sessions_of_an_agent(run, sample):
    for arguments in (["research-bot"], ["--agent", "research-bot"]):
        ran = run("state", "list", *arguments)
        assert read_column(ran.out) == ["session_id", "ses_1"]
    (item,) = list_items(run, "ann")
    assert (item["agent_id"], item["session_id"], item["scope"]) == ("ann", "ses_shared", "agent")


def test_list_agents(run, sample):
    ran = run("state", "list", "--agents")
    assert read_column(ran.out) == ["agent_id", "ann", "bob", "research-bot"]
    assert read_column(ran.out, 1) == ["latest_session", "ses_shared", "ses_shared", "ses_1"]
    assert [item["agent_id"] for item in list_items(run, "--agents")] == [
        "ann",
        "bob",
        "research-bot",
    ]
    run("state", "list", "--agents", "--status", "failed").assert_usage_error("--agents")
    run("state", "list", "ann", "--agents").assert_usage_error("--agents")


def test_filters_are_combined(run, various_sessions):
    def names(*arguments: str) -> list[str]:
        return [item["session_id"] for item in list_items(run, *arguments)]

    assert names("--status", "failed") == ["ses_failed"]
    assert names("--status", "failed", "--status", "completed") == ["ses_done", "ses_failed"]
    assert names("--tag", "env=x") == ["ses_done", "ses_failed"]
    assert names("--tag", "env=x", "--tag", "team=a") == ["ses_failed"]
    assert names("--tag", "env=x", "bob") == ["ses_done"]
    assert names("--unfinished") == ["ses_open"]
    assert names("--since", "1h", "--limit", "3") == ["ses_open", "ses_done", "ses_failed"]
    assert names("--since", "2999-01-01") == []
    (failed,) = list_items(run, "--status", "failed")
    assert names("--since", failed["active_at"]) == ["ses_open", "ses_done", "ses_failed"]
    ran = run("state", "list", "--unfinished")
    assert ran.out.splitlines()[1].split()[:3] == ["research-bot", "ses_open", "running"]
    assert run("state", "list", "--tag", "env=none").out == "no matches\n"


def test_invalid_filter_is_wrong_usage(run, sample):
    run("state", "list", "--status", "done").assert_usage_error("--status", "completed")
    run("state", "list", "--tag", "env").assert_usage_error("--tag", "K=V")
    run("state", "list", "--since", "soon").assert_usage_error("--since", "2h")


def test_list_snapshots_of_a_session(run, sample, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    ran = run("state", "list", "--session", "ses_1")
    head, *ids = read_column(ran.out)
    assert head == "snapshot_id"
    assert len(ids) >= 2
    assert sample.first.startswith(ids[0])
    assert ran.out.splitlines()[1].endswith("turn=1, odd=[bold]loud[/] :bug: \\x1b[2J\\")
    found = list_items(run, "--session", "ses_1")
    assert [item["messages"] for item in found] == [1, 2]
    assert found[1]["tags"] == {"turn": "2"}
    assert [item["snapshot_id"] for item in found] == [sample.first, sample.second]
    assert {item["agent_id"] for item in found} == {"research-bot"}


def test_filter_snapshots_of_a_session(run, sample):
    def ids(*arguments: str) -> list[str]:
        found = list_items(run, "--session", "ses_1", *arguments)
        return [item["snapshot_id"] for item in found]

    assert ids("--tag", "turn=2") == [sample.second]
    assert ids("--status", "running") == [sample.first, sample.second]
    assert ids("--status", "failed") == []
    assert ids("--unfinished") == []
    assert ids("--since", "1d") == [sample.first, sample.second]


def test_snapshot_ids_are_shortened_on_a_narrow_terminal(run, sample, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    short = read_column(run("state", "list", "--session", "ses_1").out)[1]
    assert len(short) < len(sample.first)
    assert sample.first.startswith(short)
    assert not sample.second.startswith(short)
    monkeypatch.setenv("COLUMNS", "160")
    assert read_column(run("state", "list", "--session", "ses_1").out)[1:] == [
        sample.first,
        sample.second,
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 100])
def test_tables_fit_the_terminal(run, various_sessions, monkeypatch, width):
    write_session(
        "an-agent-with-a-long-name/東京", "0199f2aa-11b2-7cc0-9d6d-5a2f6a1e77aa", tags={"a": "b"}
    )
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in ([], ["ann"], ["--agents"], ["--session", "ses_1"], ["--unfinished"]):
        ran = run("state", "list", *arguments)
        assert max(map(cell_len, ran.out.splitlines())) <= width, ran.out
    joined = "".join(run("state", "list").out.split())
    assert "0199f2aa" in joined


def test_shared_session_needs_an_agent(run, sample):
    run("state", "list", "--session", "ses_shared").assert_failed("ann, bob")
    assert run("state", "list", "ann", "--session", "ses_shared").out == "no snapshots\n"
    ran = run("state", "list", "--agent", "bob", "--session", "ses_shared", "--format", "json")
    assert json.loads(ran.out) == {"items": [], "next_token": None}


def list_pages(run, *arguments: str) -> list[str]:
    found, more = [], []
    while True:
        ran = run("state", "list", *arguments, "--limit", "1", *more)
        lines = ran.out.splitlines()
        if not lines[-1].startswith("more: --after "):
            return found + read_column(ran.out)[1:]
        found += [line.split()[0] for line in lines[1:-1]]
        more = ["--after", lines[-1].removeprefix("more: --after ")]


def test_lists_are_paged(run, sample, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    write_session("ann", "ses_3")
    assert list_pages(run) == ["ann", "bob", "ann", "research-bot"]
    assert list_pages(run, "--agents") == ["ann", "bob", "research-bot"]
    assert list_pages(run, "ann") == ["ses_3", "ses_shared"]
    assert list_pages(run, "--session", "ses_1") == [sample.first, sample.second]


def test_missing_agent_or_session_is_an_error(run, sample):
    run("state", "list", "anne").assert_failed("no agent 'anne'", "ann")
    run("state", "list", "anne", "--status", "failed").assert_failed("no agent 'anne'", "ann")
    run("state", "list", "--session", "ses").assert_failed("no session 'ses'", "ses_1")
    run("state", "list", "--limit", "0").assert_usage_error("--limit")
    run("state", "list", "--after", "x").assert_failed("invalid next_token 'x'")


def test_damaged_session_is_listed_as_unreadable(run, sample):
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
    assert "problem" in list_items(run)[-1]


def test_empty_store(run):
    assert run("state", "list", "--store", "memory:").out == "no sessions\n"


def test_invalid_and_conflicting_agents_are_refused(run, sample):
    run("state", "list", "").assert_failed("agent_id must have 1 to 256")
    run("state", "list", "ann", "--agent", "bob").assert_usage_error("--agent")
    assert run("state", "list", "ann", "--agent", "ann").code == 0


def test_next_page_token_is_quoted_for_the_shell(run, sample):
    for agent in ("a b", "a c"):
        assert run("state", "fork", "ses_1", f"of {agent}").code == 0
        assert run("state", "export", "research-bot", "-o", "x.json").code == 0
        assert run("state", "import", "x.json", "--agent", agent, "--session", "s").code == 0
    ran = run("state", "list", "--agents", "--limit", "1")
    assert ran.out.endswith("more: --after 'a b'\n")
