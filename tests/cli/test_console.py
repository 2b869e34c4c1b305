"""Errors, hints, prompts and output."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
import threading

import pytest
import typer

import holdfast
from holdfast.cli import references, show
from holdfast.cli.console import (
    confirm,
    escape_control_codes,
    format_count,
    print_json,
    print_line,
    restore_sigint,
)
from holdfast.documents.errors import ModifiedDocumentError
from holdfast.extras import MissingExtraError
from holdfast.stores.urls import StoreURLError


@pytest.fixture
def run_failing(run, sample, monkeypatch):
    """Run a command that raises an error."""

    def call(error: BaseException):
        async def load(*_, **__):
            raise error

        monkeypatch.setattr(show, "load_document", load)
        return run("state", "show", "ses_1")

    return call


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(28, "No space left on device"), "check that the path exists"),
        (PermissionError(13, "Permission denied", "/x"), "check that the path exists"),
        (ValueError("[red]two\nlines[/]"), "--help"),
        (TypeError("what"), "--help"),
        (RuntimeError("odd"), "unexpected RuntimeError"),
        (KeyError("x"), "unexpected KeyError"),
        (RecursionError(), "RecursionError"),
        (MemoryError(), "MemoryError"),
        (ConnectionResetError(), "check that"),
        (holdfast.HoldfastError("plain"), "--help"),
        (holdfast.NotFoundError("none"), "state list"),
        (holdfast.ConflictError("two"), "another writer"),
        (holdfast.UnsupportedValueError("type"), "register_type"),
        (holdfast.InvalidDocumentError("bad"), "get another copy, or fix"),
        (ModifiedDocumentError("bad"), "--allow-modified"),
        (holdfast.IntegrityError("bad"), "state verify"),
        (holdfast.StateStoreError("down"), "doctor"),
        (StoreURLError("no", suggestion="sqlite:///s.db"), "did you mean sqlite:///s.db?"),
        (StoreURLError("no"), "use a URL such as"),
        (MissingExtraError("redis"), "pip install 'holdfast[redis]'"),
        (BrokenPipeError(32, "Broken pipe"), "check that the path exists"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else None,
)
def test_error_is_one_line_and_a_hint(run_failing, error, hint):
    run_failing(error).assert_failed(hint)


def test_error_shows_markup_literally(run_failing):
    assert run_failing(ValueError("[red]x[/] \x1b[2J")).err.startswith(
        "error: [red]x[/] \\x1b[2J\n"
    )


def test_interrupted_command_exits_with_130(run_failing):
    ran = run_failing(KeyboardInterrupt())
    assert (ran.code, ran.err) == (130, "interrupted\n")


def test_traceback_variable_raises_the_error(run_failing, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="odd"):
        run_failing(RuntimeError("odd"))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("s.db", "sqlite:///s.db"),
        ("/var/lib/s.sqlite", "sqlite:////var/lib/s.sqlite"),
        ("sqlite://s.db", "sqlite:///s.db"),
        ("sqlite:s.db", "sqlite:///s.db"),
        ("sqlite:///:memory:", "memory:"),
        ("./agents", "file:./agents"),
        ("/var/lib/agents", "file:///var/lib/agents"),
    ],
)
def test_path_instead_of_a_url_gets_a_suggestion(run, monkeypatch, given, meant):
    run("state", "list", "--store", given).assert_failed(f"hint: did you mean {meant}?")
    monkeypatch.setenv("HOLDFAST_STORE", given)
    run("state", "list").assert_failed(f"hint: did you mean {meant}?")


def test_hint_does_not_repeat_a_possible_password(run):
    ran = run("state", "list", "--store", "hunter2")
    ran.assert_failed("use a URL such as")
    assert "hunter2" not in ran.err


def test_format_count_uses_singular_and_plural():
    assert [format_count(number, "session") for number in (0, 1, 2)] == [
        "0 sessions",
        "1 session",
        "2 sessions",
    ]
    assert [format_count(number, "new entry") for number in (1, 1234)] == [
        "1 new entry",
        "1,234 new entries",
    ]


def test_escape_control_codes_keeps_readable_text():
    assert escape_control_codes("a\x1b[2J\r\n\x9b\u202e\ud800") == r"a\x1b[2J\r\n\x9b\u202e\ud800"
    assert escape_control_codes("Grüße, 東京 👩‍💻 [b]") == "Grüße, 東京 👩‍💻 [b]"


def test_print_line_does_not_wrap(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_line("word " * 40 + "end")
    assert capsys.readouterr().out == "word " * 40 + "end\n"


def test_json_is_utf_8_on_any_terminal(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    print_json({"ü": "\udcff"})
    assert json.loads(written.getvalue().decode()) == {"ü": "\udcff"}


def test_ctrl_c_interrupts_confirm_at_once(monkeypatch):
    def typed(_, **options):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)
        raise AssertionError("the prompt was not interrupted")

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stdin", Terminal())
    monkeypatch.setattr(typer, "confirm", typed)
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt):
            confirm("Really?", yes=False)
        with restore_sigint():
            assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_at_a_prompt_changes_nothing(run, sample, entries, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    asking = sys.modules[typer.confirm.__module__]
    monkeypatch.setattr(asking, "visible_prompt_func", interrupted)
    before = entries()
    ran = run("state", "delete", "ses_1", typed="y")
    assert ran.code == 130
    assert ran.err.endswith(" permanently? [y/N]:\ninterrupted\n")
    assert entries() == before


def test_closed_stdout_is_an_error(run, sample, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    run("state", "list", "--format", "json").assert_failed("stdout is closed")
    run("state", "export", "research-bot", "-o", "-").assert_failed("stdout is closed")
    assert run("state", "list").code == 0


def test_json_escapes_control_codes(capsysbinary):
    odd = "a\x1b\x7f\x9b2J\u202e\u2028\ud800 Grüße, 👩‍💻"
    print_json({odd: [odd]})
    text = capsysbinary.readouterr().out.decode()
    assert json.loads(text) == {odd: [odd]}
    assert escape_control_codes(text.replace("\n", "")) == text.replace("\n", "")
    assert "Grüße, 👩‍💻" in text


def test_remote_store_is_opened_without_checking_a_path():
    store = references.open_existing_store("redis://localhost:1/0")
    assert "redis" in repr(store)


class Unbuffered(io.RawIOBase):
    """Writes a few bytes per call, as a pipe may."""

    def __init__(self):
        super().__init__()
        self.taken = b""

    def writable(self):
        return True

    def write(self, data):
        self.taken += bytes(data[:7])
        return len(data[:7])


def test_json_is_written_completely_to_an_unbuffered_stdout(monkeypatch):
    raw = Unbuffered()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "utf-8", write_through=True))
    print_json(list(range(100)))
    assert json.loads(raw.taken) == list(range(100))


def test_confirm_fails_without_stdin(run, sample, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(typer.Exit) as ended:
        confirm("Really?", yes=False)
    assert ended.value.exit_code == 1
    assert "stdin is not a terminal; pass --yes to confirm" in capsys.readouterr().err
