"""``holdfast state diff``."""

from __future__ import annotations

import json

import pytest
from rich.cells import cell_len

from holdfast.cli.diff import shorten_value


def test_entries_and_the_fields_inside_them_are_shown(run, world):
    ran = run("state", "diff", world.first, world.second)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "2 added, 1 removed, 1 changed",
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
        "0 added, 0 removed, 2 changed",
        "~ state/a",
        "    ~ /x~1y/~0: 1 → 2",
        "~ state/b",
        "    ~ (all of it): 1 → 2",
    ]


def test_long_values_are_cut_and_their_length_is_said():
    assert shorten_value("x" * 500) == '"' + "x" * 199 + "… (502 characters)"


def test_one_name_alone_is_wrong_usage(run, world):
    run("state", "diff", "ses_1").misused("AFTER")


TALE = "One sentence here. " * 12


@pytest.fixture
def texts(run, document):
    """Two files whose texts and lists differ."""
    tree = json.loads(document.read_bytes())
    del tree["digest"]
    for number, notes, tale in (
        (1, "first\nsecond\nthird\nfourth\nfifth", TALE + TALE),
        (2, "first\nsecond\nTHIRD\nfourth\nfifth\nsixth", TALE + "A new one! " + TALE),
    ):
        tree["state"]["messages"] = [{"role": "user", "content": tale}]
        tree["state"]["values"] = {
            "notes": notes,
            "plan": {"steps": ["a", "b"][:number], "owner": "ann"},
            "long": ["x" * 60] * (40 * number),
            **({"new": {"deep": {"er": 1}}} if number == 2 else {}),
        }
        changed = {**tree, "events": [], "event_log_count": 0}
        (document.parent / f"{number}.json").write_text(json.dumps(changed))


def test_texts_are_compared_line_by_line_and_long_lines_by_their_sentences(run, texts):
    lines = run("state", "diff", "1.json", "2.json").out.splitlines()
    start = lines.index("~ state/notes")
    assert lines[start : start + 10] == [
        "~ state/notes",
        "    ~ (all of it):",
        "      …",
        "        second",
        "      - third",
        "      + THIRD",
        "        fourth",
        "        fifth",
        "      + sixth",
        "~ state/plan",
    ]
    start = lines.index("    ~ /content:")
    assert lines[start : start + 6] == [
        "    ~ /content:",
        "      …",
        "        One sentence here.",
        "      + A new one!",
        "        One sentence here.",
        "      …",
    ]


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_a_difference_fits_the_terminal(run, texts, document, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in ([], ["--full"], ["--stat"]):
        ran = run("state", "diff", "1.json", "2.json", *arguments)
        assert max(map(cell_len, ran.out.splitlines())) <= width, ran.out


def test_long_values_are_folded_unless_all_of_them_is_asked_for(run, texts):
    folded = run("state", "diff", "incident.json", "2.json").out
    assert "more lines" in folded
    full = run("state", "diff", "incident.json", "2.json", "--full").out
    assert "more lines" not in full
    assert full.count("x" * 60) == 80
    assert len(folded.splitlines()) < len(full.splitlines())


def test_a_statistic_names_entries_without_values(run, texts):
    assert run("state", "diff", "1.json", "2.json", "--stat").out.splitlines() == [
        "1 added, 0 removed, 4 changed",
        "~ messages/000000000000  1 field",
        "~ state/long  40 fields",
        "+ state/new  19 characters",
        "~ state/notes  1 field",
        "~ state/plan  1 field",
    ]
    found = json.loads(run("state", "diff", "1.json", "2.json", "--stat", "--format", "json").out)
    assert (found["added"], found["removed"], found["changed"]) == (1, 0, 4)
    assert found["entries"][-1] == {
        "namespace": "state",
        "key": "plan",
        "kind": "changed",
        "fields": ["/steps/-"],
    }


@pytest.mark.parametrize(
    ("paths", "entries"),
    [
        (["values.plan"], ["~ state/plan"]),
        (["values.plan.steps"], ["~ state/plan"]),
        (["values.plan.owner"], []),
        (["/values/notes"], ["~ state/notes"]),
        (["messages[-1].content"], ["~ messages/000000000000"]),
        (["messages[*].role"], []),
        (["values.new.deep.er"], ["+ state/new"]),
        (["values.new.other"], []),
        (["values.notes", "messages"], ["~ messages/000000000000", "~ state/notes"]),
        (["status"], []),
    ],
)
def test_only_what_the_paths_lead_to_is_shown(run, texts, paths, entries):
    options = [word for path in paths for word in ("--only", path)]
    ran = run("state", "diff", "1.json", "2.json", *options)
    first, *rest = ran.out.splitlines()
    assert [line for line in rest if line[:1] != " "] == entries
    assert first == "no difference" if not entries else first[0].isdecimal()
    patch = json.loads(run("state", "diff", "1.json", "2.json", *options, "--format", "json").out)
    assert bool(patch) == bool(entries)


def test_a_path_that_leads_nowhere_is_wrong_usage(run, texts):
    run("state", "diff", "1.json", "2.json", "--only", "plan").misused("--only", "values.plan")
