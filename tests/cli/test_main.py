"""The commands together: help, version, completion, and real processes."""

from __future__ import annotations

import builtins
import io
import os
import subprocess
import sys

import pytest

import holdfast
from holdfast import console_script
from holdfast.cli.main import KEYS_VERBS, STATE_VERBS, VERBS

COMMANDS = [
    *(["state", verb] for verb in STATE_VERBS),
    *(["keys", verb] for verb in KEYS_VERBS),
    *([verb] for verb in VERBS),
]


def process(*arguments: str, **options) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        capture_output=True,
        check=False,
        env=environment,
        **options,
    )


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_help_of_every_command_has_an_example(run, command):
    ran = run(*command, "--help")
    assert (ran.code, ran.err) == (0, "")
    text = " ".join(ran.out.split())
    assert f"Usage: holdfast {' '.join(command)} [OPTIONS]" in text
    assert f"Example: holdfast {' '.join(command)}" in text
    assert "[[" not in text


@pytest.mark.parametrize("command", [[], ["state"]], ids=["holdfast", "state"])
def test_without_a_command_there_is_help(run, command):
    ran = run(*command)
    assert "Usage: holdfast" in ran.out + ran.err
    assert "Commands:" in ran.out + ran.err


def test_the_version_is_printed(run):
    ran = run("--version")
    assert (ran.code, ran.out) == (0, f"holdfast {holdfast.__version__}\n")


@pytest.mark.parametrize(
    "arguments", [["what"], ["state", "what"], ["state", "list", "--what"], ["copy"]], ids=" ".join
)
def test_wrong_usage_ends_with_2(run, arguments):
    run(*arguments).misused()


def test_completion_is_shown_and_nothing_is_installed(tmp_path):
    home = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = process("--show-completion", "bash", env=home)
    assert done.returncode == 0
    assert b"_HOLDFAST_COMPLETE" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_process_ends_with_the_codes_and_writes_where_it_should(tmp_path):
    done = process("state", "list", "--store", "memory:", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"nothing here yet\n", b"")
    done = process("state", "show", b"\xff.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.startswith(b"error: there is no file \\udcff.json\nhint: ")
    done = process("state", "prune", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"Usage: holdfast state prune" in done.stderr


def test_characters_that_a_terminal_lacks_are_spelled_out(world, tmp_path):
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = process("state", "diff", world.first, world.second, cwd=tmp_path, env=ascii_only)
    assert done.returncode == 0
    assert rb'"read" \u2192 "answer"' in done.stdout


def test_a_reader_that_has_seen_enough_is_no_error(world, tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        for format_ in ("json", "table"):
            done = subprocess.run(
                [sys.executable, "-m", "holdfast", "replay", "ses_1", "--format", format_],
                stdout=writing,
                stderr=subprocess.PIPE,
                check=False,
                cwd=tmp_path,
            )
            assert (done.returncode, done.stderr) == (0, b"")
    finally:
        os.close(writing)


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
def test_ctrl_c_while_the_commands_are_imported_is_no_traceback(monkeypatch, capsys, has_errors):
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


def test_the_script_runs_the_command_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["holdfast", "--version"])
    with pytest.raises(SystemExit) as ended:
        console_script.main()
    assert not ended.value.code
    assert capsys.readouterr().out == f"holdfast {holdfast.__version__}\n"


def test_a_stream_of_another_kind_is_left_as_it_is(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit):
        console_script.main(["--version"])
    assert stream.getvalue().startswith("holdfast ")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("holdfast st", ["state"]),
        ("holdfast state ex", ["export"]),
        ("holdfast state list --format ", ["table", "json"]),
        ("holdfast copy --me", ["--mend"]),
    ],
)
def test_the_shell_completes_commands_options_and_choices(line, offered):
    words = line.split(" ")
    asked = {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    # The name of the program is what the completion is known by.
    run = "import holdfast.console_script as c; c.main([])"
    done = subprocess.run(
        [sys.executable, "-c", run], capture_output=True, check=False, env={**os.environ, **asked}
    )
    assert done.stdout.decode().split() == offered, done.stderr


@pytest.mark.parametrize("terminal", [{"TERM": "dumb"}, {"COLUMNS": "1"}, {"NO_COLOR": "1"}])
def test_odd_terminals_get_the_same_words(world, tmp_path, terminal):
    usual = process("state", "verify", cwd=tmp_path)
    done = process("state", "verify", cwd=tmp_path, env=terminal)
    assert (done.returncode, done.stdout, done.stderr) == (0, usual.stdout, b"")
