"""``holdfast state delete``."""

from __future__ import annotations

import json

from holdfast.ids import new_id


def test_a_session_is_deleted_with_every_agents_part(run, world, entries):
    ran = run("state", "delete", "ses_shared", "--yes")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "deleted session ses_shared of ann, bob with 0 snapshots\n",
        "",
    )
    assert not [key for key in entries() if "ses_shared" in key]
    assert run("state", "show", "ses_1").code == 0


def test_one_snapshot_is_deleted(run, world):
    ran = run("state", "delete", "ses_1", "--snapshot", world.first, "-y")
    assert ran.out == f"deleted snapshot {world.first} of ses_1\n"
    assert world.first not in run("state", "list", "--session", "ses_1", "--format", "json").out
    assert world.second in run("state", "list", "--session", "ses_1", "--format", "json").out


def test_a_person_is_asked(run, world, entries):
    before = entries()
    ran = run("state", "delete", "ses_shared", typed="n\n")
    assert ran.code == 1
    assert ran.err.startswith("Delete session ses_shared of ann, bob with 0 snapshots for good? [y")
    assert ran.err.endswith("nothing was changed\n")
    ran = run("state", "delete", "ses_1", "--snapshot", world.first, typed="\n")
    assert ran.code == 1
    assert entries() == before
    assert run("state", "delete", "ses_shared", typed="y\n").code == 0


def test_without_a_terminal_nobody_can_be_asked(run, world, entries):
    before = entries()
    run("state", "delete", "ses_1").failed("stdin is not a terminal; pass --yes to confirm")
    assert entries() == before


def test_a_dry_run_deletes_nothing(run, world, entries):
    before = entries()
    ran = run("state", "delete", "ses_1", "--dry-run")
    assert ran.out == "would delete session ses_1 of research-bot with 2 snapshots\n"
    ran = run("state", "delete", "ses_1", "--snapshot", "tag:turn=1", "--dry-run")
    assert ran.out == f"would delete snapshot {world.first} of ses_1\n"
    assert entries() == before


def test_json_says_what_was_deleted(run, world):
    def deleted(*words: str) -> dict:
        ran = run("state", "delete", *words, "--format", "json")
        assert (ran.code, ran.err) == (0, "")
        return json.loads(ran.out)

    planned = deleted("ses_shared", "--dry-run")
    assert planned == {
        "session_id": "ses_shared",
        "agents": ["ann", "bob"],
        "snapshot_id": None,
        "deleted": False,
        "dry_run": True,
    }
    assert deleted("ses_shared", "--yes") == {**planned, "deleted": True, "dry_run": False}
    done = deleted("ses_1", "--snapshot", "latest", "--yes")
    assert (done["snapshot_id"], done["deleted"]) == (world.second, True)


def test_the_number_of_an_event_is_no_snapshot_to_delete(run, world, entries):
    before = entries()
    run("state", "delete", "ses_1", "--snapshot", "5", "--yes").failed("has no snapshot '5'")
    assert entries() == before


def test_one_agents_part_cannot_be_deleted_alone(run, world, entries):
    before = entries()
    run("state", "delete", "ses_shared", "--agent", "ann", "--yes").misused("every agent's part")
    assert entries() == before


def test_what_is_not_there_is_an_error_before_anybody_is_asked(run, world):
    run("state", "delete", "ses_9").failed("there is no session 'ses_9'", "ses_1")
    run("state", "delete", "ses_1", "--snapshot", new_id()).failed("has no snapshot")
    ran = run("state", "delete", "ses_shared", "--agent", "ann", "--snapshot", new_id())
    ran.failed("has no snapshot")
