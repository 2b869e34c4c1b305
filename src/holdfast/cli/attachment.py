"""``holdfast state attachment``: write the content of an attachment to a file or to stdout."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from shlex import quote
from typing import Annotated, Any

import typer

from holdfast.blobs.reader import BlobReader
from holdfast.cli.completion import complete_session
from holdfast.cli.console import (
    FAILED,
    AgentOption,
    StoreOption,
    err,
    fail,
    out,
    print_line,
    viewing_command,
    write_bytes,
)
from holdfast.cli.references import Reference, find_reference, open_existing_store
from holdfast.cli.tables import Column, format_size, print_table
from holdfast.documents.blobs import OMIT
from holdfast.documents.export import export_document
from holdfast.snapshots.archive import SnapshotArchive
from holdfast.snapshots.attachments import find_attachments
from holdfast.stores.base import StateStore
from holdfast.stores.local import run_in_thread
from holdfast.values.references import DIGEST, Attachment

COLUMNS = (
    Column("digest", least=16),
    Column("size", right=True),
    Column("media_type", rank=1),
    Column("name", least=12),
)
MIN_PREFIX = 6
SHORT = 16
"""Characters of a digest in a narrow table."""


@viewing_command
async def attachment(
    name: Annotated[
        str,
        typer.Argument(
            metavar="SESSION",
            help="A session, or SESSION@REF.",
            autocompletion=complete_session,
        ),
    ],
    which: Annotated[
        str,
        typer.Argument(
            metavar="DIGEST|NAME", help="The name of an attachment, or a digest or its start."
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for stdout.")
    ],
    agent: AgentOption = None,
    store: StoreOption = None,
) -> None:
    """Write the content of an attachment, or of another large value, to a file.

    Example: holdfast state attachment ses_abc123 chart.png --output chart.png
    """
    async with open_existing_store(store) as state_store:
        found = await find_reference(state_store, name, agent)
        digest = await find_digest(state_store, found, which)
        chunks = BlobReader(state_store, found.location.prefix).stream(digest)
        if output == "-":
            await write_stdout(chunks)
            return
        size = await write_file(Path(output), chunks)
    print_line(f"{output}: {format_size(size)}, sha256:{digest}", to=err)


async def find_digest(state_store: StateStore, found: Reference, which: str) -> str:
    """Return the digest of the content that a name, a digest or its start stands for."""
    if DIGEST.fullmatch(which):
        return which
    document = await export_document(
        SnapshotArchive(state_store),
        found.location,
        snapshot_id=found.snapshot_id,
        seq=found.seq,
        attachments=OMIT,
    )
    known = find_attachments(document.snapshot, document.events)
    digests = {each.digest for each in known if each.name == which}
    if not digests and len(which) >= MIN_PREFIX:
        stored = [each async for each in BlobReader(state_store, found.location.prefix).list()]
        digests = {each.digest for each in known}.union(stored)
        digests = {each for each in digests if each.startswith(which)}
    hint = f"holdfast state show {quote(found.location.session_id)} --attachments lists them"
    if not digests:
        fail(f"session {found.location.session_id} has no attachment {which!r}", hint)
    if len(digests) > 1:
        fail(f"{which!r} is ambiguous: {len(digests)} contents have this name or start", hint)
    return digests.pop()


async def write_stdout(chunks: AsyncIterator[bytes]) -> None:
    """Write chunks to stdout."""
    try:
        async for chunk in chunks:
            write_bytes([chunk])
    except BrokenPipeError as error:
        out.drop(error)
        raise typer.Exit(FAILED) from None


async def write_file(target: Path, chunks: AsyncIterator[bytes]) -> int:
    """Write chunks to a file, which replaces another only if all of them were read."""
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    size = 0
    try:
        with temporary.open("xb") as file:
            async for chunk in chunks:
                await run_in_thread(file.write, chunk)
                size += len(chunk)
        temporary.replace(target)
    except OSError as error:
        fail(f"cannot write {target}: {error.strerror or error}", "choose another --output")
    finally:
        temporary.unlink(missing_ok=True)
    return size


# --------------------------------------------------------------------------------------- listing


def print_attachments(found: list[Attachment]) -> None:
    """Print attachments as a table."""
    rows = [
        [
            (each.digest, each.digest[:SHORT]),
            format_size(each.size),
            each.media_type or "-",
            each.name or "-",
        ]
        for each in found
    ]
    print_table(COLUMNS, rows, "no attachments")


def attachment_to_json(each: Attachment) -> dict[str, Any]:
    """Return an attachment as JSON data."""
    return {
        "digest": each.digest,
        "size": each.size,
        "media_type": each.media_type,
        "name": each.name,
    }
