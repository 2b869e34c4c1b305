"""What every command shares: its options, where it prints, and how errors end it.

Exit codes: 0, 1 for a failed operation, 2 for wrong usage, 130 for Ctrl-C. An error is one line
that says what is wrong, and a hint; never a traceback. What is printed is never taken for markup or
for a terminal's control codes, as it comes from agents and from files.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from shlex import quote
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.text import Text

from holdfast.cli.completion import complete_agent, complete_session
from holdfast.cli.output import Output
from holdfast.errors import (
    ConflictError,
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    StateStoreError,
    UnsupportedValueError,
)
from holdfast.extras import MissingExtraError
from holdfast.stores.urls import StoreURL, StoreURLError

P = ParamSpec("P")
T = TypeVar("T")

out = Output(highlight=False, soft_wrap=True, emoji=False, markup=False)
err = Output(stderr=True, highlight=False, soft_wrap=True, emoji=False, markup=False)

FAILED = 1
INTERRUPTED = 130
TRACEBACK = "HOLDFAST_TRACEBACK"
# Control codes, which a terminal would obey; what turns the direction of text; surrogates.
BEYOND_ASCII = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
CONTROL_CODES = re.compile(rf"[\x00-\x1f{BEYOND_ASCII}]")
CONTROL_CODES_IN_JSON = re.compile(f"[{BEYOND_ASCII}]")  # which spells out the others itself

STORE_URLS = "a store is named by a URL: sqlite:///state.db, file:///var/lib/agents, redis://host/0"
HINTS: list[tuple[type[BaseException], str]] = [
    (NotFoundError, "holdfast state list shows what there is"),
    (ConflictError, "try again; if it stays, another writer is at work on the same session"),
    (UnsupportedValueError, "read it in Python, after holdfast.register_type for its types"),
    (InvalidDocumentError, "get another copy, or see in it what the error names"),
    (IntegrityError, "holdfast state verify lists all damage; restore what it names from a backup"),
    (StateStoreError, "holdfast doctor looks at the store and what it needs"),
    (OSError, "see whether the place exists, and who may use it"),
]


class Format(StrEnum):
    """How a command prints."""

    table = "table"
    json = "json"


def validate_url(text: str | None) -> str | None:
    """A URL as it was typed. An empty one, as of a variable that is not set, means no store."""
    if text == "":
        raise typer.BadParameter("it is empty, and names no store")
    return text


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The state store; $HOLDFAST_STORE without it, and .holdfast/state.db without that.",
        show_default=False,
        callback=validate_url,
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="A table for people, JSON for programs.")
]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The agent, where several share the session.",
        autocompletion=complete_agent,
    ),
]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session.", autocompletion=complete_session)
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="K=V", help="Added to the tags. Repeatable."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]


def command(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A coroutine function as a command, whose errors become one line and an exit code."""

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        with report_errors():
            return asyncio.run(function(*arguments, **options))

    return run


@contextmanager
def report_errors() -> Iterator[None]:
    """End the command with a line for whatever goes wrong inside."""
    try:
        yield
        check_output_written()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise  # typer ends the command as these ask for
    except KeyboardInterrupt:
        err.print("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        fail(str(error) or type(error).__name__, hint_for(error))


def hint_for(error: BaseException) -> str:
    """What to do about an error."""
    if isinstance(error, InvalidDocumentError) and "allow_modified" in str(error):
        return "get another copy; state import --allow-modified takes what was edited on purpose"
    if isinstance(error, MissingExtraError):
        return f"pip install 'holdfast[{error.extra}]'"
    if isinstance(error, StoreURLError):
        return f"did you mean {error.meant}?" if error.meant else STORE_URLS
    for kind, hint in HINTS:
        if isinstance(error, kind):
            return hint
    if isinstance(error, HoldfastError | ValueError | TypeError):
        return "see --help for what it takes"
    return f"this should not happen ({type(error).__name__}); {TRACEBACK}=1 shows where it did"


def fail(message: str, hint: str) -> NoReturn:
    """End the command with an error."""
    print_line(("error:", "red"), f" {' '.join(message.split())}", to=err)
    print_line((f"hint: {hint}", "dim"), to=err)
    raise typer.Exit(FAILED)


def check_output_written() -> None:
    """Fail where output was lost, after the work is done. A reader that went away is not a loss."""
    if out.problem is not None and not isinstance(out.problem, BrokenPipeError):
        fail(
            f"the output cannot be written: {out.problem.strerror or out.problem}",
            "the command did its work; send the output elsewhere",
        )


def escape_control_codes(text: str) -> str:
    """A text without control codes: what a terminal would obey is spelled out."""
    return CONTROL_CODES.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_line(*parts: str | tuple[str, str], to: Output = out) -> None:
    """Print a line; a part that has a style is a pair of both."""
    line = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        line.append(escape_control_codes(words), style)
    to.print(line)


def format_command(command_: str, *words: str, store: str | None = None, **options: str) -> str:
    """A command as it is typed, with the store that this one was told; a password is left out."""
    if store is not None:
        options["store"] = str(StoreURL(store))
    parts = [command_, *(f"--{name} {quote(value)}" for name, value in options.items())]
    if any(word.startswith("-") for word in words):
        parts.append("--")
    return " ".join([*parts, *map(quote, words)])


def print_json(data: object) -> None:
    """JSON for a program: UTF-8, whatever the terminal has. It may be one that a person sits at."""
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
    text = CONTROL_CODES_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    if out.problem is not None:
        return
    try:
        write_bytes([text.encode()])
    except OSError as error:
        out.drop(error)


def write_bytes(chunks: Iterable[bytes]) -> None:
    """Bytes to the standard output, after what was printed before."""
    require_stdout()
    sys.stdout.flush()
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            # Without a buffer, as with PYTHONUNBUFFERED, less may be written than was asked for.
            left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def require_stdout() -> None:
    """Refuse to print where the standard output was closed: it is None then."""
    if sys.stdout is None:
        fail("the output cannot be written: the standard output is closed", "send it to a file")


def format_count(count: int, noun: str) -> str:
    """A number with its noun: 1 session, 2 sessions, 3 entries."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{count:,} {noun}s"


def parse_tags(pairs: list[str] | None) -> dict[str, str]:
    """Tags of the form K=V; wrong usage where one is not."""
    tags = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not of the form K=V", param_hint="--tag")
        tags[name] = value
    return tags


def format_tags(tags: dict[str, str]) -> str:
    """Tags as they are typed."""
    return " ".join(f"{name}={value}" for name, value in tags.items()) or "-"


def confirm(question: str, *, yes: bool) -> None:
    """Go on if a person agrees, or said so in advance; fail where stdin is not a terminal."""
    if yes:
        return
    if not is_interactive():
        fail("stdin is not a terminal; pass --yes to confirm", "--dry-run shows what would be done")
    if not ask_yes_no(question):
        print_line("nothing was changed", to=err)
        raise typer.Exit(FAILED)


def ask_yes_no(question: str) -> bool:
    """What a person answers. Ctrl-C is the same here as anywhere else."""
    with restore_sigint():
        try:
            # Not on the standard output, which may be a pipe that is closed, or a file of JSON.
            return typer.confirm(escape_control_codes(question), err=True)
        except typer.Abort as error:
            # typer says this of the end of the input as well.
            if isinstance(error.__context__, KeyboardInterrupt):
                err.print()
                raise KeyboardInterrupt from None
            raise


def is_interactive() -> bool:
    """Whether somebody sits at the standard input. It is None where it was closed."""
    return bool(sys.stdin and sys.stdin.isatty())


@contextmanager
def restore_sigint() -> Iterator[None]:
    """Let Ctrl-C end a question: asyncio would note it and go on waiting for the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
