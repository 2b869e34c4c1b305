"""``holdfast demo``: a research agent makes a mistake, and an engineer restores it.

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

from holdfast.cli.console import ask_yes_no, fail, out, print_line, report_errors
from holdfast.documents.export import ENVIRONMENT_VARIABLE
from holdfast.sessions.session import Session
from holdfast.stores.registry import DEFAULT_URL, open_state_store

AGENT = "research-bot"
SESSION = "ses_ports"
FORK = "ses_what_if"
FILE = "incident.json"
STAGING = "sqlite:///staging.db"
REPORT = "report"
"""The folder that the agent writes to."""


@dataclass(frozen=True, slots=True)
class DemoState:
    """The snapshots that the demo's agent saved."""

    good: str
    bad: str


def demo(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--folder", metavar="FOLDER", help="Where to write. Default: a temporary folder."
        ),
    ] = None,
) -> None:
    """Run a short demo: an agent makes a mistake, and you restore it.

    Example: holdfast demo
    """
    with report_errors():
        place = make_demo_folder(folder)
        with (
            chdir(place),
            set_environment({ENVIRONMENT_VARIABLE: "production", "HOLDFAST_STORE": None}),
        ):
            play_demo(context, place)
            offer_viewer(context)


def make_demo_folder(folder: Path | None) -> Path:
    """Return an empty folder for the demo."""
    if folder is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        fail(f"{folder} is not empty", "pass a new folder, or none")
    return folder.absolute()


# ------------------------------------------------------------------------------------ the agent


async def run_agent() -> DemoState:
    """Run the agent: two good steps, a snapshot, and a mistake."""
    async with open_state_store(DEFAULT_URL) as store:
        session = await Session.open(store, agent_id=AGENT, session_id=SESSION)
        files = session.workspace(REPORT)
        session.status = "running"
        session.add_message("user", "Which port handled more containers in 2025, A or B?")
        session.set("plan", ["read report A", "read report B", "compare"])
        session.record("tool.called", {"tool": "read", "file": "report-a.pdf"})
        session.set("findings", {"A": {"containers": 14_200_000, "source": "report-a.pdf"}})
        session.add_message("assistant", "Port A: 14.2 million. Now report B.")
        write_report("Port A: 14.2 million\nPort B: to do\n")
        good = await session.save(tags={"step": "report-a"}, workspace=files)

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
        write_report("Port A: 14.2 million\nPort B: 9.1 million\n")
        bad = await session.save(tags={"step": "answer"}, workspace=files)
    return DemoState(good.snapshot_id, bad.snapshot_id)


def write_report(text: str) -> None:
    """Write the agent's file."""
    Path(REPORT).mkdir(exist_ok=True)
    Path(REPORT, "ports.md").write_text(text, encoding="utf-8")


async def run_fork() -> None:
    """Continue the agent in the fork, with the right report."""
    async with (
        open_state_store(DEFAULT_URL) as store,
        Session.open(store, agent_id=AGENT, session_id=FORK) as session,
    ):
        session.record("tool.called", {"tool": "read", "file": "report-b-2025.pdf"})
        session.set("findings", {**session.get("findings"), "B": {"containers": 15_800_000}})
        session.add_message("assistant", "Port B, with 15.8 million against 14.2.")
        session.status = "completed"


# ------------------------------------------------------------------------------------ the story


def play_demo(context: typer.Context, place: Path) -> None:
    """Run the demo from start to end."""
    print_title("1. A research agent works, and everything is recorded")
    story = asyncio.run(run_agent())
    print_note(f"It wrote to the embedded store, {place / '.holdfast' / 'state.db'}.")
    print_note("After reading report A it saved a snapshot; after its answer another one.")
    run_command(context, "state", "list", "--session", SESSION)

    print_title("2. The answer is wrong. What happened between the two snapshots?")
    run_command(context, "state", "diff", story.good, story.bad)
    print_note("It read the report of 2019. That was the mistake.")

    print_title("3. Export the incident as one self-contained file")
    tags = ("--tag", "reason=wrong-year")
    run_command(context, "state", "export", AGENT, "--session", SESSION, *tags, "--output", FILE)
    run_command(context, "state", "show", FILE)

    print_title("4. Restore the snapshot before the mistake")
    run_command(context, "state", "restore", SESSION, story.good, "--yes")
    print_note("The log is not truncated: it records the restore.")

    print_title("5. Bring the agent's files back, too")
    folder = ("--folder", REPORT)
    run_command(context, "workspace", "diff", SESSION, story.good, *folder)
    run_command(context, "workspace", "restore", SESSION, "--at", story.good, *folder, "--yes")
    print_note("With --conversation, one command restores both.")

    print_title("6. Try an alternative in a fork, without changing the original")
    run_command(context, "state", "fork", SESSION, FORK, "--at", story.good)
    asyncio.run(run_fork())
    print_note("The agent continued in the fork, with the report of 2025.")
    run_command(context, "state", "diff", SESSION, FORK)

    print_title("7. Import the incident into another environment, after a dry run")
    with set_environment({ENVIRONMENT_VARIABLE: "staging"}):
        run_command(context, "state", "import", FILE, "--dry-run", "--store", STAGING)
        run_command(context, "state", "import", FILE, "--store", STAGING)
        run_command(context, "state", "show", SESSION, "--store", STAGING)

    print_title("8. Walk through the incident there")
    run_command(context, "replay", SESSION, "--from", "7", "--to", "11", "--store", STAGING)

    print_title("Try next")
    for line in (
        f"cd {shlex.quote(str(place))}",
        "holdfast serve  # step through it in a browser",
        f"holdfast replay {FILE} --step",
        f"holdfast state show {FILE} --format json",
        f"holdfast state list {AGENT}",
        f"holdfast state diff {FILE} {FORK}",
        f"holdfast workspace export {SESSION} --at 14 --output report.zip",
        "holdfast state verify",
        "holdfast backup backup && holdfast backup backup --verify",
        f"holdfast copy {DEFAULT_URL} {STAGING} --session {FORK}",
    ):
        print_line(("  " + line.replace("holdfast ", f"{command_prefix()} "), "green"))


def offer_viewer(context: typer.Context) -> None:
    """Offer to open the demo's sessions in the viewer."""
    if not is_terminal() or find_spec("fastapi") is None:
        return
    out.print()
    if ask_yes_no("Open the viewer on them now?"):
        run_command(context, "serve")


def is_terminal() -> bool:
    """Return whether the user can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def command_prefix() -> str:
    """Return the command that starts this program, even if it is not on the path."""
    return "holdfast" if shutil.which("holdfast") else f"{shlex.quote(sys.executable)} -m holdfast"


def print_title(text: str) -> None:
    """Print a heading."""
    out.print()
    print_line((text, "bold"))
    print_line(("─" * len(text), "dim"))


def print_note(text: str) -> None:
    """Print a note."""
    print_line(text)


def run_command(context: typer.Context, *arguments: str) -> None:
    """Print a command line and run it."""
    environment = os.environ[ENVIRONMENT_VARIABLE]
    prompt = "" if environment == "production" else f"{ENVIRONMENT_VARIABLE}={environment} "
    out.print()
    print_line((f"$ {prompt}holdfast {shlex.join(arguments)}", "green"))
    code = context.find_root().command.main(
        list(arguments), prog_name="holdfast", standalone_mode=False
    )
    if code:
        raise typer.Exit(code)


@contextmanager
def set_environment(wanted: dict[str, str | None]) -> Iterator[None]:
    """Set environment variables temporarily; None unsets one."""
    before = {name: os.environ.get(name) for name in wanted}
    update_environment(wanted)
    try:
        yield
    finally:
        update_environment(before)


def update_environment(wanted: dict[str, str | None]) -> None:
    """Set environment variables; unset those that are None."""
    for name, value in wanted.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
