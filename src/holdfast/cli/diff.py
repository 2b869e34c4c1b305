"""``holdfast state diff``: what differs between two moments, wherever they are kept."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from holdfast.cli.completion import complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    print_json,
    say,
)
from holdfast.cli.references import load
from holdfast.snapshots.comparing import Difference, differences, state_patch
from holdfast.values import to_json

COLOURS = {"added": ("green", "+"), "removed": ("red", "-"), "changed": ("yellow", "~")}
KINDS = {"add": "added", "remove": "removed", "replace": "changed"}
LONGEST = 200


@command
async def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="A file, a session, SESSION@REF, or a snapshot's id.",
            autocompletion=complete_state,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER", help="The same, of the later state.", autocompletion=complete_state
        ),
    ],
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show what was added, removed and changed from one moment to another.

    JSON is a JSON Patch (RFC 6902) that leads from the first document's state to the second's.
    Example: holdfast state diff baseline.json ses_abc123
    """
    first, second = await load(store, before, after, agent_id=agent)
    if format is Format.json:
        print_json(state_patch(second.snapshot, first.snapshot))
        return
    found = differences(second.snapshot, first.snapshot)
    if not found:
        say("no difference")
    for each in found:
        print_difference(each)


def print_difference(each: Difference) -> None:
    """One entry: itself, and what changed inside it."""
    colour, mark = COLOURS[each.kind]
    say((f"{mark} {each.namespace}/{each.key}", colour))
    if each.kind != "changed":
        value = each.after if each.kind == "added" else each.before
        say((f"    {shortened(to_json(value))}", colour))
        return
    before = to_json(each.before)
    for field in each.fields:
        colour, sign = COLOURS[KINDS[field["op"]]]
        old = shortened(at(before, field["path"])) if field["op"] != "add" else ""
        new = shortened(field["value"]) if field["op"] != "remove" else ""
        arrow = " → " if old and new else ""
        line = f"    {sign} {field['path'] or '(all of it)'}: {old}{arrow}{new}"
        say((line, colour))


def at(tree: Any, path: str) -> Any:
    """What a JSON Pointer leads to."""
    for part in path.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        tree = tree[int(name)] if isinstance(tree, list) else tree[name]
    return tree


def shortened(value: Any) -> str:
    """A value on one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
