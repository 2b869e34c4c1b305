"""``holdfast state export``: a session as one JSON file."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from holdfast.cli.console import (
    StoreOption,
    check_standard_output,
    command,
    err,
    fail,
    read_tags,
    say,
    write_bytes,
)
from holdfast.cli.keys import named_file, signing_key
from holdfast.cli.references import existing_store
from holdfast.errors import StateStoreError
from holdfast.sessions.manager import Redaction, SnapshotManager
from holdfast.snapshots import document_files

OPEN_ALREADY = ("/dev/std", "/dev/fd/", "/proc/self/fd/")


@command
async def export(
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="The agent whose session it is.")],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for here.")
    ],
    session: Annotated[
        str | None,
        typer.Option(
            "--session", metavar="SESSION", help="The session; the agent's latest without it."
        ),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot", metavar="SNAPSHOT", help="A snapshot of it; how it is now without it."
        ),
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", metavar="K=V", help="Added to the tags.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Take secrets, emails and phone numbers out.")
    ] = False,
    redact_path: Annotated[
        list[str] | None,
        typer.Option(
            "--redact-path", metavar="PATH", help="Take this out too, as in values.customer.name."
        ),
    ] = None,
    redact_cards: Annotated[
        bool, typer.Option("--redact-cards", help="Take numbers of payment cards out.")
    ] = False,
    redact_ibans: Annotated[
        bool, typer.Option("--redact-ibans", help="Take numbers of bank accounts (IBAN) out.")
    ] = False,
    redact_ssns: Annotated[
        bool, typer.Option("--redact-ssns", help="Take US social security numbers out.")
    ] = False,
    sign: Annotated[
        str | None,
        typer.Option(
            "--sign",
            metavar="KEYFILE",
            help="Sign it with this private key.",
            callback=named_file,
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a session with its events as one JSON file that stands alone.

    Example: holdfast state export research-bot --tag reason=incident --output incident.json.gz
    """
    tags = read_tags(tag)
    check_output(output)
    redaction = redactor(
        patterns=redact,
        paths=redact_path or [],
        cards=redact_cards,
        ibans=redact_ibans,
        ssns=redact_ssns,
    )
    key = None if sign is None else signing_key(sign)
    async with existing_store(store) as state_store:
        manager = SnapshotManager(state_store)
        found = await manager.export_session(
            agent, session, snapshot_id=snapshot, tags=tags, redact=redaction, sign=key
        )
    if output == "-":
        write_bytes(found.chunks())
        return
    if is_stream(output):
        write_stream(output, found.chunks())
    else:
        manager.to_file(found, output)
    taken = sum(each["count"] for each in found.extra["redactions"]) if redaction else 0
    say(
        f"{output}: {found.snapshot.count('messages')} messages, {found.event_log_count} events of "
        f"{found.agent_id}/{found.session_id}"
        + (f", {taken} redactions" if redaction else "")
        + (f", signed by {key.key_id}" if key else ""),
        to=err,
    )


def check_output(output: str) -> None:
    """Refuse what cannot be written before any work is done for it."""
    if output == "-":
        check_standard_output()
        return
    if is_stream(output):
        return
    hint = "choose another --output, or - for the standard output"
    try:
        place = document_files.check_writable(output)
        # Rights are not all: a file system may be read-only, full, or take no files of ours.
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except StateStoreError as error:
        fail(str(error), hint)
    except OSError as error:
        fail(f"{output} cannot be written: {error.strerror or error}", hint)


def is_stream(output: str) -> bool:
    """Whether an output is a device or a pipe: that is written to, and never replaced by a file."""
    path = Path(output)
    if path.exists() and not path.is_file() and not path.is_dir():
        return True
    # These lead to what is open already, which may be a file.
    return str(path.absolute()).startswith(OPEN_ALREADY)


def write_stream(output: str, chunks: Iterable[bytes]) -> None:
    """Write to a device or a pipe."""
    with Path(output).open("wb") as stream:
        stream.writelines(chunks)


def redactor(
    *, patterns: bool, paths: list[str], cards: bool, ibans: bool, ssns: bool
) -> Redaction | None:
    """What takes out of the document what must not leave, if anything must not."""
    if not any((patterns, paths, cards, ibans, ssns)):
        return None
    from holdfast.sessions.redaction import Redactor  # noqa: PLC0415 - used by few

    try:
        return Redactor(patterns, paths, cards=cards, ibans=ibans, ssns=ssns).redacted
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--redact-path") from None
