"""``holdfast state show``: summarize a document or a session."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any

import typer
from rich.cells import cell_len, set_cell_size

from holdfast.cli.attachment import attachment_to_json, print_attachments
from holdfast.cli.completion import complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    escape_control_codes,
    fail,
    print_json,
    print_line,
    viewing_command,
)
from holdfast.cli.keys import (
    RequireOption,
    TrustOption,
    format_signers,
    load_known_keys,
    load_required_keys,
    report_signature_errors,
)
from holdfast.cli.paging import NoPagerOption, use_pager
from holdfast.cli.references import SUFFIXES, is_file, load_document, require_file
from holdfast.cli.rendering import (
    MIN_WIDTH,
    format_call,
    message_text,
    render_field,
    truncate_lines,
    wrap_text,
)
from holdfast.cli.tables import Column, fold_text, format_tags, print_table, terminal_width
from holdfast.documents.document import Document
from holdfast.documents.files import decode_document
from holdfast.documents.json_file import read_json_file
from holdfast.documents.signing import PublicKey, SignatureError, read_signatures, verify_signature
from holdfast.log.event import format_time
from holdfast.snapshots.attachments import find_attachments
from holdfast.snapshots.message_formats import message_role
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATE
from holdfast.snapshots.tool_calls import ToolCallIndex
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json

COLUMNS = (Column("Field"), Column("Value", least=20))
MESSAGES_SHOWN = 3
MESSAGE_LINES = 4
MAX_ROLE_WIDTH = 12
GAP = "  "


@viewing_command
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
        int, typer.Option("--messages", min=0, metavar="N", help="Show the last N messages.")
    ] = MESSAGES_SHOWN,
    values: Annotated[
        bool, typer.Option("--values", help="Show values, not only their keys.")
    ] = False,
    attachments: Annotated[
        bool, typer.Option("--attachments", help="List the attachments instead.")
    ] = False,
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    no_pager: NoPagerOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Validate and summarize a document or a session.

    Shows the last messages, the keys of the values and unfinished tool calls.

    Example: holdfast state show incident.json
    """
    keys = load_required_keys(trust, required=require_signature)
    if is_file(name) or (keys is not None and name.endswith(SUFFIXES)):
        found, signers = read_file(name, keys)
    elif keys is None:
        found, signers = await load_document(store, name, agent), None
    else:
        fail(
            f"{name} is not a file; only files are signed",
            "pass a document file, or omit --trust and --require-signature",
        )
    if attachments:
        listed = find_attachments(found.snapshot, found.events)
        if format is Format.json:
            print_json([attachment_to_json(each) for each in listed])
        else:
            print_attachments(listed)
    elif format is Format.json:
        print_json(found.to_dict())
    else:
        signed = {} if signers is None else {"signed_by": signers}
        with use_pager(no_pager=no_pager):
            print_table(
                COLUMNS, [list(row) for row in {**document_rows(found), **signed}.items()], ""
            )
            print_messages(found.snapshot, messages)
            print_values(found.snapshot, with_values=values)
            print_unfinished(found.snapshot)


def read_file(name: str, required: list[PublicKey] | None) -> tuple[Document, str | None]:
    """Return a document and its signers; one of the required keys must have signed."""
    require_file(name)
    tree = read_json_file(name)
    if required is not None:
        with report_signature_errors(name):
            found = decode_document(tree, trusted=required)
        return found, format_signers(found.signed_by, required)
    return decode_document(tree), describe_signatures(tree)


def describe_signatures(tree: Any) -> str | None:
    """Return who signed a document and whether that was verified; None if unsigned."""
    try:
        found = read_signatures(tree)
        if not found:
            return None
        claimed = format_signers((each.key_id for each in found), ())
        keys = load_known_keys()
        if not keys:
            return f"{claimed}: not verified, no trusted keys"
        return format_signers((key.key_id for key in verify_signature(tree, keys)), keys)
    except SignatureError as error:
        return f"not by a trusted key: {error}"


def document_rows(found: Document) -> dict[str, object]:
    """Return the rows of the table."""
    return {
        "schema_version": found.schema_version,
        "agent_id": found.agent_id,
        "session_id": found.session_id,
        "status": found.state.status,
        "messages": found.snapshot.count(MESSAGES),
        "event_log_count": found.event_log_count,
        "source_environment": found.source_environment or "-",
        "exported_at": format_time(found.exported_at) if found.exported_at else "-",
        "tags": format_tags(found.tags),
    }


# ------------------------------------------------------------------------------- below the table


def print_messages(state: Snapshot, most: int) -> None:
    """Print the last messages, a few lines of each."""
    count = state.count(MESSAGES)
    if not most or not count:
        return
    keys = [key for _, key, _ in islice(state.items(MESSAGES), max(0, count - most), None)]
    print_heading(f"last {len(keys)} of {count:,} messages" if len(keys) < count else "messages")
    found = [state.get(MESSAGES, key) for key in keys]
    numbers = [str(number) for number in range(count - len(keys), count)]
    roles = [escape_control_codes(message_role(message) or "-") for message in found]
    widths = max(map(len, numbers)), min(max(map(cell_len, roles)), MAX_ROLE_WIDTH)
    left = " " * (sum(widths) + 2 * len(GAP) + len(GAP))
    room = max(terminal_width() - len(left), MIN_WIDTH)
    for number, role, message in zip(numbers, roles, found, strict=True):
        first, *more = truncate_lines(list(wrap_text(message_text(message), room)), MESSAGE_LINES)
        name = set_cell_size(role, widths[1])
        print_line(f"{GAP}{number.rjust(widths[0])}{GAP}", (name, "bold"), f"{GAP}{first}")
        for line in more:
            print_line(f"{left}{line}".rstrip())


def print_values(state: Snapshot, *, with_values: bool) -> None:
    """Print the keys of the values, or the values too."""
    width = terminal_width()
    for space in sorted(state.namespaces(), key=lambda each: (each != STATE, each)):
        if space in (MESSAGES, SESSION):
            continue
        keys = [key for _, key, _ in state.items(space)]
        print_heading("values" if space == STATE else f"values in {escape_control_codes(space)}")
        if not with_values:
            for line in fold_text(", ".join(map(escape_control_codes, keys)), width - len(GAP)):
                print_line(f"{GAP}{line}")
            continue
        for key in keys:
            value = to_json(state.get(space, key))
            for line in render_field(escape_control_codes(key), value, width - len(GAP)):
                print_line(f"{GAP}{line}".rstrip())


def print_unfinished(state: Snapshot) -> None:
    """Print the tool calls without a result, if there are any."""
    calls = ToolCallIndex().unfinished(state)
    if not calls:
        return
    numbers = {key: number for number, (_, key, _) in enumerate(state.items(MESSAGES))}
    print_heading("unfinished tool calls")
    for call in calls:
        what = f"{format_call(call.tool, call.arguments)}, call {call.call_id or '-'}"
        text = f"{what}, in message {numbers[call.message]}"
        for line in fold_text(escape_control_codes(text), terminal_width() - len(GAP)):
            print_line(f"{GAP}{line}")


def print_heading(text: str) -> None:
    """Print a heading after an empty line."""
    print_line("")
    print_line((text, "bold"))
