"""``holdfast state diff``."""

from __future__ import annotations

import json

import pytest
from rich.cells import cell_len

from holdfast.cli.diff import shorten_value


def test_diff_shows_entries_and_fields(run, sample):
    ran = run("state", "diff", sample.first, sample.second)
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


def test_diff_backwards_shows_what_returns(run, sample):
    ran = run("state", "diff", f"ses_1@{sample.second}", sample.first)
    assert '    + /-: "compare"' in ran.out


def test_diff_json_is_a_patch(run, sample, document):
    ran = run("state", "diff", sample.first, "incident.json", "--format", "json")
    found = json.loads(ran.out)
    assert {"op": "remove", "path": "/state/values/old"} in found
    assert {"op": "replace", "path": "/state/values/plan/0", "value": "answer"} in found
    assert json.loads(run("state", "diff", "ses_1", "ses_1", "--format", "json").out) == []


def test_equal_states_have_no_difference(run, document):
    assert run("state", "diff", "ses_1", "incident.json").out == "no difference\n"


def test_diff_of_two_files_needs_no_store(run, document, monkeypatch):
    monkeypatch.setenv("HOLDFAST_STORE", "nonsense://")
    assert run("state", "diff", "incident.json", "incident.json").out == "no difference\n"


def test_diff_of_a_shared_session_needs_an_agent(run, sample):
    ran = run("state", "diff", "ses_1", "ses_shared", "--agent", "ann")
    ran.assert_failed("no session 'ses_1' of agent ann")
    assert run("state", "diff", "ses_shared", "ses_shared", "--agent", "ann").code == 0


def test_diff_escapes_slashes_in_keys(run, document):
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
        "    ~ (entire value): 1 → 2",
    ]


def test_shorten_value_says_the_full_length():
    assert shorten_value("x" * 500) == '"' + "x" * 199 + "… (502 characters)"


def test_diff_needs_two_states(run, sample):
    run("state", "diff", "ses_1").assert_usage_error("AFTER")


TALE = "One sentence here. " * 12


@pytest.fixture
def text_documents(run, document):
    """Write two documents whose texts and lists differ."""
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


def test_texts_are_compared_by_line_and_sentence(run, text_documents):
    lines = run("state", "diff", "1.json", "2.json").out.splitlines()
    start = lines.index("~ state/notes")
    assert lines[start : start + 10] == [
        "~ state/notes",
        "    ~ (entire value):",
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
def test_diff_fits_the_terminal(run, text_documents, document, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for arguments in ([], ["--full"], ["--stat"]):
        ran = run("state", "diff", "1.json", "2.json", *arguments)
        assert max(map(cell_len, ran.out.splitlines())) <= width, ran.out


def test_long_values_are_folded_without_full(run, text_documents):
    folded = run("state", "diff", "incident.json", "2.json").out
    assert "more lines" in folded
    full = run("state", "diff", "incident.json", "2.json", "--full").out
    assert "more lines" not in full
    assert full.count("x" * 60) == 80
    assert len(folded.splitlines()) < len(full.splitlines())


def test_stat_shows_entries_without_values(run, text_documents):
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
def test_only_limits_the_diff_to_paths(run, text_documents, paths, entries):
    options = [word for path in paths for word in ("--only", path)]
    ran = run("state", "diff", "1.json", "2.json", *options)
    first, *rest = ran.out.splitlines()
    assert [line for line in rest if line[:1] != " "] == entries
    assert first == "no difference" if not entries else first[0].isdecimal()
    patch = json.loads(run("state", "diff", "1.json", "2.json", *options, "--format", "json").out)
    assert bool(patch) == bool(entries)


def test_invalid_path_is_wrong_usage(run, text_documents):
    run("state", "diff", "1.json", "2.json", "--only", "plan").assert_usage_error(
        "--only", "values.plan"
    )
