"""``holdfast demo``: a research agent takes a wrong turn, and an engineer takes it back.

The agent is scripted, so that it needs no network and no key; what it does is recorded as any
agent's work is. What the engineer does are the commands of this command line, run as they are
printed.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.console import agrees, errors_told, fail, out, say
from holdfast.documents.export import ENVIRONMENT_VARIABLE
from holdfast.sessions.session import Session
from holdfast.stores.registry import DEFAULT_URL, open_state_store

AGENT = "research-bot"
SESSION = "ses_ports"
FORK = "ses_what_if"
FILE = "incident.json"
STAGING = "sqlite:///staging.db"


@dataclass(frozen=True, slots=True)
class Story:
    """What the agent left behind: where it was right, and where it was wrong."""

    good: str
    bad: str


def demo(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option("--folder", metavar="FOLDER", help="Where to play; a new one without it."),
    ] = None,
) -> None:
    """Play a short story: an agent takes a wrong turn, and is taken back. Nothing is needed for it.

    Example: holdfast demo
    """
    with errors_told():
        place = prepared(folder)
        with chdir(place), variables({ENVIRONMENT_VARIABLE: "production", "HOLDFAST_STORE": None}):
            tell(context, place)
            offer_viewer(context)


def prepared(folder: Path | None) -> Path:
    """An empty folder to play in."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        fail(f"{folder} is not empty", "name a new folder, or none at all")
    return folder.absolute()


# ------------------------------------------------------------------------------------ the agent


async def work() -> Story:
    """The agent at work: two good steps, a snapshot, and a wrong turn."""
    async with open_state_store(DEFAULT_URL) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        session.status = "running"
        session.add_message("user", "Which port handled more containers in 2025, A or B?")
        session.set("plan", ["read report A", "read report B", "compare"])
        session.record("tool.called", {"tool": "read", "file": "report-a.pdf"})
        session.set("findings", {"A": {"containers": 14_200_000, "source": "report-a.pdf"}})
        session.add_message("assistant", "Port A: 14.2 million. Now report B.")
        good = await session.save(tags={"step": "report-a"})

        session.record("tool.called", {"tool": "read", "file": "report-b-2019.pdf"})
        session.set(
            "findings",
            {
                "A": {"containers": 14_200_000, "source": "report-a.pdf"},
                "B": {"containers": 9_100_000, "source": "report-b-2019.pdf"},
            },
        )
        session.set("plan", ["answer"])
        session.add_message("assistant", "Port A, by far: B had only 9.1 million.")
        session.status = "completed"
        bad = await session.save(tags={"step": "answer"})
    return Story(good.snapshot_id, bad.snapshot_id)


async def try_again() -> None:
    """The agent goes on in the fork, with the right report."""
    async with (
        open_state_store(DEFAULT_URL) as store,
        Session.open(store, agent_id=AGENT, session_id=FORK) as session,
    ):
        session.record("tool.called", {"tool": "read", "file": "report-b-2025.pdf"})
        session.set("findings", {**session.get("findings"), "B": {"containers": 15_800_000}})
        session.add_message("assistant", "Port B, with 15.8 million against 14.2.")
        session.status = "completed"


# ------------------------------------------------------------------------------------ the story


def tell(context: typer.Context, place: Path) -> None:
    """The story from beginning to end."""
    title("1. A research agent works, and everything is recorded")
    story = asyncio.run(work())
    note(f"It wrote to the embedded store, {place / '.holdfast' / 'state.db'}.")
    note("After reading report A it saved a snapshot; after its answer another one.")
    run(context, "state", "list", "--session", SESSION)

    title("2. The answer is wrong. What happened between the two snapshots?")
    run(context, "state", "diff", story.good, story.bad)
    note("It read the report of 2019. That was the wrong turn.")

    title("3. Keep the incident as one file that stands alone")
    tags = ("--tag", "reason=wrong-year")
    run(context, "state", "export", AGENT, "--session", SESSION, *tags, "--output", FILE)
    run(context, "state", "show", FILE)

    title("4. Go back to where it was right")
    run(context, "state", "restore", SESSION, story.good, "--yes")
    note("The log is not shortened: it says that somebody went back.")

    title("5. Try another way in a fork, without touching the original")
    run(context, "state", "fork", SESSION, FORK, "--at", story.good)
    asyncio.run(try_again())
    note("The agent went on in the fork, with the report of 2025.")
    run(context, "state", "diff", SESSION, FORK)

    title("6. Take the incident to another environment: first what would change, then for good")
    with variables({ENVIRONMENT_VARIABLE: "staging"}):
        run(context, "state", "import", FILE, "--dry-run", "--store", STAGING)
        run(context, "state", "import", FILE, "--store", STAGING)
        run(context, "state", "show", SESSION, "--store", STAGING)

    title("7. Walk through the incident there")
    run(context, "replay", SESSION, "--from", "7", "--to", "10", "--store", STAGING)

    title("Try next")
    for line in (
        f"cd {shlex.quote(str(place))}",
        "holdfast serve  # in a browser: every step, forwards and backwards",
        f"holdfast replay {FILE} --step",
        f"holdfast state show {FILE} --format json",
        f"holdfast state list {AGENT}",
        f"holdfast state diff {FILE} {FORK}",
        "holdfast state verify",
        "holdfast backup backup && holdfast backup backup --verify",
        f"holdfast copy {DEFAULT_URL} {STAGING} --session {FORK}",
    ):
        say(("  " + line.replace("holdfast ", f"{program()} "), "green"))


def offer_viewer(context: typer.Context) -> None:
    """Serve the sessions of the story to a browser, if somebody is there who wants that."""
    if not is_terminal() or find_spec("fastapi") is None:
        return
    out.print()
    if agrees("Open the viewer on them now?"):
        run(context, "serve")


def is_terminal() -> bool:
    """Whether a person can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def program() -> str:
    """What starts this command line in a shell, also where it is not on the path."""
    return "holdfast" if shutil.which("holdfast") else f"{shlex.quote(sys.executable)} -m holdfast"


def title(text: str) -> None:
    """A headline that a reader can find again."""
    out.print()
    say((text, "bold"))
    say(("─" * len(text), "dim"))


def note(text: str) -> None:
    """What a reader should know."""
    say(text)


def run(context: typer.Context, *arguments: str) -> None:
    """Print a command as one would type it, and run it."""
    environment = os.environ[ENVIRONMENT_VARIABLE]
    prompt = "" if environment == "production" else f"{ENVIRONMENT_VARIABLE}={environment} "
    out.print()
    say((f"$ {prompt}holdfast {shlex.join(arguments)}", "green"))
    code = context.find_root().command.main(
        list(arguments), prog_name="holdfast", standalone_mode=False
    )
    if code:
        raise typer.Exit(code)


@contextmanager
def variables(wanted: dict[str, str | None]) -> Iterator[None]:
    """Environment variables for a while; None takes one away."""
    before = {name: os.environ.get(name) for name in wanted}
    put_variables(wanted)
    try:
        yield
    finally:
        put_variables(before)


def put_variables(wanted: dict[str, str | None]) -> None:
    """Set environment variables, and remove those that are None."""
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
