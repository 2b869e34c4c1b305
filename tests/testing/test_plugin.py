"""The pytest plugin, in test files as users write them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

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


ARGUMENTS = ("-p", "holdfast.pytest_plugin", "-W", "error", "-p", "no:cacheprovider")


@pytest.fixture
def run_pytest(tmp_path, monkeypatch, capsys):
    """Write a test file and run pytest on it in this process; return exit code and output."""
    # Load no other plugin, and not this one again by its entry point.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file may change within a second
    monkeypatch.chdir(tmp_path)

    def run(code, *options, name="test_it.py"):
        (tmp_path / name).write_text(code)
        capsys.readouterr()
        paths = ("--rootdir", str(tmp_path), "--import-mode", "importlib")
        result = pytest.main([*ARGUMENTS, "-s", *paths, *options, name])
        printed = capsys.readouterr()
        for module in [each for each in sys.modules if each.rpartition(".")[2] == Path(name).stem]:
            del sys.modules[module]  # the next run imports the changed file
        return int(result), printed.out + printed.err

    return run


@pytest.fixture
def run_process(tmp_path, monkeypatch):
    """The same in a new process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    def run(code, *options, name="test_it.py"):
        (tmp_path / name).write_text(code)
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *ARGUMENTS, *options, name],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def make_test(text="Hello", number=1, ignore=()):
    return TEST.format(text=text, number=number, ignore=list(ignore))


def read_baseline(path):
    return Document.from_dict(read_json_file(path))


def test_missing_baseline_fails_with_a_hint(run_pytest, tmp_path):
    code, printed = run_pytest(make_test())
    assert code == 1
    assert f"no baseline {tmp_path / 'baseline.json'}" in printed
    assert "run pytest --holdfast-update to write it" in printed
    assert not (tmp_path / "baseline.json").exists()


def test_baseline_is_written_and_then_matched(run_pytest, tmp_path):
    code, printed = run_pytest(make_test(), "--holdfast-update")
    assert code == 0, printed
    assert "holdfast baselines" in printed
    assert "wrote baseline.json" in printed
    written = (tmp_path / "baseline.json").read_bytes()
    assert read_baseline(tmp_path / "baseline.json").state.messages[0]["content"] == "Hello"

    code, printed = run_pytest(make_test())
    assert code == 0, printed
    assert "holdfast baselines" not in printed

    # A baseline that matches is not rewritten.
    code, printed = run_pytest(make_test(), "--holdfast-update")
    assert code == 0
    assert "holdfast baselines" not in printed
    assert (tmp_path / "baseline.json").read_bytes() == written


def test_differences_are_reported_and_can_be_accepted(run_pytest, tmp_path):
    run_pytest(make_test(), "--holdfast-update")
    changed = make_test("Good morning", 2) + "\n"
    changed = changed.replace('["a", "b"]', '["a", "c", "d"]')
    changed = changed.replace(
        "    assert_matches",
        "    session.set('new', 7)\n    session.delete('plan.x')\n    assert_matches",
    )
    code, printed = run_pytest(changed)
    assert code == 1
    shown = [line[2:].strip() for line in printed.splitlines() if line.startswith("E  ")]
    assert (
        f"AssertionError: state differs from baseline {tmp_path}/baseline.json in 7 places:"
        in shown
    )
    at = shown.index("~ messages[0].content")
    assert shown[at + 1 : at + 3] == ['- "Hello"', '+ "Good morning"']
    for line in ("~ messages[0].id", "~ values.plan.steps[1]", "~ values.plan.range[1]"):
        assert line in shown
    for line in ("+ values.plan.steps[2]", "~ values.started_at", "+ values.new"):
        assert line in shown
    assert "pytest --holdfast-update to update the baseline." in shown
    assert "baselines.py" not in printed  # the traceback hides our code

    code, printed = run_pytest(changed, "--holdfast-update")
    assert code == 0
    assert "updated baseline.json" in printed
    assert run_pytest(changed)[0] == 0


def test_ignored_paths_may_differ(run_pytest):
    ignore = ["values.started_at", "messages[*].id", "/values/plan/range/1"]
    run_pytest(make_test(ignore=ignore), "--holdfast-update")
    assert run_pytest(make_test(number=2, ignore=ignore))[0] == 0
    code, printed = run_pytest(make_test("Hi", 2, ignore))
    assert code == 1
    assert "in 1 place:" in printed


def test_invalid_ignore_path_is_an_error(run_pytest):
    code, printed = run_pytest(make_test(ignore=["started_at"]), "--holdfast-update")
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

def test_all_were_closed():
    import asyncio, pytest
    from holdfast import StateStoreError
    for store in stores:
        with pytest.raises(StateStoreError, match="closed"):
            asyncio.run(store.get("x"))
"""


def test_session_is_restored_and_closed(run_pytest, tmp_path):
    run_pytest(make_test(), "--holdfast-update")
    code, printed = run_pytest(RESTORED.format(path="baseline.json"))
    assert code == 0, printed


def test_paths_are_relative_to_the_test(run_pytest, tmp_path):
    (tmp_path / "inner").mkdir()
    code, printed = run_pytest(
        make_test().replace("baseline.json", "data/b.json.gz"),
        "--holdfast-update",
        name="inner/test_inner.py",
    )
    assert code == 0, printed
    assert "wrote inner/data/b.json.gz" in printed
    code, printed = run_pytest(RESTORED.format(path="data/b.json.gz"), name="inner/test_inner.py")
    assert code == 0, printed


def test_multi_agent_session_is_restored(run_pytest, tmp_path):
    code, printed = run_pytest(
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


def test_summary_includes_baselines_of_xdist_workers(run_process, tmp_path):
    pytest.importorskip("xdist")
    code, printed = run_process(make_test(), "--holdfast-update", "-p", "xdist.plugin", "-n", "1")
    assert code == 0, printed
    assert "wrote baseline.json" in printed


def test_damaged_baseline_is_an_error_without_update(run_pytest, tmp_path):
    (tmp_path / "baseline.json").write_text("{")
    code, printed = run_pytest(make_test())
    assert code == 1
    assert "is not JSON, or is truncated" in printed
    code, printed = run_pytest(make_test(), "--holdfast-update")
    assert code == 0
    assert "updated baseline.json" in printed


def test_baseline_may_be_edited(run_pytest, tmp_path):
    run_pytest(make_test(), "--holdfast-update")
    path = tmp_path / "baseline.json"
    tree = json.loads(path.read_text())
    tree["state"]["messages"][0]["content"] = "Hi"
    path.write_text(json.dumps(tree))
    assert run_pytest(make_test("Hi"))[0] == 0


BARE = """
import sys

def test_imports():
    assert not {"hypothesis", "asyncio", "holdfast.sessions", "holdfast.testing"} & set(sys.modules)
"""


def test_plugin_imports_nothing_heavy(run_process):
    code, printed = run_process(BARE)
    assert code == 0, printed


def test_plugin_works_without_hypothesis(run_process, tmp_path):
    (tmp_path / "conftest.py").write_text("import sys\nsys.modules['hypothesis'] = None\n")
    code, printed = run_process(
        "def test_it(holdfast_session):\n    holdfast_session().add_message('user', 'x')\n",
    )
    assert code == 0, printed


def test_option_and_fixture_have_help(run_pytest):
    code, printed = run_pytest("", "--help")
    assert code == 0
    assert "--holdfast-update" in printed
    code, printed = run_pytest("", "--fixtures")
    assert "holdfast_session" in printed
    assert "opens an in-memory session" in printed
