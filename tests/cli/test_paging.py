"""Paging of long output on a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

from holdfast.cli.paging import pager_command

ELSEWHERE = ("NO_COLOR", "LINES", "COLUMNS")
"""Variables that the terminal of the test run may have set."""
DIFF = ("state", "diff", "{first}", "{second}")


class TerminalOutput(io.StringIO):
    """A stdout that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def pager(tmp_path):
    """A pager that writes its input to a file."""
    script = tmp_path / "pager.py"
    script.write_text("import sys\nopen('paged.txt', 'w').write(sys.stdin.read())\n")
    return f"{sys.executable} {script}"


@pytest.fixture
def run_at_terminal(sample, tmp_path):
    """Run a command on a small terminal, and return what it displayed."""

    def call(*arguments: str, lines: int = 5, **variables: str) -> str:
        words = [each.format(first=sample.first, second=sample.second) for each in arguments]
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, 80, 0, 0))
        environment = {key: each for key, each in os.environ.items() if key not in ELSEWHERE}
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=tmp_path,
            env={**environment, "TERM": "xterm-256color", **variables},
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                chunk = os.read(ours, 65536)
            except OSError:  # the other end was closed
                break
            if not chunk:
                break
            shown += chunk
        os.close(ours)
        assert process.wait(timeout=60) == 0, shown
        return shown.decode()

    return call


def read_paged(tmp_path) -> str | None:
    file = tmp_path / "paged.txt"
    return file.read_text() if file.exists() else None


def test_long_output_is_paged(run_at_terminal, pager, tmp_path):
    shown = run_at_terminal(*DIFF, PAGER=pager)
    assert shown == ""
    text = read_paged(tmp_path)
    assert "2 added, 1 removed, 1 changed" in text
    assert "state/plan" in text
    assert "\x1b[" in text  # colours


def test_no_color_is_respected_by_the_pager(run_at_terminal, pager, tmp_path):
    run_at_terminal(*DIFF, PAGER=pager, NO_COLOR="1")
    assert "\x1b[3" not in read_paged(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--no-pager"], {}),
        ([], {"PAGER": "no-such-program"}),
    ],
    ids=str,
)
def test_pager_can_be_disabled(run_at_terminal, pager, tmp_path, arguments, variables):
    shown = run_at_terminal(*DIFF, *arguments, **{"PAGER": pager, **variables})
    assert "2 added, 1 removed, 1 changed" in shown
    assert read_paged(tmp_path) is None


@pytest.mark.parametrize(("variable", "value"), [("PAGER", ""), ("PAGER", "cat"), ("TERM", "dumb")])
def test_pager_command_is_none(monkeypatch, variable, value):
    monkeypatch.setattr(sys, "stdout", TerminalOutput())
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("PAGER", sys.executable)
    assert pager_command() == [sys.executable]
    monkeypatch.setenv(variable, value)
    assert pager_command() is None


def test_short_output_is_not_paged(run_at_terminal, pager, tmp_path):
    shown = run_at_terminal(*DIFF, lines=50, PAGER=pager)
    assert "state/plan" in shown
    assert read_paged(tmp_path) is None


def test_redirected_output_is_not_paged(run, sample, pager, tmp_path, monkeypatch):
    monkeypatch.setenv("PAGER", pager)
    monkeypatch.setenv("LINES", "5")
    assert "state/plan" in run("state", "diff", sample.first, sample.second).out
    assert run("state", "show", "ses_1").out.startswith("Field")
    assert read_paged(tmp_path) is None


def test_pager_may_exit_early(run_at_terminal, tmp_path):
    script = tmp_path / "leave.py"
    script.write_text("import os\nos.close(0)\n")
    run_at_terminal("state", "show", "ses_1", "--values", PAGER=f"{sys.executable} {script}")
