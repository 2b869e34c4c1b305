"""Help, version, exit codes, and real processes."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys

import pytest

import holdfast
from holdfast import console_script
from holdfast.cli.main import KEYS_VERBS, STATE_VERBS, VERBS, WORKSPACE_VERBS

COMMANDS = [
    *(["state", verb] for verb in STATE_VERBS),
    *(["keys", verb] for verb in KEYS_VERBS),
    *(["workspace", verb] for verb in WORKSPACE_VERBS),
    *([verb] for verb in VERBS),
]


def run_process(*arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        capture_output=True,
        check=False,
        env=environment,
        **options,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example(run, command):
    ran = run(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    text = " ".join(ran.out.split())
    assert f"Usage: holdfast {' '.join(command)} [OPTIONS]" in text
    assert f"Example: holdfast {' '.join(command)}" in text
    assert "[[" not in text


@pytest.mark.parametrize("command", [[], ["state"]], ids=["holdfast", "state"])
def test_no_command_prints_help(run, command):
    ran = run(*command)
    assert "Usage: holdfast" in ran.out + ran.err
    assert "Commands:" in ran.out + ran.err


def test_version(run):
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"holdfast {holdfast.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["what"], ["state", "what"], ["state", "list", "--what"], ["copy"]], ids=" ".join
)
def test_wrong_usage_exits_with_2(run, arguments):
    run(*arguments).assert_usage_error()


def test_show_completion_installs_nothing(tmp_path):
    home = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = run_process("--show-completion", "bash", env=home)
    assert done.returncode == 0
    assert b"_HOLDFAST_COMPLETE" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_exit_codes_and_streams_of_a_process(tmp_path):
    done = run_process("state", "list", "--store", "memory:", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"no sessions\n", b"")
    done = run_process("state", "show", b"\xff.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: no file \\udcff.json\nhint: ")
    done = run_process("state", "prune", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Usage: holdfast state prune" in done.stderr


def test_unencodable_characters_are_escaped(sample, tmp_path):
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = run_process("state", "diff", sample.first, sample.second, cwd=tmp_path, env=ascii_only)
    assert done.returncode == 0
    assert rb'"read" \u2192 "answer"' in done.stdout


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_the_error_names_the_missing_extra(monkeypatch, missing):
    import_ = builtins.__import__

    def lacking(name, *rest):
        if name == "holdfast.cli.main":
            raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)
        return import_(name, *rest)

    monkeypatch.setattr(builtins, "__import__", lacking)
    with pytest.raises(
        SystemExit,
        match=rf"\({missing} is not installed\); pip install 'holdfast\[cli",
    ):
        console_script.main()


@pytest.mark.parametrize("has_errors", [True, False], ids=["stderr", "no stderr"])
def test_ctrl_c_during_import_prints_no_traceback(monkeypatch, capsys, has_errors):
    def interrupted(name, *rest):
        raise KeyboardInterrupt

    if not has_errors:
        monkeypatch.setattr(sys, "stderr", None)
    monkeypatch.setattr(builtins, "__import__", interrupted)
    with pytest.raises(SystemExit) as ended:
        console_script.main()
    monkeypatch.undo()
    assert ended.value.code == 130
    assert capsys.readouterr() == ("", "interrupted\n" if has_errors else "")


def test_console_script_runs(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["holdfast", "--version"])
    with pytest.raises(SystemExit) as ended:
        console_script.main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


def test_replaced_stdout_is_left_alone(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit):
        console_script.main(["--version"])
    assert stream.getvalue().startswith("holdfast ")


def test_output_is_the_same_on_unusual_terminals(sample, tmp_path):
    usual = run_process("state", "verify", cwd=tmp_path)
    unusual = {"TERM": "dumb", "COLUMNS": "1", "NO_COLOR": "1"}
    done = run_process("state", "verify", cwd=tmp_path, env=unusual)
    assert (done.returncode, done.stdout, done.stderr) == (0, usual.stdout, b"")
