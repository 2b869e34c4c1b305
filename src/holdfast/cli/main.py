"""The command line: all commands and their groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

import holdfast
from holdfast.cli import keys, workspace
from holdfast.cli.attachment import attachment
from holdfast.cli.backup import backup
from holdfast.cli.copy import copy
from holdfast.cli.delete import delete
from holdfast.cli.demo import demo
from holdfast.cli.diff import diff
from holdfast.cli.doctor import doctor
from holdfast.cli.export import export
from holdfast.cli.fork import fork
from holdfast.cli.import_ import import_
from holdfast.cli.list_ import list_
from holdfast.cli.mcp import mcp
from holdfast.cli.prune import prune
from holdfast.cli.replay import replay
from holdfast.cli.restore import restore
from holdfast.cli.save import save
from holdfast.cli.serve import serve
from holdfast.cli.show import show
from holdfast.cli.verify import verify

app = typer.Typer(
    name="holdfast",
    help="Inspect, compare, restore, fork, move and replay the state of AI agents.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
state = typer.Typer(help="Work with sessions and snapshots.", no_args_is_help=True)
app.add_typer(state, name="state")
signing = typer.Typer(help="Manage keys that sign documents.", no_args_is_help=True)
app.add_typer(signing, name="keys")
files = typer.Typer(help="Keep the files of a folder in a session.", no_args_is_help=True)
app.add_typer(files, name="workspace")

Verb = Callable[..., Any]

STATE_VERBS: dict[str, Verb] = {
    "export": export,
    "show": show,
    "import": import_,
    "list": list_,
    "save": save,
    "diff": diff,
    "attachment": attachment,
    "verify": verify,
    "restore": restore,
    "fork": fork,
    "prune": prune,
    "delete": delete,
}
KEYS_VERBS: dict[str, Verb] = {"new": keys.new, "show": keys.show}
WORKSPACE_VERBS: dict[str, Verb] = {
    "capture": workspace.capture,
    "restore": workspace.restore,
    "diff": workspace.diff,
    "export": workspace.export,
}
VERBS: dict[str, Verb] = {
    "replay": replay,
    "copy": copy,
    "backup": backup,
    "serve": serve,
    "mcp": mcp,
    "doctor": doctor,
    "demo": demo,
}

for verb, function in STATE_VERBS.items():
    state.command(verb)(function)
for verb, function in KEYS_VERBS.items():
    signing.command(verb)(function)
for verb, function in WORKSPACE_VERBS.items():
    files.command(verb)(function)
for verb, function in VERBS.items():
    app.command(verb)(function)


def print_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        typer.echo(f"holdfast {holdfast.__version__}")
        raise typer.Exit


@app.callback()
def main(
    show_version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Inspect, compare, restore, fork, move and replay the state of AI agents."""
