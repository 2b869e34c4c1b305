"""``holdfast state import``: a document becomes a session here, Holdfast's own or of others."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated

import typer

from holdfast.cli.console import (
    DryRunOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    fail,
    plural,
    print_json,
    say,
    typed,
)
from holdfast.cli.keys import (
    RequireOption,
    TrustOption,
    required_keys,
    signatures_told,
    signers_text,
)
from holdfast.cli.references import check_file
from holdfast.documents.signing import PublicKey, SignatureError, record_signers, verify_signature
from holdfast.errors import InvalidDocumentError
from holdfast.importers import holdfast_document
from holdfast.importers.registry import HOLDFAST, ReadResult, read_source
from holdfast.importers.snapshots import save_snapshots
from holdfast.importers.source import URL_PATTERN, Source, open_source
from holdfast.stores.registry import open_state_store
from holdfast.transfer.import_document import ImportResult
from holdfast.transfer.manager import SnapshotManager

ONLY = "A signature is required, and only a document of Holdfast has one"


@command
async def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL", help="The document, or a database with threads of LangGraph."
        ),
    ],
    dry_run: DryRunOption = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Under this agent instead.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="SESSION", help="Under this session id instead."),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", metavar="THREAD", help="Only this thread of a database."),
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option("--as", metavar="FORMAT", help="Read it as this, whatever it looks like."),
    ] = None,
    allow_modified: Annotated[
        bool,
        typer.Option("--allow-modified", help="Take a document that was edited on purpose."),
    ] = False,
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Make a document a session in this store. What was there before can be gone back to.

    Example: holdfast state import incident.json --dry-run
    """
    if not URL_PATTERN.match(file):
        check_file(file)
    keys = required_keys(trust, required=require_signature)
    # The store is touched only after all documents were found to be in order.
    with open_source(
        file, thread=thread, agent_id=agent, session_id=session, allow_modified=allow_modified
    ) as source:
        found = read_source(source, as_) if keys is None else read_signed(source, as_, keys)
    results = []
    async with open_state_store(store) as state_store:
        manager = SnapshotManager(state_store)
        for document in found.documents:
            result = await manager.import_session(
                document, dry_run=dry_run, agent_id=agent, session_id=session
            )
            results.append(result)
            kept = 0
            if found.format != HOLDFAST:
                kept = await save_snapshots(manager, document, result)
            if format is Format.table:
                report(result, store, kept)
                if result.signed_by:
                    say(f"signed by {signers_text(result.signed_by, keys or [])}")
    if format is Format.json:
        print_json([asdict(each) for each in results] if found.is_list else asdict(results[0]))


def read_signed(source: Source, as_: str | None, keys: list[PublicKey]) -> ReadResult:
    """What is in a source that one of these keys has signed."""
    # No reader of another format so much as looks at it: nobody who is trusted has made it.
    with signatures_told(source.name):
        if as_ not in (None, HOLDFAST):
            raise SignatureError(f"it is read as {as_}, which has no signature. {ONLY}")
        try:
            tree = source.json
        except InvalidDocumentError as error:
            fail(f"{error}. {ONLY}", "holdfast state export --sign makes a document that is signed")
        signers = verify_signature(tree, keys)
        if not holdfast_document.recognises(source):
            raise SignatureError(f"it is JSON of something else. {ONLY}")
        found = read_source(source, HOLDFAST)
        return replace(found, documents=[record_signers(each, signers) for each in found.documents])


def report(result: ImportResult, store: str | None, kept: int = 0) -> None:
    """The result in a sentence or two."""
    verb = "would become" if result.dry_run else "became"
    place = f"{result.agent_id}/{result.session_id}"
    kind = "a new session" if result.created else "the state of a session that is there"
    say(
        f"{plural(result.messages_restored, 'message')} and "
        f"{plural(result.events_restored, 'event')} {verb} {kind}: {place}"
    )
    diff = result.diff
    say(
        f"entries: {len(diff['added'])} added, {len(diff['removed'])} removed, "
        f"{len(diff['changed'])} changed"
    )
    if kept:
        say(f"snapshots: {kept} saved")
    if result.undo_id is not None:
        names = (result.session_id, result.undo_id)
        undo = typed("holdfast state restore", *names, agent=result.agent_id, store=store)
        say(f"to undo it: {undo}")
