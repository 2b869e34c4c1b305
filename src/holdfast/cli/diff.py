"""``holdfast state diff``: compare two states, in files or in the store."""

from __future__ import annotations

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
    escape_control_codes,
    print_json,
    print_line,
    viewing_command,
)
from holdfast.cli.paging import NoPagerOption, use_pager
from holdfast.cli.references import load_two_states
from holdfast.cli.rendering import (
    MAX_LINES,
    diff_texts,
    dump_json,
    is_long_text,
    render_value,
    to_compact_json,
    truncate_lines,
)
from holdfast.cli.tables import fold_text, terminal_width
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
MAX_VALUE_LENGTH = 200
INDENT = "    "
DEEPER = "      "


@viewing_command
async def diff(
    before: Annotated[
        str,
        typer.Argument(
            metavar="BEFORE",
            help="A file, a session, SESSION@REF or a snapshot id.",
            autocompletion=complete_state,
        ),
    ],
    after: Annotated[
        str,
        typer.Argument(
            metavar="AFTER",
            help="The later state, in the same form.",
            autocompletion=complete_state,
        ),
    ],
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="PATH",
            help="Show only this path, such as values.plan or messages[-1].content. Repeatable.",
        ),
    ] = None,
    stat: Annotated[
        bool, typer.Option("--stat", help="Show which entries differ, without values.")
    ] = (False),
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long values.")] = False,
    no_pager: NoPagerOption = False,
    agent: AgentOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show what was added, removed and changed between two states.

    The JSON output is a JSON Patch (RFC 6902) from the first document's state to the second's.
    Example: holdfast state diff baseline.json ses_abc123
    """
    wanted = parse_paths(only)
    base, later = await load_two_states(store, before, after, agent)
    if format is Format.json and not stat:
        patch = make_state_patch(later, base)
        print_json(select_operations(patch, wanted, later))
        return
    found = select_differences(diff_states(later, base), wanted, later, base)
    if format is Format.json:
        print_json({**count_kinds(found), "entries": [stat_to_json(each) for each in found]})
        return
    with use_pager(no_pager=no_pager):
        print_line((format_summary(found), "bold"))
        for each in found:
            if stat:
                print_stat(each)
            else:
                print_difference(each, most=None if full else MAX_LINES)


def parse_paths(texts: Sequence[str] | None) -> tuple[JsonPath, ...]:
    """Return the paths of ``--only``."""
    try:
        return json_path.parse_paths(texts or [])
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--only") from None


# -------------------------------------------------------------------------------------- summary


def count_kinds(found: Sequence[Difference]) -> dict[str, int]:
    """Return how many entries were added, removed and changed."""
    kinds = Counter(each.kind for each in found)
    return {kind: kinds[kind] for kind in COLOURS}


def format_summary(found: Sequence[Difference]) -> str:
    """Return the counts on one line."""
    if not found:
        return "no difference"
    return ", ".join(f"{count:,} {kind}" for kind, count in count_kinds(found).items())


def stat_to_json(each: Difference) -> dict[str, Any]:
    """Return a difference without its values."""
    pointers = [field["path"] for field in each.fields]
    return {"namespace": each.namespace, "key": each.key, "kind": each.kind, "fields": pointers}


def print_stat(each: Difference) -> None:
    """Print which entry differs, and by how much."""
    if each.kind == "changed":
        count = len(each.fields)
        detail = f"{count:,} {'field' if count == 1 else 'fields'}"
    else:
        value = each.after if each.kind == "added" else each.before
        detail = f"{len(to_compact_json(to_json(value))):,} characters"
    print_lines(
        "", fold_text(f"{format_title(each)}  {detail}", terminal_width()), COLOURS[each.kind][0]
    )


def format_title(each: Difference) -> str:
    """Return the sign and the name of an entry."""
    name = escape_control_codes(f"{each.namespace}/{each.key}")
    return f"{COLOURS[each.kind][1]} {name}"


# -------------------------------------------------------------------------------------- entries


def print_difference(each: Difference, *, most: int | None = MAX_LINES) -> None:
    """Print one entry and what changed inside it."""
    width = terminal_width()
    colour, _ = COLOURS[each.kind]
    print_lines("", fold_text(format_title(each), width), colour)
    if each.kind != "changed":
        value = each.after if each.kind == "added" else each.before
        print_lines(INDENT, render_value(to_json(value), width - len(INDENT), most), colour)
        return
    before = to_json(each.before)
    for field in each.fields:
        print_field(field, before, width, most)


def print_field(field: dict[str, Any], before: Any, width: int, most: int | None) -> None:
    """Print one changed field, on one line if it fits."""
    colour, sign = COLOURS[KINDS[field["op"]]]
    name = f"{INDENT}{sign} {escape_control_codes(field['path']) or '(entire value)'}:"
    sides = []
    if field["op"] != "add":
        sides.append(("-", resolve_pointer(before, field["path"])))
    if field["op"] != "remove":
        sides.append(("+", field["value"]))
    room = width - len(DEEPER) - len("+ ")
    one = f"{name} {' → '.join(to_compact_json(value) for _, value in sides)}"
    if cell_len(one) <= width and not any(is_long_text(value, room) for _, value in sides):
        print_line((one, colour))
        return
    print_lines("", fold_text(name, width), colour)
    changed = None
    if len(sides) == 2 and all(isinstance(value, str) for _, value in sides):
        changed = diff_texts(sides[0][1], sides[1][1], room)
    if changed is not None:
        print_text_difference(changed, most)
        return
    for mark, value in sides:
        lines = [f"{mark} {line}" for line in render_value(value, room, most)]
        print_lines(DEEPER, lines, SIGNS[mark])


def print_text_difference(changed: list[tuple[str, str]], most: int | None) -> None:
    """Print the changed lines of a text with one line of context."""
    lines = [f"{sign} {line}" for sign, line in changed]
    for line in truncate_lines(lines, None if most is None else 2 * most):
        print_line((f"{DEEPER}{line}".rstrip(), SIGNS.get(line[:1], "dim")))


def print_lines(indent: str, lines: Sequence[str], colour: str) -> None:
    """Print lines in one colour."""
    for line in lines:
        print_line((f"{indent}{line}".rstrip(), colour))


def resolve_pointer(tree: Any, path: str) -> Any:
    """Return the value at a JSON Pointer."""
    for name in split_pointer(path):
        tree = tree[int(name)] if isinstance(tree, list) else tree[name]
    return tree


def shorten_value(value: Any) -> str:
    """Return a value on one line."""
    text = dump_json(value)
    return (
        text
        if len(text) <= MAX_VALUE_LENGTH
        else f"{text[:MAX_VALUE_LENGTH]}… ({len(text):,} characters)"
    )
