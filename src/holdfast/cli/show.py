"""``holdfast state show``: what a document or a session is, at a glance."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from holdfast.cli.completion import complete_state
from holdfast.cli.console import (
    AgentOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    fail,
    print_json,
    print_rows,
    tags_text,
)
from holdfast.cli.keys import (
    RequireOption,
    TrustOption,
    known_keys,
    required_keys,
    signatures_told,
    signers_text,
)
from holdfast.cli.references import SUFFIXES, check_file, is_file, load
from holdfast.log.events import time_text
from holdfast.snapshots import document_files
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES
from holdfast.snapshots.signing import PublicKey, SignatureError, check_signature, signatures_of


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
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Show a document, or a session in the store, after checking all of it.

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
        print_rows({**rows(found), **({} if signers is None else {"signed_by": signers})})


def read_file(name: str, required: list[PublicKey] | None) -> tuple[SessionSnapshot, str | None]:
    """The document of a file, and who signed it; one of the required keys, if there are any."""
    check_file(name)
    tree = document_files.read(name)
    if required is not None:
        with signatures_told(name):
            signers = [key.key_id for key in check_signature(tree, required)]
        return SessionSnapshot.from_dict(tree), signers_text(signers, required)
    return SessionSnapshot.from_dict(tree), told(tree)


def told(tree: Any) -> str | None:
    """Who is said to have signed a document, and whether that is so; None where nobody is."""
    try:
        found = signatures_of(tree)
        if not found:
            return None
        claimed = signers_text((each.key_id for each in found), ())
        keys = known_keys()
        if not keys:
            return f"{claimed}: not checked, as no key is trusted here"
        return signers_text((key.key_id for key in check_signature(tree, keys)), keys)
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
        "exported_at": time_text(found.exported_at) if found.exported_at else "-",
        "tags": tags_text(found.tags),
    }
