"""``holdfast state delete``."""

from __future__ import annotations

import json

from holdfast.ids import new_id


def test_delete_session_of_all_agents(run, sample, entries):
    ran = run("state", "delete", "ses_shared", "--yes")
    assert (ran.code, ran.out, ran.err) == (
        0,
        "deleted session ses_shared of ann, bob with 0 snapshots\n",
        "",
    )
    assert not [key for key in entries() if "ses_shared" in key]
    assert run("state", "show", "ses_1").code == 0


def test_delete_one_snapshot(run, sample):
    ran = run("state", "delete", "ses_1", "--snapshot", sample.first, "-y")
    assert ran.out == f"deleted snapshot {sample.first} of ses_1\n"
    assert sample.first not in run("state", "list", "--session", "ses_1", "--format", "json").out
    assert sample.second in run("state", "list", "--session", "ses_1", "--format", "json").out


def test_delete_asks_for_confirmation(run, sample, entries):
    before = entries()
    ran = run("state", "delete", "ses_shared", typed="n\n")
    assert ran.code == 1
    assert ran.err.startswith(
        "Delete session ses_shared of ann, bob with 0 snapshots permanently? [y"
    )
    assert ran.err.endswith("nothing was changed\n")
    ran = run("state", "delete", "ses_1", "--snapshot", sample.first, typed="\n")
    assert ran.code == 1
    assert entries() == before
    assert run("state", "delete", "ses_shared", typed="y\n").code == 0


def test_delete_without_a_terminal_needs_yes(run, sample, entries):
    before = entries()
    run("state", "delete", "ses_1").assert_failed("stdin is not a terminal; pass --yes to confirm")
    assert entries() == before


def test_dry_run_deletes_nothing(run, sample, entries):
    before = entries()
    ran = run("state", "delete", "ses_1", "--dry-run")
    assert ran.out == "would delete session ses_1 of research-bot with 2 snapshots\n"
    ran = run("state", "delete", "ses_1", "--snapshot", "tag:turn=1", "--dry-run")
    assert ran.out == f"would delete snapshot {sample.first} of ses_1\n"
    assert entries() == before


def test_delete_json(run, sample):
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
    assert (done["snapshot_id"], done["deleted"]) == (sample.second, True)


def test_event_number_is_not_a_snapshot(run, sample, entries):
    before = entries()
    run("state", "delete", "ses_1", "--snapshot", "5", "--yes").assert_failed("has no snapshot '5'")
    assert entries() == before


def test_agent_option_needs_a_snapshot(run, sample, entries):
    before = entries()
    run("state", "delete", "ses_shared", "--agent", "ann", "--yes").assert_usage_error(
        "for all its agents"
    )
    assert entries() == before


def test_missing_session_or_snapshot_fails_before_the_prompt(run, sample):
    run("state", "delete", "ses_9").assert_failed("no session 'ses_9'", "ses_1")
    run("state", "delete", "ses_1", "--snapshot", new_id()).assert_failed("has no snapshot")
    ran = run("state", "delete", "ses_shared", "--agent", "ann", "--snapshot", new_id())
    ran.assert_failed("has no snapshot")
