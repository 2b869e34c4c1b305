"""What all commands share: options, output and error reporting.

Exit codes: 0; 1 for a failed operation; 2 for wrong usage; 130 after Ctrl-C. An error is one line
and a hint, never a traceback. Output comes from agents and from files, so control codes in it are
escaped and markup is not interpreted.
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

from holdfast.blobs.reader import MissingBlobError
from holdfast.cli.completion import complete_agent, complete_session
from holdfast.cli.output import Output
from holdfast.documents.errors import ModifiedDocumentError
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
from holdfast.values.references import keep_references
from holdfast.workspaces.errors import WorkspaceChangedError, WorkspaceError

P = ParamSpec("P")
T = TypeVar("T")

out = Output(highlight=False, soft_wrap=True, emoji=False, markup=False)
err = Output(stderr=True, highlight=False, soft_wrap=True, emoji=False, markup=False)

FAILED = 1
INTERRUPTED = 130
TRACEBACK = "HOLDFAST_TRACEBACK"
# Control codes, characters that change the text direction, and surrogates.
BEYOND_ASCII = r"\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
CONTROL_CODES = re.compile(rf"[\x00-\x1f{BEYOND_ASCII}]")
CONTROL_CODES_IN_JSON = re.compile(f"[{BEYOND_ASCII}]")  # json escapes the others

STORE_URLS = "use a URL such as sqlite:///state.db, file:///var/lib/agents or redis://host/0"
HINTS: list[tuple[type[BaseException], str]] = [
    (MissingBlobError, "holdfast state verify lists what is missing"),
    (NotFoundError, "holdfast state list shows agents and sessions"),
    (ConflictError, "retry; if it persists, another writer is active in the session"),
    (
        UnsupportedValueError,
        "load it in Python after registering its types with holdfast.register_type",
    ),
    (InvalidDocumentError, "get another copy, or fix what the error names"),
    (IntegrityError, "run holdfast state verify, then restore the damaged sessions from a backup"),
    (StateStoreError, "run holdfast doctor to check the store"),
    (
        WorkspaceChangedError,
        "run holdfast workspace capture first, or pass --force; --dry-run shows what would change",
    ),
    (WorkspaceError, "fix what the error names and run the command again"),
    (OSError, "check that the path exists and is accessible"),
]


class Format(StrEnum):
    """Output formats."""

    table = "table"
    json = "json"


def validate_url(text: str | None) -> str | None:
    """Reject an empty URL, such as the value of an unset variable."""
    if text == "":
        raise typer.BadParameter("must not be empty")
    return text


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The state store. Default: $HOLDFAST_STORE, then .holdfast/state.db.",
        show_default=False,
        callback=validate_url,
    ),
]
FormatOption = Annotated[Format, typer.Option("--format", help="Output format.")]
AgentOption = Annotated[
    str | None,
    typer.Option(
        "--agent",
        metavar="AGENT",
        help="The agent, if several share the session.",
        autocompletion=complete_agent,
    ),
]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="The session.", autocompletion=complete_session)
]
TagOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="K=V", help="Add a tag. Repeatable."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done without doing it.")
]


def command(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Wrap a coroutine function as a command that reports its errors."""

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        with report_errors():
            return asyncio.run(function(*arguments, **options))

    return run


def viewing_command(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Wrap a coroutine function as a command that shows large values as references."""
    run = command(function)

    @functools.wraps(run)
    def view(*arguments: P.args, **options: P.kwargs) -> T:
        with keep_references():
            return run(*arguments, **options)

    return view


@contextmanager
def report_errors() -> Iterator[None]:
    """Report an error inside as one line and exit."""
    try:
        yield
        check_output_written()
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise  # typer handles these
    except KeyboardInterrupt:
        err.print("interrupted")
        raise typer.Exit(INTERRUPTED) from None
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        fail(str(error) or type(error).__name__, hint_for(error))


def hint_for(error: BaseException) -> str:
    """Return the remedy for an error."""
    if isinstance(error, ModifiedDocumentError):
        return "get another copy; state import --allow-modified accepts edited documents"
    if isinstance(error, MissingExtraError):
        return f"pip install 'holdfast[{error.extra}]'"
    if isinstance(error, StoreURLError):
        return f"did you mean {error.suggestion}?" if error.suggestion else STORE_URLS
    for kind, hint in HINTS:
        if isinstance(error, kind):
            return hint
    if isinstance(error, HoldfastError | ValueError | TypeError):
        return "see --help"
    return f"unexpected {type(error).__name__}; set {TRACEBACK}=1 for a traceback and report it"


def fail(message: str, hint: str) -> NoReturn:
    """Print an error and a hint, and exit."""
    print_line(("error:", "red"), f" {' '.join(message.split())}", to=err)
    print_line((f"hint: {hint}", "dim"), to=err)
    raise typer.Exit(FAILED)


def check_output_written() -> None:
    """Fail if output was lost. A closed pipe is not an error."""
    if out.problem is not None and not isinstance(out.problem, BrokenPipeError):
        fail(
            f"cannot write the output: {out.problem.strerror or out.problem}",
            "the operation itself succeeded",
        )


def escape_control_codes(text: str) -> str:
    """Return a text with control codes escaped."""
    return CONTROL_CODES.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


def print_line(*parts: str | tuple[str, str], to: Output = out) -> None:
    """Print a line of parts; a styled part is a pair of text and style."""
    line = Text()
    for part in parts:
        words, style = (part, "") if isinstance(part, str) else part
        line.append(escape_control_codes(words), style)
    to.print(line)


def format_command(command_: str, *words: str, store: str | None = None, **options: str) -> str:
    """Return a command line to show, with the store's URL but without its password."""
    if store is not None:
        options["store"] = str(StoreURL(store))
    parts = [command_, *(f"--{name} {quote(value)}" for name, value in options.items())]
    if any(word.startswith("-") for word in words):
        parts.append("--")
    return " ".join([*parts, *map(quote, words)])


def print_json(data: object) -> None:
    """Print JSON in UTF-8, whatever the encoding of the terminal."""
    text = json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n"
    text = CONTROL_CODES_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
    if out.problem is not None:
        return
    try:
        write_bytes([text.encode()])
    except OSError as error:
        out.drop(error)


def write_bytes(chunks: Iterable[bytes]) -> None:
    """Write bytes to stdout, after what was printed before."""
    require_stdout()
    sys.stdout.flush()
    for chunk in chunks:
        left = memoryview(chunk)
        while left:
            # An unbuffered stdout, as with PYTHONUNBUFFERED, may write less than requested.
            left = left[sys.stdout.buffer.write(left) :]
    sys.stdout.buffer.flush()


def require_stdout() -> None:
    """Fail if stdout is closed; Python sets it to None then."""
    if sys.stdout is None:
        fail("cannot write the output: stdout is closed", "write to a file")


def format_count(count: int, noun: str) -> str:
    """Return a number with its noun: 1 session, 2 sessions, 3 entries."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("ry") else f"{count:,} {noun}s"


def parse_tags(pairs: list[str] | None) -> dict[str, str]:
    """Return tags of the form K=V as a dict."""
    tags = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"invalid tag {pair!r}: must be K=V", param_hint="--tag")
        tags[name] = value
    return tags


def format_tags(tags: dict[str, str]) -> str:
    """Return tags as K=V pairs."""
    return " ".join(f"{name}={value}" for name, value in tags.items()) or "-"


def confirm(question: str, *, yes: bool) -> None:
    """Continue if the user confirms; fail if stdin is not a terminal."""
    if yes:
        return
    if not is_interactive():
        fail("stdin is not a terminal; pass --yes to confirm", "--dry-run shows what would be done")
    if not ask_yes_no(question):
        print_line("aborted; nothing was changed", to=err)
        raise typer.Exit(FAILED)


def ask_yes_no(question: str) -> bool:
    """Ask a question; Ctrl-C interrupts the command as anywhere else."""
    with restore_sigint():
        try:
            # stdout may be a closed pipe or a JSON file.
            return typer.confirm(escape_control_codes(question), err=True)
        except typer.Abort as error:
            # typer raises Abort at the end of input too.
            if isinstance(error.__context__, KeyboardInterrupt):
                err.print()
                raise KeyboardInterrupt from None
            raise


def is_interactive() -> bool:
    """Return whether stdin is a terminal. It is None if it was closed."""
    return bool(sys.stdin and sys.stdin.isatty())


@contextmanager
def restore_sigint() -> Iterator[None]:
    """Let Ctrl-C interrupt a prompt; asyncio's handler would wait for the answer."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
