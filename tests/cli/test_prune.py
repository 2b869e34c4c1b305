"""``holdfast state prune``."""

from __future__ import annotations

import json

import pytest


def snapshots(run) -> list[str]:
    ran = run("state", "list", "--session", "ses_1", "--format", "json")
    return [item["snapshot_id"] for item in json.loads(ran.out)["items"]]


def test_what_no_rule_keeps_goes(run, world):
    ran = run("state", "prune", "ses_1", "--last", "1", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "research-bot/ses_1: 1 snapshot kept, 1 removed, with 10 events\n"
    assert snapshots(run) == [world.second]
    assert run("state", "verify").code == 0


def test_a_dry_run_removes_nothing(run, world, entries):
    before = entries()
    ran = run("state", "prune", "ses_1", "--last", "1", "--dry-run")
    assert "1 snapshot kept, 1 would be removed" in ran.out
    assert entries() == before


@pytest.mark.parametrize(
    "rule",
    [
        ["--last", "2"],
        ["--max-age", "1h"],
        ["--max-age", "30d"],
        ["--last", "1", "--protect", "odd"],
        ["--hourly", "0", "--protect", "turn"],
    ],
    ids=" ".join,
)
def test_each_rule_keeps_its_own(run, world, rule):
    assert run("state", "prune", "ses_1", *rule).code == 0
    assert snapshots(run) == [world.first, world.second]


@pytest.mark.parametrize("rule", ["--hourly", "--daily", "--weekly"])
def test_one_of_each_period_is_kept(run, world, rule):
    assert run("state", "prune", "ses_1", rule, "1", "--yes").code == 0
    assert snapshots(run) == [world.second]


def test_all_sessions_are_pruned_when_that_is_said(run, world):
    ran = run("state", "prune", "--all", "--last", "1", "--format", "json", "--yes")
    found = {(each["agent_id"], each["session_id"]): each for each in json.loads(ran.out)}
    assert set(found) == {("ann", "ses_shared"), ("bob", "ses_shared"), ("research-bot", "ses_1")}
    assert found["research-bot", "ses_1"]["removed"] == [world.first]
    assert {each["scope"] for each in found.values()} == {"agent"}
    ran = run("state", "prune", "--all", "--last", "1", "--agent", "ann")
    assert ran.out.startswith("ann/ses_shared: 0 snapshots kept")


def test_a_person_sees_what_would_go_and_is_asked(run, world, entries):
    before = entries()
    ran = run("state", "prune", "--all", "--last", "1", typed="n\n")
    assert ran.code == 1
    plan, asked = ran.err.splitlines()
    assert plan.startswith("research-bot/ses_1: 1 snapshot kept, 1 would be removed, with ")
    assert asked == "Remove 1 snapshot of 1 session for good? [y/N]:nothing was changed"
    assert entries() == before
    assert run("state", "prune", "--all", "--last", "1", typed="y\n").code == 0
    assert snapshots(run) == [world.second]


@pytest.mark.parametrize("format_", ["table", "json"])
def test_without_a_terminal_it_needs_to_be_confirmed(run, world, entries, format_):
    before = entries()
    ran = run("state", "prune", "ses_1", "--last", "1", "--format", format_)
    ran.failed("stdin is not a terminal; pass --yes to confirm")
    assert ran.out == ""
    assert entries() == before


def test_where_nothing_would_go_nobody_is_asked(run, world):
    assert run("state", "prune", "ses_1", "--last", "2").code == 0


def test_an_empty_store_says_so(run):
    ran = run("state", "prune", "--all", "--last", "1", "--store", "memory:")
    assert ran.out == "nothing here yet\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--last", "1"], "name one session, or --all"),
        (["ses_1", "--all", "--last", "1"], "name one session, or --all"),
        (["ses_1"], "say what to keep"),
        (["ses_1", "--last", "-1"], "--last"),
        (["ses_1", "--max-age", "soon"], "12h, 30d or 8w"),
        (["ses_1", "--max-age", "9" * 30 + "w"], "12h, 30d or 8w"),
        (["ses_1", "--max-age", "9" * 5000 + "w"], "12h, 30d or 8w"),
        (["ses_1", "--last", "1", "--protect", "turn=1"], "name the tag alone"),
    ],
    ids=lambda each: " ".join(each)[:40] if isinstance(each, list) else None,
)
def test_wrong_usage_is_said_and_nothing_is_removed(run, world, entries, arguments, word):
    before = entries()
    run("state", "prune", *arguments).misused(word)
    assert entries() == before


def test_what_is_not_there_is_an_error(run, world):
    run("state", "prune", "ses_9", "--last", "1").failed("there is no session")
    run("state", "prune", "ses_shared", "--last", "1").failed("--agent")
    run("state", "prune", "--all", "--agent", "x", "--last", "1").failed("there is no agent 'x'")
