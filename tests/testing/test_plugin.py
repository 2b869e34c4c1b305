"""The plugin of pytest, as somebody's own tests use it: pytest runs in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from holdfast import Document
from holdfast.documents.json_file import read_json_file

TEST = """
from holdfast.testing import assert_matches_baseline

def test_greeting(holdfast_session):
    session = holdfast_session()
    session.add_message("user", {text!r}, id={number})
    session.set("started_at", {number})
    session.set("plan", {{"steps": ["a", "b"], "range": (1, {number})}})
    assert_matches_baseline(session, "baseline.json", ignore={ignore})
"""


@pytest.fixture
def ran(tmp_path):
    """Writes a test and runs pytest on it: the exit code and what was printed."""

    def run(code, *options, name="test_it.py", plugin="holdfast.pytest_plugin"):
        (tmp_path / name).write_text(code)
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-p", plugin, "-W", "error"),
                *("-p", "no:cacheprovider", "--rootdir", str(tmp_path), *options, name),
            ],
            cwd=tmp_path,
            # No other plugin, and this one is not loaded a second time by its entry point.
            env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def greeting(text="Hello", number=1, ignore=()):
    return TEST.format(text=text, number=number, ignore=list(ignore))


def read(path):
    return Document.from_dict(read_json_file(path))


def test_a_missing_baseline_fails_and_says_how_to_write_it(ran, tmp_path):
    code, printed = ran(greeting())
    assert code == 1
    assert f"there is no baseline {tmp_path / 'baseline.json'}" in printed
    assert "run pytest --holdfast-update to write it" in printed
    assert not (tmp_path / "baseline.json").exists()


def test_a_baseline_is_written_and_then_matched(ran, tmp_path):
    code, printed = ran(greeting(), "--holdfast-update")
    assert code == 0, printed
    assert "holdfast baselines" in printed
    assert "wrote baseline.json" in printed
    written = (tmp_path / "baseline.json").read_bytes()
    assert read(tmp_path / "baseline.json").state.messages[0]["content"] == "Hello"

    code, printed = ran(greeting())
    assert code == 0, printed
    assert "holdfast baselines" not in printed

    # What matches is left as it is, so that version control shows what has changed.
    code, printed = ran(greeting(), "--holdfast-update")
    assert code == 0
    assert "holdfast baselines" not in printed
    assert (tmp_path / "baseline.json").read_bytes() == written


def test_a_difference_is_shown_place_by_place_and_can_be_taken_over(ran, tmp_path):
    ran(greeting(), "--holdfast-update")
    changed = greeting("Good morning", 2) + "\n"
    changed = changed.replace('["a", "b"]', '["a", "c", "d"]')
    changed = changed.replace(
        "    assert_matches",
        "    session.set('new', 7)\n    session.delete('plan.x')\n    assert_matches",
    )
    code, printed = ran(changed)
    assert code == 1
    shown = [line[2:].strip() for line in printed.splitlines() if line.startswith("E  ")]
    assert (
        f"AssertionError: the state differs from the baseline {tmp_path}/baseline.json in 7 places:"
        in shown
    )
    at = shown.index("~ messages[0].content")
    assert shown[at + 1 : at + 3] == ['- "Hello"', '+ "Good morning"']
    for line in ("~ messages[0].id", "~ values.plan.steps[1]", "~ values.plan.range[1]"):
        assert line in shown
    for line in ("+ values.plan.steps[2]", "~ values.started_at", "+ values.new"):
        assert line in shown
    assert "pytest --holdfast-update to make it the baseline." in shown
    assert "baselines.py" not in printed  # nothing of ours in the traceback

    code, printed = ran(changed, "--holdfast-update")
    assert code == 0
    assert "updated baseline.json" in printed
    assert ran(changed)[0] == 0


def test_what_is_ignored_may_differ(ran):
    ignore = ["values.started_at", "messages[*].id", "/values/plan/range/1"]
    ran(greeting(ignore=ignore), "--holdfast-update")
    assert ran(greeting(number=2, ignore=ignore))[0] == 0
    code, printed = ran(greeting("Hi", 2, ignore))
    assert code == 1
    assert "in 1 place:" in printed


def test_a_wrong_path_to_ignore_is_an_error(ran):
    code, printed = ran(greeting(ignore=["started_at"]), "--holdfast-update")
    assert code == 1
    assert "did you mean values.started_at?" in printed


RESTORED = """
from holdfast import Document

def test_it(holdfast_session):
    session = holdfast_session("{path}")
    assert session.messages[0]["content"] == "Hello"
    session.add_message("assistant", "Good morning")
    session.commit()
    again = holdfast_session(session.export(), session_id="other", agent_id="bot")
    assert (again.session_id, again.agent_id, again.message_count) == ("other", "bot", 2)
    assert again.verify().ok
    empty = holdfast_session()
    assert (empty.messages, empty.agent_id) == ([], "agent")
    named = holdfast_session(agent_id="critic", session_id="ses_1")
    named.set("x", 1)
    assert (named.agent_id, named.session_id) == ("critic", "ses_1")
    global stores
    stores = [each.state_store for each in (session, again, empty, named)]

def test_all_of_them_were_closed():
    import asyncio, pytest
    from holdfast import StateStoreError
    for store in stores:
        with pytest.raises(StateStoreError, match="closed"):
            asyncio.run(store.get("x"))
"""


def test_a_session_is_restored_from_a_document_and_closed_at_the_end(ran, tmp_path):
    ran(greeting(), "--holdfast-update")
    code, printed = ran(RESTORED.format(path="baseline.json"))
    assert code == 0, printed


def test_paths_are_relative_to_the_folder_of_the_test(ran, tmp_path):
    (tmp_path / "inner").mkdir()
    code, printed = ran(
        greeting().replace("baseline.json", "data/b.json.gz"),
        "--holdfast-update",
        name="inner/test_inner.py",
    )
    assert code == 0, printed
    assert "wrote inner/data/b.json.gz" in printed
    code, printed = ran(RESTORED.format(path="data/b.json.gz"), name="inner/test_inner.py")
    assert code == 0, printed


def test_a_session_of_several_agents_is_restored_as_one(ran, tmp_path):
    code, printed = ran(
        """
from holdfast import BlockingSession
from holdfast.testing import assert_matches_baseline

def test_it(holdfast_session):
    with BlockingSession.open("memory:", agent_id="crew", scope="multi_agent") as crew:
        crew.agent("writer").add_message("assistant", "draft")
        assert_matches_baseline(crew, "crew.json", update=True)
    again = holdfast_session("crew.json")
    assert again.agents == ["writer"]
    assert_matches_baseline(again, "crew.json")
"""
    )
    assert code == 0, printed


def test_baselines_that_workers_wrote_are_in_the_summary(ran, tmp_path):
    pytest.importorskip("xdist")
    code, printed = ran(greeting(), "--holdfast-update", "-p", "xdist.plugin", "-n", "1")
    assert code == 0, printed
    assert "wrote baseline.json" in printed


def test_a_damaged_baseline_is_an_error_until_it_is_written_anew(ran, tmp_path):
    (tmp_path / "baseline.json").write_text("{")
    code, printed = ran(greeting())
    assert code == 1
    assert "is not JSON, or is truncated" in printed
    code, printed = ran(greeting(), "--holdfast-update")
    assert code == 0
    assert "updated baseline.json" in printed


def test_a_baseline_may_be_edited_by_hand(ran, tmp_path):
    ran(greeting(), "--holdfast-update")
    path = tmp_path / "baseline.json"
    tree = json.loads(path.read_text())
    tree["state"]["messages"][0]["content"] = "Hi"
    path.write_text(json.dumps(tree))
    assert ran(greeting("Hi"))[0] == 0


BARE = """
import sys

def test_nothing_heavy_was_imported():
    assert not {"hypothesis", "asyncio", "holdfast.sessions", "holdfast.testing"} & set(sys.modules)
"""


def test_the_plugin_costs_those_who_do_not_use_it_nothing(ran):
    code, printed = ran(BARE)
    assert code == 0, printed


def test_the_plugin_works_where_hypothesis_is_missing(ran, tmp_path):
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['hypothesis'] = None\n")
    code, printed = ran(
        "def test_it(holdfast_session):\n    holdfast_session().add_message('user', 'x')\n",
    )
    assert code == 0, printed


def test_the_option_and_the_fixture_are_documented_by_pytest(ran):
    code, printed = ran("", "--help")
    assert code == 0
    assert "--holdfast-update" in printed
    code, printed = ran("", "--fixtures")
    assert "holdfast_session" in printed
    assert "gives a session in memory" in printed
