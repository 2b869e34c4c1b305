"""``holdfast replay``: step through the events of a session."""

from __future__ import annotations

import json
from shlex import quote
from typing import Annotated

import typer
from rich.highlighter import JSONHighlighter

from holdfast.cli.completion import complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    escape_control_codes,
    fail,
    is_interactive,
    out,
    print_json,
    print_line,
    restore_sigint,
)
from holdfast.cli.diff import print_difference, shorten_value
from holdfast.cli.references import load_documents
from holdfast.documents.document import Document
from holdfast.documents.encode import encode_event, encode_state
from holdfast.documents.json_diff import diff_states
from holdfast.errors import NotFoundError
from holdfast.log.event import format_time
from holdfast.sessions.replay import Step
from holdfast.sessions.replay import replay as steps_of
from holdfast.snapshots.event_state import missing_event_error, pruned_events_error
from holdfast.values import to_json

# Keys in lower case; arrow keys as terminals send them in normal and in application mode.
NEXT = ("n", " ", "\r", "\n", "\x1b[c", "\x1boc", "\x1b[b", "\x1bob")
BACK = ("b", "p", "\x1b[d", "\x1bod", "\x1b[a", "\x1boa")
QUIT = ("q", "\x1b")
KEYS = "[n]ext [b]ack [g]o to a step [s]tate [c]hanges [q]uit"


@command
async def replay(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE|SESSION[@REF]",
            help="A document, or a session in the store.",
            autocompletion=complete_state,
        ),
    ],
    first: Annotated[
        int | None,
        typer.Option("--from", min=1, help="First event. Default: the start of the log."),
    ] = None,
    last: Annotated[
        int | None, typer.Option("--to", min=1, help="Last event. Default: the head.")
    ] = None,
    step: Annotated[bool, typer.Option("--step", help="Step through with the keyboard.")] = False,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Print each event and what it changed.

    Example: holdfast replay incident.json --from 12 --step
    """
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(
            f"must not be less than --from {first}, got {last}", param_hint="--to"
        )
    (found,) = await load_documents(store, name, agent_id=agent)
    try:
        steps = list(steps_of(found, first=first, last=last))
        if not steps:
            raise no_steps_error(found, first)
    except NotFoundError as error:
        fail(str(error), suggest_range(found))
    if format is Format.json:
        print_json([encode_event(each.event) for each in steps])
    elif step and is_interactive():
        with restore_sigint():
            step_through(steps)
    else:
        for each in steps:
            if out.problem is not None:
                break  # the reader is gone, and there is nothing else to do
            print_step(each)


def no_steps_error(found: Document, first: int | None) -> NotFoundError:
    """Return the error for a replay without events."""
    end = found.events[-1].seq if found.events else 0
    if first is not None and end:
        return missing_event_error(found.location, first, end)
    if found.position is not None and found.position.seq:
        seq = found.position.seq
        return pruned_events_error(found.location, 1, seq, seq)
    return NotFoundError(f"{found.agent_id}/{found.session_id} has no events; nothing to replay")


def suggest_range(found: Document) -> str:
    """Return a hint that says what can be replayed."""
    if not found.events:
        return f"holdfast state list --session {quote(found.session_id)} lists its snapshots"
    return f"there are events {found.events[0].seq} to {found.events[-1].seq}"


def print_step(step: Step) -> None:
    """Print an event and what it changed."""
    event = step.event
    print_line(
        (f"{event.seq:>5}", "bold"),
        (f" {format_time(event.at)}", "dim"),
        (f" {event.type}", "cyan"),
        f" {shorten_value(to_json(event.data))}" if event.data is not None else "",
    )
    for each in diff_states(step.after, step.before):
        print_difference(each)


def step_through(steps: list[Step]) -> None:
    """Step through events with the keyboard."""
    at = 0
    print_step(steps[at])
    while True:
        print_line((f"step {at + 1} of {len(steps)}: {KEYS}", "dim"))
        key = read_key()
        if key in QUIT:
            return
        if key == "s":
            print_state(steps[at])
            continue
        wanted = at
        if key in NEXT:
            wanted = at + 1
        elif key in BACK:
            wanted = at - 1
        elif key == "g":
            wanted = read_step_number(steps, at)
        elif key != "c":
            continue
        if wanted not in range(len(steps)):
            print_line("this is the first step" if wanted < 0 else "this is the last step")
            continue
        at = wanted
        print_step(steps[at])


def print_state(step: Step) -> None:
    """Print the state after a step as JSON."""
    text = json.dumps(encode_state(step.after), indent=2, ensure_ascii=False)
    out.print(JSONHighlighter()("\n".join(map(escape_control_codes, text.split("\n")))))


def read_key() -> str:
    """Read a key; return q at the end of input."""
    try:
        return typer.getchar().lower()
    except (EOFError, KeyboardInterrupt):
        return "q"


def read_step_number(steps: list[Step], at: int) -> int:
    """Ask for an event number; return the index of the nearest step."""
    try:
        seq = typer.prompt("event", type=int)
    except typer.Abort:
        out.print()
        return at
    return min(range(len(steps)), key=lambda number: abs(steps[number].event.seq - seq))
