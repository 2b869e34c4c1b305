"""``holdfast state import``."""

from __future__ import annotations

import json
import shlex

import pytest

import holdfast
from holdfast.cli.console import format_command
from holdfast.documents.json_file import read_json_file
from support.sample_documents import with_digest

TARGETS = ["sqlite:///new.db", "file:new"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_document_becomes_a_new_session(run, document, target):
    ran = run("state", "import", "incident.json", "--store", target)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "2 messages and 10 events became a new session: research-bot/ses_1",
        "entries: 5 added, 0 removed, 0 changed",
    ]
    there = run("state", "diff", "incident.json", "ses_1", "--store", target)
    assert there.out == "no difference\n"


def test_a_dry_run_says_the_same_and_writes_nothing(run, document, tmp_path):
    ran = run("state", "import", "incident.json", "--dry-run", "--store", "sqlite:///new.db")
    assert ran.code == 0
    assert "2 messages and 10 events would become a new session" in ran.out
    assert not (tmp_path / "new.db").exists()


def test_it_is_imported_under_other_names(run, document):
    names = ["--agent", "[b]other", "--session", "ses two"]
    ran = run("state", "import", "incident.json", *names)
    assert ran.out.splitlines()[0].endswith("a new session: [b]other/ses two")
    again = run("state", "import", "incident.json", *names)
    assert "0 events became the state of a session that is there" in again.out
    assert "to undo it: holdfast state restore --agent '[b]other' 'ses two' " in again.out
    assert "--agent '[b]other'" in again.out


def test_an_import_over_a_session_can_be_undone(run, document, world):
    assert run("state", "restore", "ses_1", world.first, "--yes").code == 0
    ran = run("state", "import", "incident.json", "--format", "json")
    result = json.loads(ran.out)
    assert (result["created"], result["dry_run"], result["messages_restored"]) == (False, False, 2)
    assert result["diff"]["added"] == [["messages", "000000000001"], ["state", "card"]]
    assert run("state", "diff", "incident.json", "ses_1").out == "no difference\n"
    assert run("state", "restore", "ses_1", result["undo_id"], "-y").code == 0
    assert run("state", "diff", world.first, "ses_1").out == "no difference\n"


def test_an_edited_document_is_taken_where_that_is_meant(run, document):
    tree = json.loads(document.read_bytes())
    tree["state"]["values"]["plan"] = "edited"
    document.write_text(json.dumps(tree))
    target = ["--store", "sqlite:///new.db"]
    run("state", "import", "incident.json", *target).failed("digest", "--allow-modified")
    assert run("state", "import", "incident.json", "--allow-modified", *target).code == 0
    shown = run("state", "show", "ses_1", "--format", "json", *target)
    assert json.loads(shown.out)["state"]["values"]["plan"] == "edited"


@pytest.mark.parametrize("edited", [True, False])
def test_a_document_with_events_and_without_its_digest_is_taken_where_that_is_meant(
    run, document, edited
):
    tree = json.loads(document.read_bytes())
    if edited:
        tree["state"]["values"]["plan"] = "edited"
    del tree["digest"]
    document.write_text(json.dumps(tree))
    target = ["--store", "sqlite:///new.db"]
    run("state", "import", "incident.json", *target).failed("no digest", "--allow-modified")
    assert run("state", "import", "incident.json", "--allow-modified", *target).code == 0


def test_a_document_whose_events_contradict_its_state_is_refused_whatever_its_digest(run, document):
    tree = json.loads(document.read_bytes())
    tree["state"]["values"]["plan"] = "edited"
    document.write_text(json.dumps(with_digest(tree)))
    ran = run("state", "import", "incident.json", "--store", "sqlite:///new.db")
    ran.failed("do not lead to its state", "'plan'", "--allow-modified")


def test_events_that_were_taken_out_are_told_and_no_option_that_does_not_help(run, document):
    tree = json.loads(document.read_bytes())
    target = ("--session", "cut", "--store", "sqlite:///elsewhere.db")
    document.write_text(json.dumps({**tree, "events": tree["events"][:-3]}))
    run("state", "import", "incident.json", *target).failed("7 events", "10", "--allow-modified")
    assert run("state", "import", "incident.json", "--allow-modified", *target).code == 0
    document.write_text(json.dumps({**tree, "events": tree["events"][:4] + tree["events"][5:]}))
    for more in ((), ("--allow-modified",)):
        ran = run("state", "import", "incident.json", *more, *target)
        ran.failed("event 5", "cannot be removed or reordered", "get another copy")
        assert "allow" not in ran.err


def test_a_read_only_store_is_an_error(run, document):
    ran = run("state", "import", "incident.json", "--store", "sqlite:///state.db?read_only=true")
    ran.failed("is read-only")


def test_the_command_that_undoes_it_can_be_typed_as_it_is_printed(run, document):
    names = ["--agent", "-o", "--session", "--all of it", "--store", "file:else where"]
    assert run("state", "import", "incident.json", *names).code == 0
    assert run("state", "restore", "x", "y", "--store", "file:else where").code == 1
    ran = run("state", "import", "incident.json", *names)
    command = shlex.split(ran.out.partition("to undo it: ")[2])
    assert command[0] == "holdfast"
    ran = run(*command[1:])
    assert (ran.code, ran.out) == (0, "nothing to change\n")


def test_a_password_is_not_printed_with_a_command():
    said = format_command("holdfast state list", "bot", store="postgresql://ada:secret@host/db")
    assert said == "holdfast state list --store 'postgresql://ada:***@host/db' bot"


@pytest.mark.parametrize(
    "name",
    ["postgres:u:hunter2@h/x", "u:hunter2@h/x", "u:hunter2@" + "h" * 300, "x password=hunter2"],
)
def test_what_may_be_a_secret_is_not_repeated_as_the_name_of_a_file(run, document, name):
    taken = run("state", "import", name)
    given = run("state", "export", "research-bot", "-o", f"{name}/x.json")
    for ran in (taken, given):
        ran.failed("***")
        assert "hunter2" not in ran.err
    with pytest.raises(holdfast.HoldfastError) as caught:
        read_json_file(name)
    assert "***" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("name", "word"), [("none.json", "no file none.json"), (".", "folder")])
def test_what_is_no_file_is_not_taken_for_a_damaged_document(run, tmp_path, name, word):
    ran = run("state", "import", name)
    ran.failed(word)
    assert "--allow-modified" not in ran.err
    assert list(tmp_path.iterdir()) == []
