"""``holdfast state diff``: what differs between two states, wherever they are kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.cells import cell_len

from holdfast.cli.completion import complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    print_json,
    say,
    visible,
)
from holdfast.cli.paging import NoPagerOption, paged
from holdfast.cli.references import load
from holdfast.cli.rendering import (
    MOST_LINES,
    compact,
    is_long_text,
    shorten,
    text_difference,
    value_lines,
)
from holdfast.cli.tables import fold, terminal_width
from holdfast.documents import json_path
from holdfast.documents.json_diff import (
    Difference,
    diff_states,
    make_state_patch,
    select_differences,
    select_operations,
    split_pointer,
)
from holdfast.documents.json_path import JsonPath
from holdfast.values import to_json

COLOURS = {"added": ("green", "+"), "removed": ("red", "-"), "changed": ("yellow", "~")}
KINDS = {"add": "added", "remove": "removed", "replace": "changed"}
SIGNS = {"+": "green", "-": "red"}
LONGEST = 200
INDENT = "    "
DEEPER = "      "


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
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATH",
            help="Only this, as in values.plan or messages[-1].content; may be repeated.",
        ),
    ] = None,
    stat: Annotated[bool, typer.Option("--stat", help="Which entries differ, without values.")] = (
        False
    ),
    full: Annotated[bool, typer.Option("--full", help="Long values to their end.")] = False,
    no_pager: NoPagerOption = False,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show what was added, removed and changed from one moment to another.

    JSON is a JSON Patch (RFC 6902) that leads from the first document's state to the second's.
    Example: holdfast state diff baseline.json ses_abc123
    """
    wanted = read_paths(only)
    first, second = await load(store, before, after, agent_id=agent)
    base, later = first.snapshot, second.snapshot
    if format is Format.json and not stat:
        patch = make_state_patch(later, base)
        print_json(select_operations(patch, wanted, later))
        return
    found = select_differences(diff_states(later, base), wanted, later, base)
    if format is Format.json:
        print_json({**counted(found), "entries": [stat_json(each) for each in found]})
        return
    with paged(no_pager=no_pager):
        say((summary(found), "bold"))
        for each in found:
            if stat:
                print_stat(each)
            else:
                print_difference(each, most=None if full else MOST_LINES)


def read_paths(texts: Sequence[str] | None) -> tuple[JsonPath, ...]:
    """Return the paths of ``--only``; wrong usage where one is invalid."""
    try:
        return json_path.parse_paths(texts or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from None


# -------------------------------------------------------------------------------------- summary


def counted(found: Sequence[Difference]) -> dict[str, int]:
    """Return how many entries were added, removed and changed."""
    kinds = Counter(each.kind for each in found)
    return {kind: kinds[kind] for kind in COLOURS}


def summary(found: Sequence[Difference]) -> str:
    """Return what differs in one line."""
    if not found:
        return "no difference"
    return ", ".join(f"{count:,} {kind}" for kind, count in counted(found).items())


def stat_json(each: Difference) -> dict[str, Any]:
    """Return which entry differs, without its values."""
    pointers = [field["path"] for field in each.fields]
    return {"namespace": each.namespace, "key": each.key, "kind": each.kind, "fields": pointers}


def print_stat(each: Difference) -> None:
    """Print which entry differs, and how much of it."""
    if each.kind == "changed":
        count = len(each.fields)
        detail = f"{count:,} {'field' if count == 1 else 'fields'}"
    else:
        value = each.after if each.kind == "added" else each.before
        detail = f"{len(compact(to_json(value))):,} characters"
    print_lines("", fold(f"{title(each)}  {detail}", terminal_width()), COLOURS[each.kind][0])


def title(each: Difference) -> str:
    """Return how an entry differs, and which one it is."""
    return f"{COLOURS[each.kind][1]} {visible(each.namespace)}/{visible(each.key)}"


# -------------------------------------------------------------------------------------- entries


def print_difference(each: Difference, *, most: int | None = MOST_LINES) -> None:
    """Print one entry: itself, and what changed inside it."""
    width = terminal_width()
    colour, _ = COLOURS[each.kind]
    print_lines("", fold(title(each), width), colour)
    if each.kind != "changed":
        value = each.after if each.kind == "added" else each.before
        print_lines(INDENT, value_lines(to_json(value), width - len(INDENT), most), colour)
        return
    before = to_json(each.before)
    for field in each.fields:
        print_field(field, before, width, most)


def print_field(field: dict[str, Any], before: Any, width: int, most: int | None) -> None:
    """Print what changed at one place inside an entry: on one line if it fits."""
    colour, sign = COLOURS[KINDS[field["op"]]]
    name = f"{INDENT}{sign} {visible(field['path']) or '(all of it)'}:"
    sides = []
    if field["op"] != "add":
        sides.append(("-", at(before, field["path"])))
    if field["op"] != "remove":
        sides.append(("+", field["value"]))
    room = width - len(DEEPER) - len("+ ")
    one = f"{name} {' → '.join(compact(value) for _, value in sides)}"
    if cell_len(one) <= width and not any(is_long_text(value, room) for _, value in sides):
        say((one, colour))
        return
    print_lines("", fold(name, width), colour)
    changed = None
    if len(sides) == 2 and all(isinstance(value, str) for _, value in sides):
        changed = text_difference(sides[0][1], sides[1][1], room)
    if changed is not None:
        print_text_difference(changed, most)
        return
    for mark, value in sides:
        lines = [f"{mark} {line}" for line in value_lines(value, room, most)]
        print_lines(DEEPER, lines, SIGNS[mark])


def print_text_difference(changed: list[tuple[str, str]], most: int | None) -> None:
    """Print the lines of a text that changed, and one line around them."""
    lines = [f"{sign} {line}" for sign, line in changed]
    for line in shorten(lines, None if most is None else 2 * most):
        say((f"{DEEPER}{line}".rstrip(), SIGNS.get(line[:1], "dim")))


def print_lines(indent: str, lines: Sequence[str], colour: str) -> None:
    """Print lines of one colour."""
    for line in lines:
        say((f"{indent}{line}".rstrip(), colour))


def at(tree: Any, path: str) -> Any:
    """Return what a JSON Pointer leads to."""
    for name in split_pointer(path):
        tree = tree[int(name)] if isinstance(tree, list) else tree[name]
    return tree


def shortened(value: Any) -> str:
    """Return a value on one line."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
