"""``holdfast state delete``."""

from __future__ import annotations

from holdfast.ids import new_id


def test_a_session_is_deleted_with_every_agents_part(run, world, entries):
    ran = run("state", "delete", "ses_shared", "--yes")
    assert (ran.code, ran.out, ran.err) == (0, "deleted ses_shared\n", "")
    assert not [key for key in entries() if "ses_shared" in key]
    assert run("state", "show", "ses_1").code == 0


def test_one_snapshot_is_deleted(run, world):
    ran = run("state", "delete", "ses_1", "--snapshot", world.first, "-y")
    assert ran.out == f"deleted the snapshot {world.first}\n"
    assert world.first not in run("state", "list", "--session", "ses_1", "--format", "json").out
    assert world.second in run("state", "list", "--session", "ses_1", "--format", "json").out


def test_a_person_is_asked(run, world, entries):
    before = entries()
    ran = run("state", "delete", "ses_shared", typed="n\n")
    assert (ran.code, ran.err) == (1, "nothing was changed\n")
    assert "Delete the session ses_shared of ann, bob for ever?" in ran.out
    ran = run("state", "delete", "ses_1", "--snapshot", world.first, typed="\n")
    assert ran.code == 1
    assert entries() == before
    assert run("state", "delete", "ses_shared", typed="y\n").code == 0


def test_without_a_terminal_nobody_can_be_asked(run, world, entries):
    before = entries()
    run("state", "delete", "ses_1").failed("no terminal", "--yes")
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
