"""``holdfast state save``."""

from __future__ import annotations

import json

import pytest


def test_a_snapshot_of_the_committed_state_is_saved_and_its_id_printed(run, world):
    ran = run("state", "save", "ses_1", "--tag", "by=ada", "--tag", "why=a=b")
    assert (ran.code, ran.err) == (0, "")
    snapshot_id = ran.out.strip()
    shown = json.loads(run("state", "show", f"ses_1@{snapshot_id}", "--format", "json").out)
    assert shown["tags"] == {"by": "ada", "why": "a=b"}
    assert run("state", "diff", f"ses_1@{snapshot_id}", "ses_1").out == "no difference\n"
    assert snapshot_id in run("state", "list", "--session", "ses_1", "--format", "json").out
    assert run("state", "verify").code == 0


def test_json_says_what_was_saved(run, world):
    saved = json.loads(run("state", "save", "ses_1", "--tag", "a=1", "--format", "json").out)
    snapshot_id = saved.pop("snapshot_id")
    assert saved == {
        "agent_id": "research-bot",
        "session_id": "ses_1",
        "seq": 10,
        "tags": {"a": "1"},
    }
    assert run("state", "show", f"ses_1@{snapshot_id}").code == 0


def test_no_event_is_added(run, world):
    before = run("replay", "ses_1").out
    assert run("state", "save", "ses_1").code == 0
    assert run("replay", "ses_1").out == before


@pytest.mark.parametrize("tag", ["plain", "=value"])
def test_a_tag_that_is_not_k_v_is_wrong_usage(run, world, entries, tag):
    before = entries()
    run("state", "save", "ses_1", "--tag", tag).misused("K=V", "--tag")
    assert entries() == before


def test_what_is_not_there_is_an_error_and_is_not_made(run, world, entries):
    before = entries()
    run("state", "save", "ses_9").failed("there is no session 'ses_9'", "ses_1")
    run("state", "save", "ses_shared").failed("--agent")
    assert run("state", "save", "ses_1", "--store", "sqlite:///no.db").code == 1
    assert entries() == before
    assert run("state", "save", "ses_shared", "--agent", "ann").code == 0
