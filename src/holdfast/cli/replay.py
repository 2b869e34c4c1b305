"""``holdfast replay``: through an incident, step by step."""

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
    fail,
    has_person,
    interruptible,
    out,
    print_json,
    say,
    visible,
)
from holdfast.cli.diff import print_difference, shortened
from holdfast.cli.references import load
from holdfast.documents.encode import event_json, state_json
from holdfast.documents.export import missing_event_error, pruned_events_error
from holdfast.documents.json_diff import diff_states
from holdfast.errors import NotFoundError
from holdfast.log.event import format_time
from holdfast.sessions.replay import Step
from holdfast.sessions.replay import replay as steps_of
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.values import to_json

# Arrow keys, as a terminal in either of its modes sends them, in lower case.
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
        typer.Option(
            "--from", min=1, help="From this event on; the first that was not pruned without it."
        ),
    ] = None,
    last: Annotated[int | None, typer.Option("--to", min=1, help="Up to this event.")] = None,
    step: Annotated[bool, typer.Option("--step", help="Walk with the keyboard.")] = False,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Walk through what happened: every event, and what it changed.

    Example: holdfast replay incident.json --from 12 --step
    """
    if first is not None and last is not None and last < first:
        raise typer.BadParameter(f"{last} is before --from {first}", param_hint="--to")
    (found,) = await load(store, name, agent_id=agent)
    try:
        steps = list(steps_of(found, first=first, last=last))
        if not steps:
            raise no_steps(found, first)
    except NotFoundError as error:
        fail(str(error), kept_hint(found))
    if format is Format.json:
        print_json([event_json(each.event) for each in steps])
    elif step and has_person():
        with interruptible():
            walk(steps)
    else:
        for each in steps:
            if out.problem is not None:
                break  # nothing is read any more, and there is no other work
            print_step(each)


def no_steps(found: SessionSnapshot, first: int | None) -> NotFoundError:
    """Make the error for a replay that has nothing to show."""
    end = found.events[-1].seq if found.events else 0
    if first is not None and end:
        return missing_event_error(found.location, first, end)
    if found.position is not None and found.position.seq:
        seq = found.position.seq
        return pruned_events_error(found.location, 1, seq, seq)
    return NotFoundError(f"{found.agent_id}/{found.session_id} has no events; nothing to replay")


def kept_hint(found: SessionSnapshot) -> str:
    """What can be replayed instead."""
    if not found.events:
        return f"holdfast state list --session {quote(found.session_id)} lists its snapshots"
    return f"there are events {found.events[0].seq} to {found.events[-1].seq}"


def print_step(step: Step) -> None:
    """One event and what it changed."""
    event = step.event
    say(
        (f"{event.seq:>5}", "bold"),
        (f" {format_time(event.at)}", "dim"),
        (f" {event.type}", "cyan"),
        f" {shortened(to_json(event.data))}" if event.data is not None else "",
    )
    for each in diff_states(step.after, step.before):
        print_difference(each)


def walk(steps: list[Step]) -> None:
    """Through the steps with the keyboard, until told to stop."""
    at = 0
    print_step(steps[at])
    while True:
        say((f"step {at + 1} of {len(steps)}: {KEYS}", "dim"))
        key = pressed()
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
            wanted = asked_for(steps, at)
        elif key != "c":
            continue
        if wanted not in range(len(steps)):
            say("there is nothing before it" if wanted < 0 else "this was the last")
            continue
        at = wanted
        print_step(steps[at])


def print_state(step: Step) -> None:
    """The whole state after a step, as JSON with colours."""
    text = json.dumps(state_json(step.after), indent=2, ensure_ascii=False)
    out.print(JSONHighlighter()("\n".join(map(visible, text.split("\n")))))


def pressed() -> str:
    """The next key, or q where there will be none."""
    try:
        return typer.getchar().lower()
    except (EOFError, KeyboardInterrupt):
        return "q"


def asked_for(steps: list[Step], at: int) -> int:
    """The step that a person names by its event, or the nearest to it."""
    try:
        seq = typer.prompt("event", type=int)
    except typer.Abort:
        out.print()
        return at
    return min(range(len(steps)), key=lambda number: abs(steps[number].event.seq - seq))
