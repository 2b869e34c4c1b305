"""``holdfast state import``: import documents and the databases of other tools."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from holdfast.cli.completion import complete_format
from holdfast.cli.console import (
    DryRunOption,
    Format,
    FormatOption,
    StoreOption,
    command,
    fail,
    format_command,
    format_count,
    print_json,
    print_line,
)
from holdfast.cli.keys import (
    RequireOption,
    TrustOption,
    format_signers,
    load_required_keys,
    report_signature_errors,
)
from holdfast.cli.references import require_file
from holdfast.documents.errors import SignatureError
from holdfast.errors import InvalidDocumentError
from holdfast.importers import holdfast_document
from holdfast.importers.registry import (
    BUILT_IN,
    HOLDFAST,
    SEVERAL_AGENTS,
    ReadResult,
    read_source,
)
from holdfast.importers.snapshots import save_snapshots
from holdfast.importers.source import URL_PATTERN, Source, open_source
from holdfast.stores.registry import open_state_store
from holdfast.transfer.import_document import ImportResult
from holdfast.transfer.manager import SnapshotManager

NO_SIGNATURE = "a signature is required, and only Holdfast documents have one"


@command
async def import_(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL", help="A document, or a file or database of another tool."
        ),
    ],
    dry_run: DryRunOption = False,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="Import under this agent id.")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="SESSION", help="Import under this session id."),
    ] = None,
    thread: Annotated[
        str | None,
        typer.Option("--thread", metavar="THREAD", help="Import only this thread of a database."),
    ] = None,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as",
            metavar="FORMAT",
            autocompletion=complete_format,
            help=f"The format: {', '.join(BUILT_IN)}, or that of a package. Default: detected.",
        ),
    ] = None,
    allow_modified: Annotated[
        bool,
        typer.Option(
            "--allow-modified", help="Accept an edited document, whose digest does not match."
        ),
    ] = False,
    require_signature: RequireOption = False,
    trust: TrustOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    store: StoreOption = None,
) -> None:
    """Import a document as a session. An existing session is snapshotted first.

    Example: holdfast state import incident.json --dry-run
    """
    if not URL_PATTERN.match(file):
        require_file(file)
    keys = load_required_keys(trust, required=require_signature)
    # All documents are validated before the store is opened.
    with open_source(
        file,
        thread=thread,
        agent_id=agent,
        session_id=session,
        allow_modified=allow_modified,
        trusted=keys,
    ) as source:
        found = read_source(source, as_) if keys is None else read_signed(source, as_)
    results = []
    async with open_state_store(store) as state_store:
        manager = SnapshotManager(state_store)
        for document in found.documents:
            is_named = found.format in SEVERAL_AGENTS
            result = await manager.import_session(
                document,
                dry_run=dry_run,
                agent_id=None if is_named else agent,
                session_id=None if is_named else session,
            )
            results.append(result)
            kept = 0
            if found.format != HOLDFAST:
                kept = await save_snapshots(manager, document, result)
            if format is Format.table:
                omitted = sum(each.is_omitted for each in document.blobs.entries)
                print_import_result(result, store, kept, omitted)
                if result.signed_by:
                    print_line(f"signed by {format_signers(result.signed_by, keys or [])}")
    if format is Format.table and not results:
        print_line(f"{source.name} has no sessions; nothing was imported")
    if format is Format.json:
        print_json([asdict(each) for each in results] if found.is_list else asdict(results[0]))


def read_signed(source: Source, as_: str | None) -> ReadResult:
    """Read a document that must be signed, so only Holdfast's own reader may see it."""
    with report_signature_errors(source.name):
        if as_ not in (None, HOLDFAST):
            raise SignatureError(f"format {as_} has no signature: {NO_SIGNATURE}")
        try:
            return read_source(source, HOLDFAST)
        except SignatureError:
            raise
        except InvalidDocumentError as error:
            if holdfast_document.recognises(source):
                raise
            fail(
                f"{error}; {NO_SIGNATURE}",
                "create a signed document with holdfast state export --sign",
            )


def print_import_result(
    result: ImportResult, store: str | None, kept: int = 0, omitted: int = 0
) -> None:
    """Print the result of an import."""
    verb = "would import" if result.dry_run else "imported"
    kind = "new session" if result.created else "existing session"
    print_line(
        f"{verb} {format_count(result.messages_restored, 'message')} and "
        f"{format_count(result.events_restored, 'event')} into {kind} "
        f"{result.agent_id}/{result.session_id}"
    )
    diff = result.diff
    print_line(
        f"entries: {len(diff['added'])} added, {len(diff['removed'])} removed, "
        f"{len(diff['changed'])} changed"
    )
    if kept:
        print_line(f"snapshots: {kept} saved")
    if omitted:
        print_line(
            f"blobs: {omitted} omitted from the document; their values cannot be read unless the "
            "session has them"
        )
    if result.undo_id is not None:
        names = (result.session_id, result.undo_id)
        undo = format_command("holdfast state restore", *names, agent=result.agent_id, store=store)
        print_line(f"undo with: {undo}")
