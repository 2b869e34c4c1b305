"""``holdfast replay``: through an incident, step by step."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.markup import escape

from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    out,
    print_json,
)
from holdfast.cli.diff import print_difference, shortened
from holdfast.cli.references import load
from holdfast.log.events import time_text
from holdfast.sessions.replaying import Step
from holdfast.sessions.replaying import replay as steps_of
from holdfast.snapshots.comparing import differences
from holdfast.snapshots.document import event_json, state_json
from holdfast.stores.opening import open_state_store
from holdfast.values import to_json

KEYS = "[n]ext [b]ack [g]o to a step [s]tate [c]hanges [q]uit"


@command
async def replay(
    name: Annotated[
        str, typer.Argument(metavar="FILE|SESSION", help="A document, or a session in the store.")
    ],
    first: Annotated[int, typer.Option("--from", min=1, help="From this event on.")] = 1,
    last: Annotated[int | None, typer.Option("--to", min=1, help="Up to this event.")] = None,
    step: Annotated[bool, typer.Option("--step", help="Walk with the keyboard.")] = False,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Walk through what happened: every event, and what it changed.

    Example: holdfast replay incident.json --from 12 --step
    """
    async with open_state_store(store) as state_store:
        found = await load(state_store, name, agent)
    steps = list(steps_of(found, first=first, last=last))
    if format is Format.json:
        print_json([event_json(each.event) for each in steps])
    elif step and sys.stdin.isatty():
        walk(steps)
    else:
        for each in steps:
            print_step(each)


def print_step(step: Step) -> None:
    """One event and what it changed."""
    event = step.event
    out.print(
        f"[bold]{event.seq:>5}[/] [dim]{time_text(event.at)}[/] [cyan]{escape(event.type)}[/]"
        + (f" {escape(shortened(to_json(event.data)))}" if event.data is not None else "")
    )
    for each in differences(step.after, step.before):
        print_difference(each)


def walk(steps: list[Step]) -> None:
    """Through the steps with the keyboard."""
    if not steps:
        out.print("nothing happened in this range")
        return
    at = 0
    print_step(steps[at])
    while True:
        out.print(f"[dim]step {at + 1} of {len(steps)}: {KEYS}[/]".replace("[n]", r"\[n]"))
        key = typer.getchar().lower()
        if key in ("q", "\x03", "\x04"):
            return
        if key in ("n", " ", "\r", "\n", "\x1b[c") and at < len(steps) - 1:
            at += 1
            print_step(steps[at])
        elif key in ("b", "p", "\x1b[d") and at > 0:
            at -= 1
            print_step(steps[at])
        elif key == "g":
            seq = typer.prompt("event", type=int)
            at = min(range(len(steps)), key=lambda number: abs(steps[number].event.seq - seq))
            print_step(steps[at])
        elif key == "s":
            out.print_json(json.dumps(state_json(steps[at].after)))
        elif key == "c":
            print_step(steps[at])
