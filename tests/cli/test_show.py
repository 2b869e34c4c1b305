"""``holdfast state show``, also of names that could mean several things."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from rich.cells import cell_len

import holdfast
from cli.conftest import STORE
from holdfast.ids import new_id
from support.sample_documents import with_digest


def rows(text: str) -> dict[str, str]:
    """The rows of the table; what is below it is behind an empty line."""
    head, *lines = text.split("\n\n", maxsplit=1)[0].splitlines()
    assert head.split() == ["Field", "Value"]
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in lines)


def test_the_table_has_exactly_these_rows(run, world, monkeypatch):
    monkeypatch.setenv("HOLDFAST_ENVIRONMENT", "production")
    export = ["--tag", "reason=incident", "--tag", "env=x"]
    assert run("state", "export", "research-bot", *export, "-o", "x.json").code == 0
    ran = run("state", "show", "x.json")
    assert (ran.code, ran.err) == (0, "")
    found = rows(ran.out)
    assert list(found) == [
        "schema_version",
        "agent_id",
        "session_id",
        "status",
        "messages",
        "event_log_count",
        "source_environment",
        "exported_at",
        "tags",
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[0-9:.]+Z", found.pop("exported_at"))
    assert found == {
        "schema_version": "1",
        "agent_id": "research-bot",
        "session_id": "ses_1",
        "status": "running",
        "messages": "2",
        "event_log_count": "10",
        "source_environment": "production",
        "tags": "reason=incident, env=x",
    }


def test_what_is_not_known_is_a_dash(run, document):
    tree = json.loads(document.read_bytes())
    for name in ("source_environment", "exported_at", "tags"):
        del tree[name]
    document.write_text(json.dumps(with_digest(tree)))
    found = rows(run("state", "show", "incident.json").out)
    assert (found["source_environment"], found["exported_at"], found["tags"]) == ("-", "-", "-")


def test_json_is_the_document(run, document):
    ran = run("state", "show", "incident.json", "--format", "json")
    assert json.loads(ran.out) == json.loads(document.read_bytes())


def test_markup_emoji_and_control_codes_in_data_are_shown_as_they_are(run, world):
    ran = run("state", "show", f"ses_1@{world.first}")
    assert rows(ran.out)["tags"] == r"turn=1, odd=[bold]loud[/] :bug: \x1b[2J" + "\\"
    assert r"1  assistant  [bold]loud[/] :bug: \x1b[2J" in run("state", "show", "ses_1").out


def test_a_file_is_shown_without_any_store(run, document, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", "nonsense://")
    assert run("state", "show", "incident.json").code == 0
    document.rename("incident")
    assert run("state", "show", "incident").code == 0


def test_a_session_and_its_snapshots_are_shown_by_their_names(run, world):
    assert rows(run("state", "show", "ses_1").out)["messages"] == "2"
    assert rows(run("state", "show", f"ses_1@{world.first}").out)["messages"] == "1"
    assert rows(run("state", "show", world.first).out)["messages"] == "1"
    assert (
        rows(run("state", "show", world.second, "--agent", "research-bot").out)["messages"] == "2"
    )
    run("state", "show", world.second, "--agent", "ann").failed("no snapshot")


def test_an_agent_is_named_where_several_share_a_session(run, world):
    run("state", "show", "ses_shared").failed("several agents (ann, bob)", "--agent")
    assert rows(run("state", "show", "ses_shared", "--agent", "bob").out)["agent_id"] == "bob"
    run("state", "show", "ses_shared", "--agent", "bab").failed("no agent 'bab'", "bob")
    run("state", "show", "ses_1", "--agent", "ann").failed("no session 'ses_1' of the agent ann")


def test_what_is_not_there_is_an_error(run, world):
    run("state", "show", "ses_i").failed("there is no session 'ses_i'", "ses_1", "state list")
    run("state", "show", new_id()).failed("no session and no snapshot")
    run("state", "show", "nowhere.json").failed("there is no file nowhere.json")
    run("state", "show", "x", "--store", "memory:").failed("the store has none")
    run("state", "show", "x", "--store", "file:nowhere").failed("there is no store file:nowhere")
    run("state", "show", "x", "--store", "what://x").failed("unknown scheme")
    run("state", "show", "x", "--store", "what:x").failed("no '//' before the host")
    run("state", "show", "x\ny", "--store", "memory:").failed()


def test_the_store_of_the_working_folder_must_be_there(run, tmp_path):
    run("state", "show", "ses_1").failed("sqlite:///.holdfast/state.db", "HOLDFAST_STORE")
    assert list(tmp_path.iterdir()) == []


def test_another_format_is_wrong_usage(run, world):
    run("state", "show", "ses_1", "--format", "xml").misused("--format")


def test_a_session_whose_id_looks_like_a_snapshot_of_one_is_found(run, world):
    for session in (f"ses_1@{world.first}", f"x@{new_id()}", "--format", "a/../b c", "日本\u202e"):
        assert run("state", "fork", "ses_1", "--at", world.first, "--", session).code == 0
        ran = run("state", "show", "--format", "json", "--", session)
        assert json.loads(ran.out)["session_id"] == session


def test_a_session_whose_id_ends_like_a_file_is_found_where_there_is_no_such_file(run, world):
    for session in ("run.json", "run.json.gz", "a/run.zst"):
        assert run("state", "fork", "ses_1", session, "--at", world.first).code == 0
        ran = run("state", "show", session, "--format", "json")
        assert json.loads(ran.out)["session_id"] == session
        assert run("state", "diff", world.first, session).out == "no difference\n"
        assert run("state", "diff", session, "ses_1").code == 0
        assert run("replay", session).code == 0
    run("state", "show", "run.json", "--agent", "ann").failed("no session 'run.json' of the agent")
    assert run("state", "export", "research-bot", "--session", "ses_1", "-o", "run.json").code == 0
    assert '"session_id": "ses_1"' in run("state", "show", "run.json", "--format", "json").out


def test_a_file_that_is_not_there_is_told_whatever_store_there_is(run, world):
    for verb in (["state", "show"], ["replay"], ["state", "diff", "ses_1"]):
        run(*verb, "none.json").failed("there is no file none.json", "see the path")
        run(*verb, "none.json", "--store", "what:x").failed("no file none.json, and the store")
    run("state", "show", "none.json", "--store", "file:nowhere").failed("no file none.json")
    run("state", "show", "x" * 250 + ".json").failed("there is no file")
    run("state", "show", "x" * 400 + ".json").failed("cannot be a file")
    run("state", "show", "\udcff.json").failed("there is no file")


def test_a_folder_is_no_database(run, world, tmp_path):
    (tmp_path / "folder").mkdir()
    run("state", "show", "x", "--store", "sqlite:///folder").failed("is a folder", "file:folder")


def test_an_empty_name_of_a_store_means_none_and_not_the_usual_one(run, world):
    run("state", "show", "ses_1", "--store", "").misused("--store")
    run("copy", "", "file:x").misused("SRC_URL")
    run("copy", "sqlite:///state.db", "").misused("DST_URL")
    run("backup", "").misused("FOLDER")


# ------------------------------------------------------------------------------- below the table


CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}


@pytest.fixture
def talk(world):
    """A session with messages of several shapes, values and calls without results."""

    async def act() -> None:
        async with (
            holdfast.open_state_store(STORE) as store,
            holdfast.Session.open(store, agent_id="bot", session_id="ses_talk") as session,
        ):
            session.add_message("user", "word " * 100)
            session.add_message("assistant", None, tool_calls=[CALL])
            session.add_message("tool", "found it", tool_call_id="c1")
            content = [
                {"type": "text", "text": "Let me look.\n\nNow."},
                {"type": "tool_use", "id": "c2", "name": "read", "input": {"file": "b.pdf"}},
            ]
            session.add_message("assistant", content)
            session.set("plan", ["read", "compare"])
            session.set("notes", "first line\nsecond line")
            await session.once("charge-42", lambda: 7)

    asyncio.run(act())


def sections(text: str) -> dict[str, list[str]]:
    """What is below the table, by its heading."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n\n", maxsplit=1)[1].splitlines():
        if line and not line.startswith(" "):
            found[line] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found


def test_the_last_messages_the_keys_and_the_unfinished_calls_are_below_the_table(run, talk):
    found = sections(run("state", "show", "ses_talk").out)
    assert found == {
        "last 3 of 4 messages": [
            '  1  assistant  → search({"q": 1})',
            "  2  tool       found it",
            "  3  assistant  Let me look.",
            "                Now.",
            '                → read({"file": "b.pdf"})',
        ],
        "values": ["  notes, plan"],
        "values in once": ["  charge-42"],
        "unfinished tool calls": ['  → read({"file": "b.pdf"}), call c2, in message 3'],
    }


def test_more_messages_fewer_or_none_are_shown(run, talk):
    found = sections(run("state", "show", "ses_talk", "--messages", "9").out)
    assert found["messages"][0].startswith("  0  user       word word")
    assert found["messages"][3] == "                … 5 more lines"
    found = sections(run("state", "show", "ses_talk", "--messages", "1").out)
    assert len(found["last 1 of 4 messages"]) == 3
    assert not any(
        "message" in name
        for name in sections(run("state", "show", "ses_talk", "--messages", "0").out)
    )
    run("state", "show", "ses_talk", "--messages", "-1").misused("--messages")


def test_values_are_shown_when_that_is_asked_for(run, talk):
    found = sections(run("state", "show", "ses_talk", "--values").out)
    assert found["values in once"][0].startswith("  charge-42: ")
    assert found["values"] == [
        "  notes:",
        "    first line",
        "    second line",
        '  plan: ["read", "compare"]',
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_all_of_it_fits_the_terminal(run, talk, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    export = ["--tag", "reason=" + "x" * 100, "--session", "ses_talk"]
    assert run("state", "export", "bot", *export, "-o", "x.json").code == 0
    ran = run("state", "show", "x.json", "--values", "--messages", "9")
    assert max(map(cell_len, ran.out.splitlines())) <= width, ran.out


def test_a_session_without_anything_shows_the_table_alone(run, world):
    assert (
        run("state", "show", "ses_shared", "--agent", "ann", "--messages", "0").out.count("\n")
        == 10
    )
