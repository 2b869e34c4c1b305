"""``holdfast state show``: what a document or a session is, at a glance."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size

from holdfast.cli.completion import complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    fail,
    print_json,
    say,
    visible,
)
from holdfast.cli.keys import (
    RequireOption,
    TrustOption,
    known_keys,
    required_keys,
    signatures_told,
    signers_text,
)
from holdfast.cli.paging import NoPagerOption, paged
from holdfast.cli.references import SUFFIXES, check_file, is_file, load
from holdfast.cli.rendering import (
    NARROWEST,
    call_text,
    field_lines,
    message_role,
    message_text,
    shorten,
    text_lines,
)
from holdfast.cli.tables import Column, fold, print_table, tags_text, terminal_width
from holdfast.documents.json_file import read_json_file
from holdfast.documents.signing import PublicKey, SignatureError, read_signatures, verify_signature
from holdfast.log.event import format_time
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATE
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json

COLUMNS = (Column("Field"), Column("Value", least=20))
MESSAGES_SHOWN = 3
MESSAGE_LINES = 4
LONGEST_ROLE = 12
GAP = "  "


@command
async def show(
    name: Annotated[
        str,
        typer.Argument(
            metavar="FILE|ID",
            help="A file, a session, SESSION@REF or a snapshot.",
            autocompletion=complete_state,
        ),
    ],
    agent: AgentOption = None,
    messages: Annotated[
        int, typer.Option("--messages", min=0, metavar="N", help="The last N messages.")
    ] = MESSAGES_SHOWN,
    values: Annotated[
        bool, typer.Option("--values", help="The values, and not their keys alone.")
    ] = False,
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    no_pager: NoPagerOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show a document, or a session in the store, after checking all of it.

    Below the table are the last messages, the keys of its values and its unfinished tool calls.

    Example: holdfast state show incident.json
    """
    keys = required_keys(trust, required=require_signature)
    if is_file(name) or (keys is not None and name.endswith(SUFFIXES)):
        found, signers = read_file(name, keys)
    elif keys is None:
        (found,), signers = await load(store, name, agent_id=agent), None
    else:
        fail(
            f"{name} is no file, and what is in a store is not signed",
            "name the file of a document, or leave --trust and --require-signature out",
        )
    if format is Format.json:
        print_json(found.to_dict())
    else:
        signed = {} if signers is None else {"signed_by": signers}
        with paged(no_pager=no_pager):
            print_table(COLUMNS, [list(row) for row in {**rows(found), **signed}.items()], "")
            print_messages(found.snapshot, messages)
            print_values(found.snapshot, with_values=values)
            print_unfinished(found.snapshot)


def read_file(name: str, required: list[PublicKey] | None) -> tuple[SessionSnapshot, str | None]:
    """The document of a file, and who signed it; one of the required keys, if there are any."""
    check_file(name)
    tree = read_json_file(name)
    if required is not None:
        with signatures_told(name):
            signers = [key.key_id for key in verify_signature(tree, required)]
        return SessionSnapshot.from_dict(tree), signers_text(signers, required)
    return SessionSnapshot.from_dict(tree), told(tree)


def told(tree: Any) -> str | None:
    """Who is said to have signed a document, and whether that is so; None where nobody is."""
    try:
        found = read_signatures(tree)
        if not found:
            return None
        claimed = signers_text((each.key_id for each in found), ())
        keys = known_keys()
        if not keys:
            return f"{claimed}: not checked, as no key is trusted here"
        return signers_text((key.key_id for key in verify_signature(tree, keys)), keys)
    except SignatureError as error:
        return f"nobody that is trusted: {error}"


def rows(found: SessionSnapshot) -> dict[str, object]:
    """What the table says of a document."""
    return {
        "schema_version": found.schema_version,
        "agent_id": found.agent_id,
        "session_id": found.session_id,
        "status": found.state.status,
        "messages": found.snapshot.count(MESSAGES),
        "event_log_count": found.event_log_count,
        "source_environment": found.source_environment or "-",
        "exported_at": format_time(found.exported_at) if found.exported_at else "-",
        "tags": tags_text(found.tags),
    }


# ------------------------------------------------------------------------------- below the table


def print_messages(state: Snapshot, most: int) -> None:
    """Print the last messages, a few lines of each."""
    count = state.count(MESSAGES)
    if not most or not count:
        return
    keys = [key for _, key, _ in islice(state.items(MESSAGES), max(0, count - most), None)]
    heading(f"last {len(keys)} of {count:,} messages" if len(keys) < count else "messages")
    found = [state.get(MESSAGES, key) for key in keys]
    numbers = [str(number) for number in range(count - len(keys), count)]
    roles = [visible(message_role(message)) for message in found]
    widths = max(map(len, numbers)), min(max(map(cell_len, roles)), LONGEST_ROLE)
    left = " " * (sum(widths) + 2 * len(GAP) + len(GAP))
    room = max(terminal_width() - len(left), NARROWEST)
    for number, role, message in zip(numbers, roles, found, strict=True):
        first, *more = shorten(list(text_lines(message_text(message), room)), MESSAGE_LINES)
        name = set_cell_size(role, widths[1])
        say(f"{GAP}{number.rjust(widths[0])}{GAP}", (name, "bold"), f"{GAP}{first}")
        for line in more:
            say(f"{left}{line}".rstrip())


def print_values(state: Snapshot, *, with_values: bool) -> None:
    """Print the keys of the values, or the values too."""
    width = terminal_width()
    for space in sorted(state.namespaces(), key=lambda each: (each != STATE, each)):
        if space in (MESSAGES, SESSION):
            continue
        keys = [key for _, key, _ in state.items(space)]
        heading("values" if space == STATE else f"values in {visible(space)}")
        if not with_values:
            for line in fold(", ".join(map(visible, keys)), width - len(GAP)):
                say(f"{GAP}{line}")
            continue
        for key in keys:
            value = to_json(state.get(space, key))
            for line in field_lines(visible(key), value, width - len(GAP)):
                say(f"{GAP}{line}".rstrip())


def print_unfinished(state: Snapshot) -> None:
    """Print the tool calls without a result, if there are any."""
    calls = ToolCallIndex().unfinished(state)
    if not calls:
        return
    numbers = {key: number for number, (_, key, _) in enumerate(state.items(MESSAGES))}
    heading("unfinished tool calls")
    for call in calls:
        what = f"{call_text(call.tool, call.arguments)}, call {call.call_id or '-'}"
        text = f"{what}, in message {numbers[call.message]}"
        for line in fold(visible(text), terminal_width() - len(GAP)):
            say(f"{GAP}{line}")


def heading(text: str) -> None:
    """Print a heading after an empty line."""
    say("")
    say((text, "bold"))
