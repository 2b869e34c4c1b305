"""``holdfast state prune``."""

from __future__ import annotations

import json

import pytest


def list_snapshots(run) -> list[str]:
    ran = run("state", "list", "--session", "ses_1", "--format", "json")
    return [item["snapshot_id"] for item in json.loads(ran.out)["items"]]


def test_prune_deletes_what_no_rule_keeps(run, sample):
    ran = run("state", "prune", "ses_1", "--last", "1", "--yes")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "research-bot/ses_1: 1 snapshot kept, 1 deleted, with 10 events\n"
    assert list_snapshots(run) == [sample.second]
    assert run("state", "verify").code == 0


def test_dry_run_deletes_nothing(run, sample, entries):
    before = entries()
    ran = run("state", "prune", "ses_1", "--last", "1", "--dry-run")
    assert "1 snapshot kept, 1 would be deleted" in ran.out
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
def test_rules_keep_snapshots(run, sample, rule):
    assert run("state", "prune", "ses_1", *rule).code == 0
    assert list_snapshots(run) == [sample.first, sample.second]


@pytest.mark.parametrize("rule", ["--hourly", "--daily", "--weekly"])
def test_one_snapshot_per_period_is_kept(run, sample, rule):
    assert run("state", "prune", "ses_1", rule, "1", "--yes").code == 0
    assert list_snapshots(run) == [sample.second]


def test_prune_all_sessions(run, sample):
    ran = run("state", "prune", "--all", "--last", "1", "--format", "json", "--yes")
    found = {(each["agent_id"], each["session_id"]): each for each in json.loads(ran.out)}
    assert set(found) == {("ann", "ses_shared"), ("bob", "ses_shared"), ("research-bot", "ses_1")}
    assert found["research-bot", "ses_1"]["removed"] == [sample.first]
    assert {each["scope"] for each in found.values()} == {"agent"}
    ran = run("state", "prune", "--all", "--last", "1", "--agent", "ann")
    assert ran.out.startswith("ann/ses_shared: 0 snapshots kept")


def test_prune_shows_its_plan_and_asks(run, sample, entries):
    before = entries()
    ran = run("state", "prune", "--all", "--last", "1", typed="n\n")
    assert ran.code == 1
    plan, asked = ran.err.splitlines()
    assert plan.startswith("research-bot/ses_1: 1 snapshot kept, 1 would be deleted, with ")
    assert asked == "Delete 1 snapshot of 1 session permanently? [y/N]:aborted; nothing was changed"
    assert entries() == before
    assert run("state", "prune", "--all", "--last", "1", typed="y\n").code == 0
    assert list_snapshots(run) == [sample.second]


@pytest.mark.parametrize("format_", ["table", "json"])
def test_prune_without_a_terminal_needs_yes(run, sample, entries, format_):
    before = entries()
    ran = run("state", "prune", "ses_1", "--last", "1", "--format", format_)
    ran.assert_failed("stdin is not a terminal; pass --yes to confirm")
    assert ran.out == ""
    assert entries() == before


def test_prune_does_not_ask_when_nothing_is_deleted(run, sample):
    assert run("state", "prune", "ses_1", "--last", "2").code == 0


def test_empty_store(run):
    ran = run("state", "prune", "--all", "--last", "1", "--store", "memory:")
    assert ran.out == "no sessions\n"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--last", "1"], "pass either SESSION or --all"),
        (["ses_1", "--all", "--last", "1"], "pass either SESSION or --all"),
        (["ses_1"], "no retention rule was given"),
        (["ses_1", "--last", "-1"], "--last"),
        (["ses_1", "--max-age", "soon"], "12h, 30d or 8w"),
        (["ses_1", "--max-age", "9" * 30 + "w"], "12h, 30d or 8w"),
        (["ses_1", "--max-age", "9" * 5000 + "w"], "12h, 30d or 8w"),
        (["ses_1", "--last", "1", "--protect", "turn=1"], "pass the name without a value"),
    ],
    ids=lambda each: " ".join(each)[:40] if isinstance(each, list) else None,
)
def test_wrong_usage_deletes_nothing(run, sample, entries, arguments, word):
    before = entries()
    run("state", "prune", *arguments).assert_usage_error(word)
    assert entries() == before


def test_missing_session_or_agent_is_an_error(run, sample):
    run("state", "prune", "ses_9", "--last", "1").assert_failed("no session")
    run("state", "prune", "ses_shared", "--last", "1").assert_failed("--agent")
    run("state", "prune", "--all", "--agent", "x", "--last", "1").assert_failed("no agent 'x'")
