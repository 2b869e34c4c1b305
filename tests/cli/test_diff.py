"""``holdfast state diff``."""

from __future__ import annotations

import json

from holdfast.cli.diff import shortened


def test_entries_and_the_fields_inside_them_are_shown(run, world):
    ran = run("state", "diff", world.first, world.second)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "+ messages/000000000001",
        '    {"role": "assistant", "content": "[bold]loud[/] :bug: \\u001b[2J\\\\"}',
        "+ state/card",
        '    {"mail": "ada@example.com"}',
        "- state/old",
        "    1",
        "~ state/plan",
        '    ~ /0: "read" → "answer"',
        '    - /1: "compare"',
    ]


def test_the_other_way_round_shows_what_comes_back(run, world):
    ran = run("state", "diff", f"ses_1@{world.second}", world.first)
    assert '    + /-: "compare"' in ran.out


def test_json_is_a_patch(run, world, document):
    ran = run("state", "diff", world.first, "incident.json", "--format", "json")
    found = json.loads(ran.out)
    assert {"op": "remove", "path": "/state/values/old"} in found
    assert {"op": "replace", "path": "/state/values/plan/0", "value": "answer"} in found
    assert json.loads(run("state", "diff", "ses_1", "ses_1", "--format", "json").out) == []


def test_equal_moments_have_no_difference(run, document):
    assert run("state", "diff", "ses_1", "incident.json").out == "no difference\n"


def test_two_files_need_no_store(run, document, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", "nonsense://")
    assert run("state", "diff", "incident.json", "incident.json").out == "no difference\n"


def test_agents_of_a_shared_session_are_told_apart(run, world):
    ran = run("state", "diff", "ses_1", "ses_shared", "--agent", "ann")
    ran.failed("no session 'ses_1' of the agent ann")
    assert run("state", "diff", "ses_shared", "ses_shared", "--agent", "ann").code == 0


def test_names_with_slashes_are_found_inside_values(run, document):
    tree = json.loads(document.read_bytes())
    del tree["digest"]
    for number in (1, 2):
        tree["state"]["values"] = {"a": {"x/y": {"~": number}}, "b": number}
        (document.parent / f"{number}.json").write_text(json.dumps({**tree, "events": []}))
    ran = run("state", "diff", "1.json", "2.json")
    assert ran.out.splitlines() == [
        "~ state/a",
        "    ~ /x~1y/~0: 1 → 2",
        "~ state/b",
        "    ~ (all of it): 1 → 2",
    ]


def test_long_values_are_cut_and_their_length_is_said():
    assert shortened("x" * 500) == '"' + "x" * 199 + "… (502 characters)"


def test_one_name_alone_is_wrong_usage(run, world):
    run("state", "diff", "ses_1").misused("AFTER")
