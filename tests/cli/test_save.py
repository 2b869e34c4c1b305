"""``holdfast state save``."""

from __future__ import annotations

import json

import pytest


def test_save_prints_the_snapshot_id(run, sample):
    ran = run("state", "save", "ses_1", "--tag", "by=ada", "--tag", "why=a=b")
    assert (ran.code, ran.err) == (0, "")
    snapshot_id = ran.out.strip()
    shown = json.loads(run("state", "show", f"ses_1@{snapshot_id}", "--format", "json").out)
    assert shown["tags"] == {"by": "ada", "why": "a=b"}
    assert run("state", "diff", f"ses_1@{snapshot_id}", "ses_1").out == "no difference\n"
    assert snapshot_id in run("state", "list", "--session", "ses_1", "--format", "json").out
    assert run("state", "verify").code == 0


def test_save_json(run, sample):
    saved = json.loads(run("state", "save", "ses_1", "--tag", "a=1", "--format", "json").out)
    snapshot_id = saved.pop("snapshot_id")
    assert saved == {
        "agent_id": "research-bot",
        "session_id": "ses_1",
        "seq": 10,
        "tags": {"a": "1"},
    }
    assert run("state", "show", f"ses_1@{snapshot_id}").code == 0


def test_save_adds_no_event(run, sample):
    before = run("replay", "ses_1").out
    assert run("state", "save", "ses_1").code == 0
    assert run("replay", "ses_1").out == before


@pytest.mark.parametrize("tag", ["plain", "=value"])
def test_invalid_tag_is_wrong_usage(run, sample, entries, tag):
    before = entries()
    run("state", "save", "ses_1", "--tag", tag).assert_usage_error("K=V", "--tag")
    assert entries() == before


def test_missing_session_is_not_created(run, sample, entries):
    before = entries()
    run("state", "save", "ses_9").assert_failed("no session 'ses_9'", "ses_1")
    run("state", "save", "ses_shared").assert_failed("--agent")
    assert run("state", "save", "ses_1", "--store", "sqlite:///no.db").code == 1
    assert entries() == before
    assert run("state", "save", "ses_shared", "--agent", "ann").code == 0
