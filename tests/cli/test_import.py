"""``holdfast state import``."""

from __future__ import annotations

import json
import shlex

import pytest

import holdfast
from holdfast.cli.console import format_command
from holdfast.documents.json_file import read_json_file
from support.sample_documents import update_digest

TARGETS = ["sqlite:///new.db", "file:new"]


@pytest.mark.parametrize("target", TARGETS)
def test_import_creates_a_session(run, document, target):
    ran = run("state", "import", "incident.json", "--store", target)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "imported 2 messages and 10 events into new session research-bot/ses_1",
        "entries: 5 added, 0 removed, 0 changed",
    ]
    there = run("state", "diff", "incident.json", "ses_1", "--store", target)
    assert there.out == "no difference\n"


def test_dry_run_writes_nothing(run, document, tmp_path):
    ran = run("state", "import", "incident.json", "--dry-run", "--store", "sqlite:///new.db")
    assert ran.code == 0
    assert "would import 2 messages and 10 events into new session" in ran.out
    assert not (tmp_path / "new.db").exists()


def test_import_under_other_names(run, document):
    names = ["--agent", "[b]other", "--session", "ses two"]
    ran = run("state", "import", "incident.json", *names)
    assert ran.out.splitlines()[0].endswith("new session [b]other/ses two")
    again = run("state", "import", "incident.json", *names)
    assert "0 events into existing session" in again.out
    assert "undo with: holdfast state restore --agent '[b]other' 'ses two' " in again.out
    assert "--agent '[b]other'" in again.out


def test_import_into_an_existing_session_can_be_undone(run, document, sample):
    assert run("state", "restore", "ses_1", sample.first, "--yes").code == 0
    ran = run("state", "import", "incident.json", "--format", "json")
    result = json.loads(ran.out)
    assert (result["created"], result["dry_run"], result["messages_restored"]) == (False, False, 2)
    assert result["diff"]["added"] == [["messages", "000000000001"], ["state", "card"]]
    assert run("state", "diff", "incident.json", "ses_1").out == "no difference\n"
    assert run("state", "restore", "ses_1", result["undo_id"], "-y").code == 0
    assert run("state", "diff", sample.first, "ses_1").out == "no difference\n"


def test_edited_document_needs_allow_modified(run, document):
    tree = json.loads(document.read_bytes())
    tree["state"]["values"]["plan"] = "edited"
    document.write_text(json.dumps(tree))
    target = ["--store", "sqlite:///new.db"]
    run("state", "import", "incident.json", *target).assert_failed("digest", "--allow-modified")
    assert run("state", "import", "incident.json", "--allow-modified", *target).code == 0
    shown = run("state", "show", "ses_1", "--format", "json", *target)
    assert json.loads(shown.out)["state"]["values"]["plan"] == "edited"


@pytest.mark.parametrize("edited", [True, False])
def test_document_without_a_digest_needs_allow_modified(run, document, edited):
    tree = json.loads(document.read_bytes())
    if edited:
        tree["state"]["values"]["plan"] = "edited"
    del tree["digest"]
    document.write_text(json.dumps(tree))
    target = ["--store", "sqlite:///new.db"]
    run("state", "import", "incident.json", *target).assert_failed("no digest", "--allow-modified")
    assert run("state", "import", "incident.json", "--allow-modified", *target).code == 0


def test_events_that_contradict_the_state_are_refused(run, document):
    tree = json.loads(document.read_bytes())
    tree["state"]["values"]["plan"] = "edited"
    document.write_text(json.dumps(update_digest(tree)))
    ran = run("state", "import", "incident.json", "--store", "sqlite:///new.db")
    ran.assert_failed("do not lead to its state", "'plan'", "--allow-modified")


def test_missing_events_get_a_fitting_hint(run, document):
    tree = json.loads(document.read_bytes())
    target = ("--session", "cut", "--store", "sqlite:///elsewhere.db")
    document.write_text(json.dumps({**tree, "events": tree["events"][:-3]}))
    run("state", "import", "incident.json", *target).assert_failed(
        "7 events", "10", "--allow-modified"
    )
    assert run("state", "import", "incident.json", "--allow-modified", *target).code == 0
    document.write_text(json.dumps({**tree, "events": tree["events"][:4] + tree["events"][5:]}))
    for more in ((), ("--allow-modified",)):
        ran = run("state", "import", "incident.json", *more, *target)
        ran.assert_failed("event 5", "cannot be removed or reordered", "get another copy")
        assert "allow" not in ran.err


def test_read_only_store_is_an_error(run, document):
    ran = run("state", "import", "incident.json", "--store", "sqlite:///state.db?read_only=true")
    ran.assert_failed("is read-only")


def test_printed_undo_command_works(run, document):
    names = ["--agent", "-o", "--session", "--all of it", "--store", "file:else where"]
    assert run("state", "import", "incident.json", *names).code == 0
    assert run("state", "restore", "x", "y", "--store", "file:else where").code == 1
    ran = run("state", "import", "incident.json", *names)
    command = shlex.split(ran.out.partition("undo with: ")[2])
    assert command[0] == "holdfast"
    ran = run(*command[1:])
    assert (ran.code, ran.out) == (0, "nothing to change\n")


def test_format_command_hides_the_password():
    text = format_command("holdfast state list", "bot", store="postgresql://ada:secret@host/db")
    assert text == "holdfast state list --store 'postgresql://ada:***@host/db' bot"


@pytest.mark.parametrize(
    "name",
    ["postgres:u:hunter2@h/x", "u:hunter2@h/x", "u:hunter2@" + "h" * 300, "x password=hunter2"],
)
def test_error_hides_a_secret_in_a_file_name(run, document, name):
    taken = run("state", "import", name)
    given = run("state", "export", "research-bot", "-o", f"{name}/x.json")
    for ran in (taken, given):
        ran.assert_failed("***")
        assert "hunter2" not in ran.err
    with pytest.raises(holdfast.HoldfastError) as caught:
        read_json_file(name)
    assert "***" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(("name", "word"), [("none.json", "no file none.json"), (".", "folder")])
def test_missing_file_and_folder_are_errors(run, tmp_path, name, word):
    ran = run("state", "import", name)
    ran.assert_failed(word)
    assert "--allow-modified" not in ran.err
    assert list(tmp_path.iterdir()) == []
