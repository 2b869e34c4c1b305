"""``holdfast state show``, also of ambiguous names."""

from __future__ import annotations

import asyncio
import json
import re

import pytest
from rich.cells import cell_len

import holdfast
from cli.conftest import STORE
from holdfast.ids import new_id
from support.sample_documents import update_digest


def read_rows(text: str) -> dict[str, str]:
    """Return the rows of the table, up to the first empty line."""
    head, *lines = text.split("\n\n", maxsplit=1)[0].splitlines()
    assert head.split() == ["Field", "Value"]
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in lines)


def test_table_rows(run, sample, monkeypatch):
    monkeypatch.setenv("HOLDFAST_ENVIRONMENT", "production")
    export = ["--tag", "reason=incident", "--tag", "env=x"]
    assert run("state", "export", "research-bot", *export, "-o", "x.json").code == 0
    ran = run("state", "show", "x.json")
    assert (ran.code, ran.err) == (0, "")
    found = read_rows(ran.out)
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


def test_unknown_fields_are_dashes(run, document):
    tree = json.loads(document.read_bytes())
    for name in ("source_environment", "exported_at", "tags"):
        del tree[name]
    document.write_text(json.dumps(update_digest(tree)))
    found = read_rows(run("state", "show", "incident.json").out)
    assert (found["source_environment"], found["exported_at"], found["tags"]) == ("-", "-", "-")


def test_show_json_is_the_document(run, document):
    ran = run("state", "show", "incident.json", "--format", "json")
    assert json.loads(ran.out) == json.loads(document.read_bytes())


def test_markup_and_control_codes_are_shown_literally(run, sample):
    ran = run("state", "show", f"ses_1@{sample.first}")
    assert read_rows(ran.out)["tags"] == r"turn=1, odd=[bold]loud[/] :bug: \x1b[2J" + "\\"
    assert r"1  assistant  [bold]loud[/] :bug: \x1b[2J" in run("state", "show", "ses_1").out


def test_show_a_file_needs_no_store(run, document, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", "nonsense://")
    assert run("state", "show", "incident.json").code == 0
    document.rename("incident")
    assert run("state", "show", "incident").code == 0


def test_show_a_session_and_its_snapshots(run, sample):
    assert read_rows(run("state", "show", "ses_1").out)["messages"] == "2"
    assert read_rows(run("state", "show", f"ses_1@{sample.first}").out)["messages"] == "1"
    assert read_rows(run("state", "show", sample.first).out)["messages"] == "1"
    assert (
        read_rows(run("state", "show", sample.second, "--agent", "research-bot").out)["messages"]
        == "2"
    )
    run("state", "show", sample.second, "--agent", "ann").assert_failed("no session or snapshot")


def test_shared_session_needs_an_agent(run, sample):
    run("state", "show", "ses_shared").assert_failed("several agents (ann, bob)", "--agent")
    assert read_rows(run("state", "show", "ses_shared", "--agent", "bob").out)["agent_id"] == "bob"
    run("state", "show", "ses_shared", "--agent", "bab").assert_failed("no agent 'bab'", "bob")
    run("state", "show", "ses_1", "--agent", "ann").assert_failed("no session 'ses_1' of agent ann")


def test_missing_names_are_errors(run, sample):
    run("state", "show", "ses_i").assert_failed("no session 'ses_i'", "ses_1", "state list")
    run("state", "show", new_id()).assert_failed("no session or snapshot")
    run("state", "show", "nowhere.json").assert_failed("no file nowhere.json")
    run("state", "show", "x", "--store", "memory:").assert_failed("the store has none")
    run("state", "show", "x", "--store", "file:nowhere").assert_failed("no store at file:nowhere")
    run("state", "show", "x", "--store", "what://x").assert_failed("unknown scheme")
    run("state", "show", "x", "--store", "what:x").assert_failed("no '//' before the host")
    run("state", "show", "x\ny", "--store", "memory:").assert_failed()


def test_default_store_must_exist(run, tmp_path):
    run("state", "show", "ses_1").assert_failed("sqlite:///.holdfast/state.db", "HOLDFAST_STORE")
    assert list(tmp_path.iterdir()) == []


def test_unknown_format_is_wrong_usage(run, sample):
    run("state", "show", "ses_1", "--format", "xml").assert_usage_error("--format")


def test_session_id_may_look_like_a_reference(run, sample):
    for session in (f"ses_1@{sample.first}", f"x@{new_id()}", "--format", "a/../b c", "日本\u202e"):
        assert run("state", "fork", "ses_1", "--at", sample.first, "--", session).code == 0
        ran = run("state", "show", "--format", "json", "--", session)
        assert json.loads(ran.out)["session_id"] == session


def test_session_id_may_look_like_a_file(run, sample):
    for session in ("run.json", "run.json.gz", "a/run.zst"):
        assert run("state", "fork", "ses_1", session, "--at", sample.first).code == 0
        ran = run("state", "show", session, "--format", "json")
        assert json.loads(ran.out)["session_id"] == session
        assert run("state", "diff", sample.first, session).out == "no difference\n"
        assert run("state", "diff", session, "ses_1").code == 0
        assert run("replay", session).code == 0
    run("state", "show", "run.json", "--agent", "ann").assert_failed(
        "no session 'run.json' of agent"
    )
    assert run("state", "export", "research-bot", "--session", "ses_1", "-o", "run.json").code == 0
    assert '"session_id": "ses_1"' in run("state", "show", "run.json", "--format", "json").out


def test_missing_file_is_an_error_with_any_store(run, sample):
    for verb in (["state", "show"], ["replay"], ["state", "diff", "ses_1"]):
        run(*verb, "none.json").assert_failed("no file none.json", "check the path")
        run(*verb, "none.json", "--store", "what:x").assert_failed(
            "no file none.json, and no store"
        )
    run("state", "show", "none.json", "--store", "file:nowhere").assert_failed("no file none.json")
    run("state", "show", "x" * 250 + ".json").assert_failed("no file")
    run("state", "show", "x" * 400 + ".json").assert_failed("invalid path")
    run("state", "show", "\udcff.json").assert_failed("no file")


def test_folder_is_not_a_database(run, sample, tmp_path):
    (tmp_path / "folder").mkdir()
    run("state", "show", "x", "--store", "sqlite:///folder").assert_failed(
        "is a folder", "file:folder"
    )


def test_empty_store_url_is_wrong_usage(run, sample):
    run("state", "show", "ses_1", "--store", "").assert_usage_error("--store")
    run("copy", "", "file:x").assert_usage_error("SRC_URL")
    run("copy", "sqlite:///state.db", "").assert_usage_error("DST_URL")
    run("backup", "").assert_usage_error("FOLDER")


# ------------------------------------------------------------------------------- below the table


CALL = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": '{"q": 1}'}}


@pytest.fixture
def conversation(sample):
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


def split_sections(text: str) -> dict[str, list[str]]:
    """Return the sections below the table, by heading."""
    found: dict[str, list[str]] = {}
    for line in text.split("\n\n", maxsplit=1)[1].splitlines():
        if line and not line.startswith(" "):
            found[line] = []
        elif line:
            found[list(found)[-1]].append(line)
    return found


def test_messages_keys_and_unfinished_calls_follow_the_table(run, conversation):
    found = split_sections(run("state", "show", "ses_talk").out)
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


def test_messages_option(run, conversation):
    found = split_sections(run("state", "show", "ses_talk", "--messages", "9").out)
    assert found["messages"][0].startswith("  0  user       word word")
    assert found["messages"][3] == "                … 5 more lines"
    found = split_sections(run("state", "show", "ses_talk", "--messages", "1").out)
    assert len(found["last 1 of 4 messages"]) == 3
    assert not any(
        "message" in name
        for name in split_sections(run("state", "show", "ses_talk", "--messages", "0").out)
    )
    run("state", "show", "ses_talk", "--messages", "-1").assert_usage_error("--messages")


def test_values_option(run, conversation):
    found = split_sections(run("state", "show", "ses_talk", "--values").out)
    assert found["values in once"][0].startswith("  charge-42: ")
    assert found["values"] == [
        "  notes:",
        "    first line",
        "    second line",
        '  plan: ["read", "compare"]',
    ]


@pytest.mark.parametrize("width", [40, 60, 80])
def test_show_fits_the_terminal(run, conversation, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    export = ["--tag", "reason=" + "x" * 100, "--session", "ses_talk"]
    assert run("state", "export", "bot", *export, "-o", "x.json").code == 0
    ran = run("state", "show", "x.json", "--values", "--messages", "9")
    assert max(map(cell_len, ran.out.splitlines())) <= width, ran.out


def test_empty_session_shows_only_the_table(run, sample):
    assert (
        run("state", "show", "ses_shared", "--agent", "ann", "--messages", "0").out.count("\n")
        == 10
    )
