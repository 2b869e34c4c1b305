"""``holdfast state restore``, and how it asks."""

from __future__ import annotations

import asyncio
import json

import holdfast
from holdfast.ids import new_id


def test_a_session_goes_back(run, world):
    ran = run("state", "restore", "ses_1", world.first, "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert "- messages/000000000001" in ran.out
    assert "+ state/old" in ran.out
    assert ran.out.endswith(f"ses_1 is as it was at {world.first}\n")
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
    assert "Change these 4 entries of ses_1? [y/N]" in ran.out
    assert ran.err == "nothing was changed\n"
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
    run("state", "restore", "ses_1", world.first).failed("no terminal", "--yes")
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
    assert restored("--yes") == {**planned, "restored": True}
    assert restored("--yes") == {**planned, "restored": False, "changed": []}
