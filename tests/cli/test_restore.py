"""``holdfast state restore``, and how it asks."""

from __future__ import annotations

import asyncio
import json
import shlex

import pytest

import holdfast
from holdfast.ids import new_id


def test_a_session_goes_back(run, world):
    ran = run("state", "restore", "ses_1", world.first, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert "- messages/000000000001" in ran.out
    assert "+ state/old" in ran.out
    assert f"\nses_1 is as it was at {world.first}\nto undo it: holdfast state restore " in ran.out
    assert run("state", "diff", "ses_1", world.first).out == "no difference\n"
    again = run("state", "restore", "ses_1", world.first, "--yes")
    assert (again.code, again.out) == (0, "nothing to change\n")


def test_a_dry_run_changes_nothing(run, world, entries):
    before = entries()
    ran = run("state", "restore", "ses_1", world.first, "--dry-run")
    assert ran.code == 0
    assert ran.out.endswith("4 entries would change\n")
    assert entries() == before


def test_a_person_is_asked(run, world, entries):
    before = entries()
    ran = run("state", "restore", "ses_1", world.first, typed="n\n")
    assert ran.code == 1
    assert ran.err == "Change 4 entries of ses_1? [y/N]:nothing was changed\n"
    assert entries() == before
    assert run("state", "restore", "ses_1", world.first, typed="y\n").code == 0
    assert run("state", "diff", "ses_1", world.first).out == "no difference\n"


def test_without_an_answer_nothing_is_done(run, world, entries):
    before = entries()
    ran = run("state", "restore", "ses_1", world.first, typed="")
    assert ran.code == 1
    assert "Abort" in ran.err
    assert entries() == before


def test_without_a_terminal_nobody_can_be_asked(run, world, entries):
    before = entries()
    run("state", "restore", "ses_1", world.first).failed(
        "stdin is not a terminal; pass --yes to confirm", "--dry-run"
    )
    assert entries() == before


def test_what_was_done_once_is_no_difference(run, world):
    async def mail() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id="research-bot", session_id="ses_1") as session,
        ):
            await session.once("mail", lambda: "sent")

    asyncio.run(mail())
    ran = run("state", "restore", "ses_1", world.second, "--yes")
    assert ran.out == "nothing to change\n"


def test_what_is_not_there_is_an_error(run, world):
    run("state", "restore", "ses_1", new_id(), "--yes").failed("has no snapshot", "state list")
    run("state", "restore", "ses_1", "rubbish", "--yes").failed("rubbish")
    run("state", "restore", "ses_9", world.first, "--yes").failed("there is no session")
    run("state", "restore", "ses_shared", world.first, "--yes").failed("--agent")
    ran = run("state", "restore", "ses_shared", world.first, "--agent", "ann", "--yes")
    ran.failed("has no snapshot")


def test_json_says_what_changed_and_whether_it_was_done(run, world):
    def restored(*options):
        ran = run("state", "restore", "ses_1", world.first, "--format", "json", *options)
        return json.loads(ran.out)

    planned = restored("--dry-run")
    assert planned["restored"] is False
    assert {"namespace": "state", "key": "old", "kind": "added"} in planned["changed"]
    assert planned["undo_id"] is None
    done = restored("--yes")
    assert done == {**planned, "restored": True, "undo_id": done["undo_id"]}
    assert run("state", "show", f"ses_1@{done['undo_id']}").code == 0
    assert restored("--yes") == {**planned, "restored": False, "changed": []}


def test_the_command_that_is_printed_goes_back(run, world):
    before = json.loads(run("state", "show", "ses_1", "--format", "json").out)["state"]
    ran = run("state", "restore", "ses_1", world.first, "--yes", "--store", "sqlite:///state.db")
    undo = ran.out.splitlines()[-1].removeprefix("to undo it: ")
    words = shlex.split(undo)
    assert words[0] == "holdfast"
    assert run(*words[1:], "--yes").code == 0
    after = json.loads(run("state", "show", "ses_1", "--format", "json").out)["state"]
    assert after == before


def test_what_was_committed_after_the_last_snapshot_is_not_lost(run, world):
    async def go_on() -> None:
        async with (
            holdfast.open_state_store("sqlite:///state.db") as store,
            holdfast.Session.open(store, agent_id="research-bot", session_id="ses_1") as session,
        ):
            session.set("unsaved", "precious")

    asyncio.run(go_on())
    ran = run("state", "restore", "ses_1", world.first, "--yes", "--format", "json")
    undo_id = json.loads(ran.out)["undo_id"]
    shown = run("state", "show", f"ses_1@{undo_id}", "--format", "json")
    assert json.loads(shown.out)["state"]["values"]["unsaved"] == "precious"
    tags = {"reason": "before restore", "restore": world.first}
    assert json.loads(shown.out)["tags"] == tags


@pytest.mark.parametrize("ref", ["5", "tag:turn=1", "prefix", "whole"])
def test_any_ref_says_where_to_go_back_to(run, world, ref):
    wanted = {"prefix": world.first[:-1], "whole": world.first}.get(ref, ref)
    if ref == "prefix" and world.second.startswith(wanted):
        pytest.skip("both ids share all but their last character")
    assert run("state", "restore", "ses_1", wanted, "--yes").code == 0
    assert run("state", "diff", "ses_1", world.first).out == "no difference\n"
    assert run("state", "restore", "ses_1@latest", "--yes").code == 0
    assert run("state", "diff", "ses_1", world.second).out == "no difference\n"
    assert run("state", "restore", f"ses_1@{wanted}", "--yes").code == 0
    assert run("state", "diff", "ses_1", world.first).out == "no difference\n"


def test_an_event_says_where_to_go_back_to(run, world):
    ran = run("state", "restore", "ses_1", "3", "--yes")
    assert "ses_1 is as it was at event 3\n" in ran.out
    values = json.loads(run("state", "show", "ses_1", "--format", "json").out)["state"]["values"]
    assert values == {}
    last = json.loads(run("replay", "ses_1", "--from", "11", "--format", "json").out)[-1]
    assert (last["type"], last["data"]) == ("state.restored", {"seq": 3})
    run("state", "restore", "ses_1", "99", "--yes").failed("has no event 99; its last event is 11")


def test_an_event_that_was_pruned_is_an_error(run, world):
    assert run("state", "prune", "ses_1", "--last", "1", "--yes").code == 0
    run("state", "restore", "ses_1", "3", "--yes").failed("event 3 was pruned", "after event 10")
    assert run("state", "restore", "ses_1", "10", "--yes").out == "nothing to change\n"


def test_without_a_ref_it_is_wrong_usage(run, world):
    run("state", "restore", "ses_1", "--yes").misused("REF")
