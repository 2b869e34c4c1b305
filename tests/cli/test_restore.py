"""``holdfast state restore``."""

from __future__ import annotations

import asyncio
import json
import shlex

import pytest

import holdfast
from holdfast.ids import new_id


def test_restore_to_a_snapshot(run, sample):
    ran = run("state", "restore", "ses_1", sample.first, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert "- messages/000000000001" in ran.out
    assert "+ state/old" in ran.out
    assert f"\nrestored ses_1 to {sample.first}\nundo with: holdfast state restore " in ran.out
    assert run("state", "diff", "ses_1", sample.first).out == "no difference\n"
    again = run("state", "restore", "ses_1", sample.first, "--yes")
    assert (again.code, again.out) == (0, "nothing to change\n")


def test_dry_run_changes_nothing(run, sample, entries):
    before = entries()
    ran = run("state", "restore", "ses_1", sample.first, "--dry-run")
    assert ran.code == 0
    assert ran.out.endswith("4 entries would change\n")
    assert entries() == before


def test_restore_asks_for_confirmation(run, sample, entries):
    before = entries()
    ran = run("state", "restore", "ses_1", sample.first, typed="n\n")
    assert ran.code == 1
    assert ran.err == "Change 4 entries of ses_1? [y/N]:aborted; nothing was changed\n"
    assert entries() == before
    assert run("state", "restore", "ses_1", sample.first, typed="y\n").code == 0
    assert run("state", "diff", "ses_1", sample.first).out == "no difference\n"


def test_end_of_input_aborts(run, sample, entries):
    before = entries()
    ran = run("state", "restore", "ses_1", sample.first, typed="")
    assert ran.code == 1
    assert "Abort" in ran.err
    assert entries() == before


def test_restore_without_a_terminal_needs_yes(run, sample, entries):
    before = entries()
    run("state", "restore", "ses_1", sample.first).assert_failed(
        "stdin is not a terminal; pass --yes to confirm", "--dry-run"
    )
    assert entries() == before


def test_results_of_once_are_kept(run, sample):
    async def mail() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id="research-bot", session_id="ses_1") as session,
        ):
            await session.once("mail", lambda: "sent")

    asyncio.run(mail())
    ran = run("state", "restore", "ses_1", sample.second, "--yes")
    assert ran.out == "nothing to change\n"


def test_missing_session_or_snapshot_is_an_error(run, sample):
    run("state", "restore", "ses_1", new_id(), "--yes").assert_failed(
        "has no snapshot", "state list"
    )
    run("state", "restore", "ses_1", "rubbish", "--yes").assert_failed("rubbish")
    run("state", "restore", "ses_9", sample.first, "--yes").assert_failed("no session")
    run("state", "restore", "ses_shared", sample.first, "--yes").assert_failed("--agent")
    ran = run("state", "restore", "ses_shared", sample.first, "--agent", "ann", "--yes")
    ran.assert_failed("has no snapshot")


def test_restore_json(run, sample):
    def restored(*options):
        ran = run("state", "restore", "ses_1", sample.first, "--format", "json", *options)
        return json.loads(ran.out)

    planned = restored("--dry-run")
    assert planned["restored"] is False
    assert {"namespace": "state", "key": "old", "kind": "added"} in planned["changed"]
    assert planned["undo_id"] is None
    done = restored("--yes")
    assert done == {**planned, "restored": True, "undo_id": done["undo_id"]}
    assert run("state", "show", f"ses_1@{done['undo_id']}").code == 0
    assert restored("--yes") == {**planned, "restored": False, "changed": []}


def test_printed_undo_command_works(run, sample):
    before = json.loads(run("state", "show", "ses_1", "--format", "json").out)["state"]
    ran = run("state", "restore", "ses_1", sample.first, "--yes", "--store", "sqlite:///state.db")
    undo = ran.out.splitlines()[-1].removeprefix("undo with: ")
    words = shlex.split(undo)
    assert words[0] == "holdfast"
    assert run(*words[1:], "--yes").code == 0
    after = json.loads(run("state", "show", "ses_1", "--format", "json").out)["state"]
    assert after == before


def test_unsaved_commits_are_in_the_undo_snapshot(run, sample):
    names = {"agent_id": "research-bot", "session_id": "ses_1"}
    with holdfast.BlockingSession.open("sqlite:///state.db", **names) as session:
        session.set("unsaved", "precious")
    ran = run("state", "restore", "ses_1", sample.first, "--yes", "--format", "json")
    undo_id = json.loads(ran.out)["undo_id"]
    shown = run("state", "show", f"ses_1@{undo_id}", "--format", "json")
    assert json.loads(shown.out)["state"]["values"]["unsaved"] == "precious"
    tags = {"reason": "before restore", "restore": sample.first}
    assert json.loads(shown.out)["tags"] == tags


@pytest.mark.parametrize("ref", ["5", "tag:turn=1", "prefix", "whole"])
def test_restore_to_any_ref(run, sample, ref):
    wanted = {"prefix": sample.first[:-1], "whole": sample.first}.get(ref, ref)
    if ref == "prefix" and sample.second.startswith(wanted):
        pytest.skip("both ids share all but their last character")
    assert run("state", "restore", "ses_1", wanted, "--yes").code == 0
    assert run("state", "diff", "ses_1", sample.first).out == "no difference\n"
    assert run("state", "restore", "ses_1@latest", "--yes").code == 0
    assert run("state", "diff", "ses_1", sample.second).out == "no difference\n"
    assert run("state", "restore", f"ses_1@{wanted}", "--yes").code == 0
    assert run("state", "diff", "ses_1", sample.first).out == "no difference\n"


def test_restore_to_an_event(run, sample):
    ran = run("state", "restore", "ses_1", "3", "--yes")
    assert "restored ses_1 to event 3\n" in ran.out
    values = json.loads(run("state", "show", "ses_1", "--format", "json").out)["state"]["values"]
    assert values == {}
    last = json.loads(run("replay", "ses_1", "--from", "11", "--format", "json").out)[-1]
    assert (last["type"], last["data"]) == ("state.restored", {"seq": 3})
    run("state", "restore", "ses_1", "99", "--yes").assert_failed(
        "has no event 99; its last event is 11"
    )


def test_pruned_event_is_an_error(run, sample):
    assert run("state", "prune", "ses_1", "--last", "1", "--yes").code == 0
    run("state", "restore", "ses_1", "3", "--yes").assert_failed(
        "event 3 was pruned", "after event 10"
    )
    assert run("state", "restore", "ses_1", "10", "--yes").out == "nothing to change\n"


def test_restore_needs_a_ref(run, sample):
    run("state", "restore", "ses_1", "--yes").assert_usage_error("REF")
