"""``holdfast state list``."""

from __future__ import annotations

import asyncio
import json

import holdfast


def column(text: str, number: int = 0) -> list[str]:
    return [line.split()[number] for line in text.splitlines()]


def test_agents_are_listed(run, world):
    ran = run("state", "list")
    assert (ran.code, ran.err) == (0, "")
    assert column(ran.out) == ["agent_id", "ann", "bob", "research-bot"]
    assert column(ran.out, 1) == ["latest_session", "ses_shared", "ses_shared", "ses_1"]
    found = json.loads(run("state", "list", "--format", "json").out)
    assert [item["agent_id"] for item in found["items"]] == ["ann", "bob", "research-bot"]
    assert found["next_token"] is None


def test_the_sessions_of_an_agent_are_listed(run, world):
    for arguments in (["research-bot"], ["--agent", "research-bot"]):
        ran = run("state", "list", *arguments)
        assert column(ran.out) == ["session_id", "ses_1"]
    (item,) = json.loads(run("state", "list", "ann", "--format", "json").out)["items"]
    assert (item["session_id"], item["scope"]) == ("ses_shared", "agent")


def test_the_snapshots_of_a_session_are_listed_with_their_tags_as_they_are(run, world):
    ran = run("state", "list", "--session", "ses_1")
    assert column(ran.out) == ["snapshot_id", world.first, world.second]
    assert "turn=1 odd=[bold]loud[/] :bug: \\x1b[2J\\\n" in ran.out
    found = json.loads(run("state", "list", "--session", "ses_1", "--format", "json").out)
    assert [item["messages"] for item in found["items"]] == [1, 2]
    assert found["items"][1]["tags"] == {"turn": "2"}


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


def test_every_list_comes_in_pages(run, world):
    async def another() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id="ann", session_id="ses_3") as session,
        ):
            session.set("x", 1)

    asyncio.run(another())
    assert pages(run) == ["ann", "bob", "research-bot"]
    assert pages(run, "ann") == ["ses_3", "ses_shared"]
    assert pages(run, "--session", "ses_1") == [world.first, world.second]


def test_what_is_not_there_is_an_error(run, world):
    run("state", "list", "anne").failed("there is no agent 'anne'", "ann")
    run("state", "list", "--session", "ses").failed("there is no session 'ses'", "ses_1")
    run("state", "list", "--limit", "0").misused("--limit")


def test_an_empty_store_says_so(run):
    assert run("state", "list", "--store", "memory:").out == "nothing here yet\n"


def test_columns_line_up_under_wide_characters(run, capsys):
    from holdfast.cli.console import print_table

    print_table(["name", "n"], [["東京", 1], ["ab", 2]], "")
    assert capsys.readouterr().out == "name  n\n東京  1\nab    2\n"


def test_an_empty_agent_is_none_and_two_are_too_many(run, world):
    run("state", "list", "").failed("agent_id has 1 to 256")
    run("state", "list", "ann", "--agent", "bob").misused("--agent")
    assert run("state", "list", "ann", "--agent", "ann").code == 0


def test_how_to_go_on_can_be_typed_as_it_is_printed(run, world):
    for agent in ("a b", "a c"):
        assert run("state", "fork", "ses_1", f"of {agent}").code == 0
        assert run("state", "export", "research-bot", "-o", "x.json").code == 0
        assert run("state", "import", "x.json", "--agent", agent, "--session", "s").code == 0
    ran = run("state", "list", "--limit", "1")
    assert ran.out.endswith("more: --after 'a b'\n")
