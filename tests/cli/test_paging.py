"""Long output on a terminal goes through a pager, and nowhere else does."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

ELSEWHERE = ("NO_COLOR", "LINES", "COLUMNS")
"""What the terminal of whoever runs the tests may have set: a readline in it sets its size."""
DIFF = ("state", "diff", "{first}", "{second}")


@pytest.fixture
def pager(tmp_path):
    """A pager that keeps what it was given."""
    script = tmp_path / "pager.py"
    script.write_text("import sys\nopen('paged.txt', 'w').write(sys.stdin.read())\n")
    return f"{sys.executable} {script}"


@pytest.fixture
def at_terminal(world, tmp_path):
    """Run a command at a terminal of a few lines, and return what stood on it."""

    def call(*arguments: str, lines: int = 5, **variables: str) -> str:
        words = [each.format(first=world.first, second=world.second) for each in arguments]
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


def paged(tmp_path) -> str | None:
    file = tmp_path / "paged.txt"
    return file.read_text() if file.exists() else None


def test_long_output_at_a_terminal_is_shown_by_the_pager(at_terminal, pager, tmp_path):
    shown = at_terminal(*DIFF, PAGER=pager)
    assert shown == ""
    text = paged(tmp_path)
    assert "2 added, 1 removed, 1 changed" in text
    assert "state/plan" in text
    assert "\x1b[" in text  # colours


def test_colours_are_left_out_where_that_is_asked_for(at_terminal, pager, tmp_path):
    at_terminal(*DIFF, PAGER=pager, NO_COLOR="1")
    assert "\x1b[3" not in paged(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [
        (["--no-pager"], {}),
        ([], {"PAGER": "cat"}),
        ([], {"PAGER": ""}),
        ([], {"PAGER": "there-is-no-such-program"}),
        ([], {"TERM": "dumb"}),
    ],
    ids=str,
)
def test_the_pager_can_be_left_out(at_terminal, pager, tmp_path, arguments, variables):
    shown = at_terminal(*DIFF, *arguments, **{"PAGER": pager, **variables})
    assert "2 added, 1 removed, 1 changed" in shown
    assert paged(tmp_path) is None


def test_output_that_fits_the_screen_is_printed(at_terminal, pager, tmp_path):
    shown = at_terminal(*DIFF, lines=50, PAGER=pager)
    assert "state/plan" in shown
    assert paged(tmp_path) is None


def test_output_that_goes_elsewhere_is_never_paged(run, world, pager, tmp_path, monkeypatch):
    monkeypatch.setenv("PAGER", pager)
    monkeypatch.setenv("LINES", "5")
    assert "state/plan" in run("state", "diff", world.first, world.second).out
    assert run("state", "show", "ses_1").out.startswith("Field")
    assert paged(tmp_path) is None


def test_a_pager_that_is_left_early_is_no_error(at_terminal, tmp_path):
    script = tmp_path / "leave.py"
    script.write_text("import os\nos.close(0)\n")
    at_terminal("state", "show", "ses_1", "--values", PAGER=f"{sys.executable} {script}")
