"""What every command shares: its options, where it prints, and how errors end it.

Exit codes: 0, 1 for a failed operation, 2 for wrong usage. An error is one line that says what is
wrong, and a hint; never a traceback.
"""

from __future__ import annotations

import asyncio
import functools
import json
import sys
from collections.abc import Callable, Coroutine
from enum import StrEnum
from typing import Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.markup import escape

from holdfast.errors import (
    ConflictError,
    HoldfastError,
    IntegrityError,
    InvalidDocumentError,
    NotFoundError,
    StateStoreError,
)

P = ParamSpec("P")
T = TypeVar("T")

out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

FAILED = 1
INTERRUPTED = 130

HINTS: list[tuple[type[BaseException], str]] = [
    (NotFoundError, "holdfast state list shows what there is"),
    (ConflictError, "try again; if it stays, another writer is at work on the same session"),
    (InvalidDocumentError, "holdfast state show FILE checks a document"),
    (IntegrityError, "holdfast state verify lists all damage; restore what it names from a backup"),
    (StateStoreError, "holdfast doctor looks at the store and what it needs"),
]


class Format(StrEnum):
    """How a command prints."""

    table = "table"
    json = "json"


StoreOption = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="The state store; $HOLDFAST_STORE without it, and .holdfast/state.db without that.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="A table for people, JSON for programs.")
]
AgentOption = Annotated[
    str | None,
    typer.Option("--agent", metavar="AGENT", help="The agent, where several share the session."),
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do it without asking.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and stop.")]


def command(function: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """A coroutine function as a command, whose errors become one line and an exit code."""

    @functools.wraps(function)
    def run(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return asyncio.run(function(*arguments, **options))
        except HoldfastError as error:
            fail(str(error), hint_for(error))
        except BrokenPipeError:
            # Whoever read this has seen enough.
            sys.stderr.close()
            raise typer.Exit(FAILED) from None
        except (ValueError, TypeError, OSError) as error:
            fail(str(error) or type(error).__name__, "see --help for what it takes")
        except KeyboardInterrupt:
            err.print("interrupted")
            raise typer.Exit(INTERRUPTED) from None

    return run


def hint_for(error: BaseException) -> str:
    """What to do about an error."""
    for kind, hint in HINTS:
        if isinstance(error, kind):
            return hint
    return "see --help"


def fail(message: str, hint: str) -> NoReturn:
    """End the command with an error."""
    err.print(f"[red]error:[/] {escape(' '.join(message.split()))}")
    err.print(f"[dim]hint: {escape(hint)}[/]")
    raise typer.Exit(FAILED)


def print_json(data: object) -> None:
    """JSON for a program."""
    sys.stdout.write(json.dumps(data, indent=2, ensure_ascii=False, default=str) + "\n")


def print_rows(rows: dict[str, object]) -> None:
    """Names with values."""
    width = max(len(name) for name in rows)
    for name, value in rows.items():
        out.print(f"[bold]{name.ljust(width)}[/]  {escape(str(value))}")


def print_table(columns: list[str], rows: list[list[object]], nothing: str) -> None:
    """Rows under headings, never broken, so that an id can be copied; or a sentence."""
    if not rows:
        out.print(nothing)
        return
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for number, row in enumerate([columns, *cells]):
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        out.print(f"[bold]{escape(line.rstrip())}[/]" if number == 0 else escape(line.rstrip()))


def read_tags(pairs: list[str] | None) -> dict[str, str]:
    """Tags of the form K=V; wrong usage where one is not."""
    tags = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{pair!r} is not of the form K=V", param_hint="--tag")
        tags[name] = value
    return tags


def tags_text(tags: dict[str, str]) -> str:
    """Tags as they are typed."""
    return " ".join(f"{name}={value}" for name, value in tags.items()) or "-"


def confirmed(question: str, *, yes: bool) -> bool:
    """Whether a person agrees, or said so in advance. Without a terminal nobody can."""
    if yes:
        return True
    if not sys.stdin.isatty():
        fail("this needs to be confirmed, and there is no terminal to ask at", "add --yes")
    return typer.confirm(question)
