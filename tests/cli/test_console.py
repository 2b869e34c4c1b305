"""How errors end a command, and how it asks."""

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
from holdfast.extras import MissingExtraError
from holdfast.stores.urls import StoreURLError


@pytest.fixture
def failing(run, world, monkeypatch):
    """A command in which something goes wrong."""

    def call(error: BaseException):
        async def load(*_, **__):
            raise error

        monkeypatch.setattr(show, "load_documents", load)
        return run("state", "show", "ses_1")

    return call


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (OSError(28, "No space left on device"), "see whether the place exists"),
        (PermissionError(13, "Permission denied", "/x"), "see whether the place exists"),
        (ValueError("[red]two\nlines[/]"), "--help"),
        (TypeError("what"), "--help"),
        (RuntimeError("odd"), "this should not happen (RuntimeError)"),
        (KeyError("x"), "this should not happen (KeyError)"),
        (RecursionError(), "RecursionError"),
        (MemoryError(), "MemoryError"),
        (ConnectionResetError(), "see whether"),
        (holdfast.HoldfastError("plain"), "--help"),
        (holdfast.NotFoundError("none"), "state list"),
        (holdfast.ConflictError("two"), "another writer"),
        (holdfast.UnsupportedValueError("type"), "register_type"),
        (holdfast.InvalidDocumentError("bad"), "get another copy, or see"),
        (holdfast.InvalidDocumentError("bad: see allow_modified"), "--allow-modified"),
        (holdfast.IntegrityError("bad"), "state verify"),
        (holdfast.StateStoreError("down"), "doctor"),
        (StoreURLError("no", suggestion="sqlite:///s.db"), "did you mean sqlite:///s.db?"),
        (StoreURLError("no"), "a store is named by a URL"),
        (MissingExtraError("redis"), "pip install 'holdfast[redis]'"),
        (BrokenPipeError(32, "Broken pipe"), "see whether the place exists"),
    ],
    ids=lambda each: type(each).__name__ if isinstance(each, BaseException) else None,
)
def test_every_error_is_one_line_and_a_hint(failing, error, hint):
    failing(error).failed(hint)


def test_markup_in_an_error_is_shown_as_it_is(failing):
    assert failing(ValueError("[red]x[/] \x1b[2J")).err.startswith("error: [red]x[/] \\x1b[2J\n")


def test_an_interrupted_command_says_so(failing):
    ran = failing(KeyboardInterrupt())
    assert (ran.code, ran.err) == (130, "interrupted\n")


def test_the_place_of_an_error_is_shown_where_that_is_asked_for(failing, monkeypatch):
    monkeypatch.setenv("HOLDFAST_TRACEBACK", "1")
    with pytest.raises(RuntimeError, match="odd"):
        failing(RuntimeError("odd"))


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
def test_a_path_in_the_place_of_a_url_gets_the_url_as_a_hint(run, monkeypatch, given, meant):
    run("state", "list", "--store", given).failed(f"hint: did you mean {meant}?")
    monkeypatch.setenv("HOLDFAST_STORE", given)
    run("state", "list").failed(f"hint: did you mean {meant}?")


def test_what_may_be_a_password_is_not_repeated_in_a_hint(run):
    ran = run("state", "list", "--store", "hunter2")
    ran.failed("a store is named by a URL")
    assert "hunter2" not in ran.err


def test_a_number_agrees_with_its_noun():
    assert [format_count(number, "session") for number in (0, 1, 2)] == [
        "0 sessions",
        "1 session",
        "2 sessions",
    ]
    assert [format_count(number, "new entry") for number in (1, 1234)] == [
        "1 new entry",
        "1,234 new entries",
    ]


def test_control_codes_are_spelled_out_and_writing_is_not():
    assert escape_control_codes("a\x1b[2J\r\n\x9b\u202e\ud800") == r"a\x1b[2J\r\n\x9b\u202e\ud800"
    assert escape_control_codes("Grüße, 東京 👩‍💻 [b]") == "Grüße, 東京 👩‍💻 [b]"


def test_a_line_is_never_wrapped(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "20")
    print_line("word " * 40 + "end")
    assert capsys.readouterr().out == "word " * 40 + "end\n"


def test_json_is_utf_8_whatever_the_terminal_has(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    print_json({"ü": "\udcff"})
    assert json.loads(written.getvalue().decode()) == {"ü": "\udcff"}


def test_ctrl_c_ends_a_question_at_once(monkeypatch):
    def typed(_, **options):
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(5)
        raise AssertionError("the question went on")

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


def test_ctrl_c_at_a_question_is_told_as_anywhere_else(run, world, entries, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    asking = sys.modules[typer.confirm.__module__]
    monkeypatch.setattr(asking, "visible_prompt_func", interrupted)
    before = entries()
    ran = run("state", "delete", "ses_1", typed="y")
    assert ran.code == 130
    assert ran.err.endswith(" for good? [y/N]:\ninterrupted\n")
    assert entries() == before


def test_without_a_standard_output_json_is_one_clear_error(run, world, monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    run("state", "list", "--format", "json").failed("the standard output is closed")
    run("state", "export", "research-bot", "-o", "-").failed("the standard output is closed")
    assert run("state", "list").code == 0


def test_control_codes_in_json_are_spelled_out_and_it_says_the_same(capsysbinary):
    odd = "a\x1b\x7f\x9b2J\u202e\u2028\ud800 Grüße, 👩‍💻"
    print_json({odd: [odd]})
    text = capsysbinary.readouterr().out.decode()
    assert json.loads(text) == {odd: [odd]}
    assert escape_control_codes(text.replace("\n", "")) == text.replace("\n", "")
    assert "Grüße, 👩‍💻" in text


def test_a_store_elsewhere_is_opened_without_a_look_at_this_machine():
    store = references.open_existing_store("redis://localhost:1/0")
    assert "redis" in repr(store)


class Unbuffered(io.RawIOBase):
    """Takes a little at a time, as a pipe may."""

    def __init__(self):
        super().__init__()
        self.taken = b""

    def writable(self):
        return True

    def write(self, data):
        self.taken += bytes(data[:7])
        return len(data[:7])


def test_all_of_the_json_is_written_where_there_is_no_buffer(monkeypatch):
    raw = Unbuffered()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, "utf-8", write_through=True))
    print_json(list(range(100)))
    assert json.loads(raw.taken) == list(range(100))


def test_without_a_standard_input_nobody_can_be_asked(run, world, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(typer.Exit) as ended:
        confirm("Really?", yes=False)
    assert ended.value.exit_code == 1
    assert "stdin is not a terminal; pass --yes to confirm" in capsys.readouterr().err
