"""``holdfast state show``, also of names that could mean several things."""

from __future__ import annotations

import json
import re

from holdfast.ids import new_id
from watched import with_digest


def rows(text: str) -> dict[str, str]:
    return dict(re.split(r" {2,}", line, maxsplit=1) for line in text.splitlines())


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
        "tags": "reason=incident env=x",
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
    assert (
        ran.out.splitlines()[-1]
        == r"tags                turn=1 odd=[bold]loud[/] :bug: \x1b[2J" + "\\"
    )


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
    run("state", "show", "x", "--store", "what:x").failed("no store is known for the scheme")
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
