"""``holdfast replay``: step through the events of a session."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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
    escape_control_codes,
    fail,
    is_interactive,
    out,
    print_json,
    print_line,
    restore_sigint,
    viewing_command,
)
from holdfast.cli.diff import print_difference, shorten_value
from holdfast.cli.references import (
    Reference,
    find_reference,
    is_file,
    load_from_file,
    open_existing_store,
    reject_missing_file,
)
from holdfast.documents.encode import encode_event, encode_state
from holdfast.documents.json_diff import diff_states
from holdfast.errors import NotFoundError
from holdfast.log.event import format_time
from holdfast.sessions.replay import Step, replay_stored
from holdfast.sessions.replay import replay as steps_of
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.event_state import find_head, missing_event_error, pruned_events_error
from holdfast.snapshots.keys import SnapshotLocation
from holdfast.values import to_json

# Keys in lower case; arrow keys as terminals send them in normal and in application mode.
NEXT = ("n", " ", "\r", "\n", "\x1b[c", "\x1boc", "\x1b[b", "\x1bob")
BACK = ("b", "p", "\x1b[d", "\x1bod", "\x1b[a", "\x1boa")
QUIT = ("q", "\x1b")
KEYS = "[n]ext [b]ack [g]o to a step [s]tate [c]hanges [q]uit"


@viewing_command
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
    steps = await read_steps(store, name, agent, first, last)
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


@dataclass(frozen=True, slots=True)
class LogRange:
    """The events that can be replayed: those after ``start``, up to ``end``."""

    location: SnapshotLocation
    start: int
    end: int

    def check(self, steps: list[Step], first: int | None) -> list[Step]:
        """Return the steps of a replay, of which there must be some."""
        if steps:
            return steps
        if first is not None and self.end > self.start:
            raise missing_event_error(self.location, first, self.end)
        if self.end:
            raise pruned_events_error(self.location, 1, self.end, self.start)
        name = f"{self.location.scope_id}/{self.location.session_id}"
        raise NotFoundError(f"{name} has no events; nothing to replay")

    @contextmanager
    def suggested(self) -> Iterator[None]:
        """Add a hint to an error that says what can be replayed."""
        try:
            yield
        except NotFoundError as error:
            hint = f"there are events {self.start + 1} to {self.end}"
            if self.end <= self.start:
                session = quote(self.location.session_id)
                hint = f"holdfast state list --session {session} lists its snapshots"
            fail(str(error), hint)


async def read_steps(
    store: str | None, name: str, agent: str | None, first: int | None, last: int | None
) -> list[Step]:
    """Return the steps of a document or of a session in the store."""
    await reject_missing_file(store, name)
    if is_file(name):
        document = load_from_file(name)
        seqs = [each.seq for each in document.events]
        range_ = LogRange(document.location, seqs[0] - 1 if seqs else 0, seqs[-1] if seqs else 0)
        with range_.suggested():
            return range_.check(list(steps_of(document, first=first, last=last)), first)
    async with open_existing_store(store) as state_store:
        found = await find_reference(state_store, name, agent)
        archive = SnapshotArchive(state_store)
        range_ = await find_log_range(archive, found)
        steps: list[Step] = []
        with range_.suggested():
            last = range_.end if last is None else min(last, range_.end)
            if (first or 1) <= range_.end:
                stored = replay_stored(archive, found.location, first, last)
                steps = [step async for step in stored]
            return range_.check(steps, first)


async def find_log_range(archive: SnapshotArchive, found: Reference) -> LogRange:
    """Return the events that lead to a position of a session."""
    location = found.location
    start = (await archive.load_manifest(location=location)).log_start.seq
    if found.snapshot_id is not None:
        info = await archive.load_info(location=location, snapshot_id=found.snapshot_id)
        if info is None:
            raise NotFoundError(f"no snapshot {found.snapshot_id} in {location.prefix}")
        return LogRange(location, start, info.seq)
    head = await find_head(await archive.timeline(location=location))
    if found.seq is not None and found.seq > head:
        raise missing_event_error(location, found.seq, head)
    return LogRange(location, start, head if found.seq is None else found.seq)


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
