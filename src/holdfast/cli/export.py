"""``holdfast state export``: write a session to one JSON file."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from holdfast.adapters.claude_location import find_main_agent
from holdfast.adapters.claude_transcript import encode_transcript, to_transcript
from holdfast.cli.completion import complete_agent_or_state, complete_ref, complete_session
from holdfast.cli.console import (
    FAILED,
    StoreOption,
    TagOption,
    command,
    err,
    fail,
    format_count,
    out,
    parse_tags,
    print_line,
    require_stdout,
    write_bytes,
)
from holdfast.cli.export_transcript import (
    export_subagents,
    require_transcript_format,
    write_transcripts,
)
from holdfast.cli.keys import load_signing_key, require_file_name
from holdfast.cli.names import split_reference
from holdfast.cli.references import (
    Reference,
    find_reference,
    is_session,
    open_existing_store,
    resolve_ref,
)
from holdfast.documents.blob_folder import blob_folder
from holdfast.documents.blobs import DocumentBlobs
from holdfast.documents.json_file import check_writable
from holdfast.errors import NotFoundError, StateStoreError
from holdfast.stores.urls import mask_secrets
from holdfast.transfer.manager import Redaction, SnapshotManager, suggest_names

MAX_SUGGESTIONS_READ = 1000


class AttachmentsMode(StrEnum):
    """The values of ``--attachments``."""

    embed = "embed"
    folder = "folder"
    omit = "omit"


OPEN_DESCRIPTORS = ("/dev/std", "/dev/fd/", "/proc/self/fd/")


@command
async def export(
    name: Annotated[
        str,
        typer.Argument(
            metavar="AGENT|SESSION",
            help="An agent, a session, or SESSION@REF.",
            autocompletion=complete_agent_or_state,
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for stdout.")
    ],
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="The agent's session. Default: its latest.",
            autocompletion=complete_session,
        ),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="REF",
            help="A snapshot id or prefix, an event number, latest or tag:k=v. Default: the head.",
            autocompletion=complete_ref,
        ),
    ] = None,
    tag: TagOption = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Remove secrets, email addresses and phone numbers.")
    ] = False,
    redact_path: Annotated[
        list[str] | None,
        typer.Option(
            "--redact-path",
            metavar="PATH",
            help="Remove this path, such as values.customer.name. Repeatable.",
        ),
    ] = None,
    redact_cards: Annotated[
        bool, typer.Option("--redact-cards", help="Remove payment card numbers.")
    ] = False,
    redact_ibans: Annotated[
        bool, typer.Option("--redact-ibans", help="Remove bank account numbers (IBAN).")
    ] = False,
    redact_ssns: Annotated[
        bool, typer.Option("--redact-ssns", help="Remove US social security numbers.")
    ] = False,
    redact_drop_binary: Annotated[
        bool,
        typer.Option(
            "--redact-drop-binary",
            help="Drop attachments and large bytes that are not text, which are not searched.",
        ),
    ] = False,
    sign: Annotated[
        str | None,
        typer.Option(
            "--sign",
            metavar="KEYFILE",
            help="Sign the document with this private key.",
            callback=require_file_name,
        ),
    ] = None,
    attachments: Annotated[
        AttachmentsMode,
        typer.Option(
            "--attachments",
            help="Where large values and attachments go: into the document, into the folder "
            "FILE.blobs, or nowhere.",
        ),
    ] = AttachmentsMode.embed,
    as_: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="FORMAT", help="claude-code: a transcript that Claude Code resumes."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Write a session and its events to one JSON file.

    Example: holdfast state export research-bot --tag reason=incident --output incident.json.gz
    """
    tags = parse_tags(tag)
    is_file = output != "-" and not is_stream(output)
    if as_ is not None:
        require_transcript_format(as_, output if is_file else None, is_signed=sign is not None)
    if attachments is AttachmentsMode.folder and not is_file:
        raise typer.BadParameter(
            "a folder needs a file to be beside; pass --output FILE", param_hint="--attachments"
        )
    check_output(output)
    redaction = make_redactor(
        patterns=redact,
        paths=redact_path or [],
        cards=redact_cards,
        ibans=redact_ibans,
        ssns=redact_ssns,
        drop_binary=redact_drop_binary,
    )
    key = None if sign is None else load_signing_key(sign)
    async with open_existing_store(store) as state_store:
        manager = SnapshotManager(state_store)
        wanted = await find_export_target(manager, name, session, snapshot)
        location = wanted.location
        found = await manager.export_session(
            location.scope_id,
            location.session_id,
            scope=location.scope,
            snapshot_id=wanted.snapshot_id,
            seq=wanted.seq,
            tags=tags,
            redact=redaction,
            sign=key,
            # A transcript has all values in it.
            attachments="folder" if as_ is not None else attachments.value,
        )
        warn_about_binary(found.extra.get("not_searched", []) if redaction else [])
        if as_ is not None and is_file:
            others = await export_subagents(manager, location, redact=redaction)
            write_transcripts(found, others, output)
            return
        if as_ is not None:
            chunks: Iterable[bytes] = [encode_transcript(to_transcript(found))]
        else:
            chunks = found.chunks(attachments.value)
        if output == "-":
            try:
                write_bytes(chunks)
            except BrokenPipeError as error:
                out.drop(error)  # unlike other commands, this one has no other work to finish
                raise typer.Exit(FAILED) from None
            return
        if is_file:
            if redaction and attachments is AttachmentsMode.folder:
                reject_other_blobs(blob_folder(Path(output)), found.blobs)
            manager.to_file(found, output, attachments=attachments.value)
        else:
            write_stream(output, chunks)
    taken = sum(each["count"] for each in found.extra["redactions"]) if redaction else 0
    print_line(
        f"{output}: {format_count(found.snapshot.count('messages'), 'message')}, "
        f"{format_count(found.event_log_count, 'event')} of {found.agent_id}/{found.session_id}"
        + format_blobs(found.blobs, attachments)
        + (f", {format_count(taken, 'redaction')}" if redaction else "")
        + (f", signed by {key.key_id}" if key else ""),
        to=err,
    )


def reject_other_blobs(folder: Path, blobs: DocumentBlobs) -> None:
    """Fail if a folder has files that a redacted document does not refer to."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    others = names - {each.digest for each in blobs.entries if not each.is_omitted}
    if others:
        fail(
            f"{folder} has {format_count(len(others), 'file')} of another export, which may not be "
            "redacted",
            "delete the folder, or choose another --output",
        )


def warn_about_binary(not_searched: list[dict[str, object]]) -> None:
    """Warn about contents that a redaction could not search."""
    if not_searched:
        first = not_searched[0]
        print_line(
            ("warning:", "yellow"),
            f" {format_count(len(not_searched), 'binary content')} not searched for secrets, such "
            f"as {first.get('name') or first['path']}; pass --redact-drop-binary to drop them",
            to=err,
        )


def format_blobs(blobs: DocumentBlobs, mode: AttachmentsMode) -> str:
    """Return how many blobs were exported and how many omitted, for the end of the report."""
    count = 0 if mode is AttachmentsMode.omit else len(blobs)
    omitted = len(blobs.entries) - count
    return (f", {format_count(count, 'blob')}" if count else "") + (
        f", {format_count(omitted, 'blob')} omitted" if omitted else ""
    )


async def find_export_target(
    manager: SnapshotManager, name: str, session: str | None, ref: str | None
) -> Reference:
    """Find the session to export, given the id of an agent or a session.

    Fails for an id that is both an agent's and a session's.
    """
    if session is not None:
        location = await manager.locate(name, session)
    else:
        latest = await manager.catalog.latest_session(name)
        owners = await manager.catalog.locations(name)
        if latest is not None and owners and owners != [latest.location]:
            fail(
                f"{name!r} is both an agent and a session",
                f"for the session: holdfast state export {quote(owners[0].scope_id)} --session "
                f"{quote(name)}; for the agent's latest: holdfast state export {quote(name)} "
                f"--session {quote(latest.session_id)}",
            )
        main = find_main_agent(owners)
        if main is not None:
            owners = [main]
        if latest is None and len(owners) > 1:
            agents = ", ".join(each.scope_id for each in owners)
            fail(
                f"session {name} has several agents: {agents}",
                f"holdfast state export {quote(owners[0].scope_id)} --session {quote(name)}",
            )
        if latest is None and not owners:
            return await find_by_reference(manager, name, ref)
        location = owners[0] if latest is None else latest.location
    at = None if ref is None else await resolve_ref(manager.archive, location, ref)
    return Reference(location, at)


async def find_by_reference(manager: SnapshotManager, name: str, ref: str | None) -> Reference:
    """Find ``SESSION@REF``, for a name that is neither an agent nor a session."""
    for session_id, _ in split_reference(name):
        if await is_session(manager, session_id):
            if ref is not None:
                raise typer.BadParameter(
                    f"{name!r} already contains a reference", param_hint="--snapshot"
                )
            return await find_reference(manager.state_store, name)
    known = [
        *await manager.catalog.agents(limit=MAX_SUGGESTIONS_READ),
        *await manager.catalog.session_ids(limit=MAX_SUGGESTIONS_READ),
    ]
    raise NotFoundError(f"no agent or session {name!r}{suggest_names(name, known)}")


def check_output(output: str) -> None:
    """Fail early if the output cannot be written."""
    if output == "-":
        require_stdout()
        return
    if is_stream(output):
        return
    hint = "choose another --output, or - for stdout"
    try:
        place = check_writable(output)
        # Permissions are not enough: the file system may be read-only or full.
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except StateStoreError as error:
        fail(str(error), hint)
    except OSError as error:
        fail(f"cannot write {mask_secrets(output)}: {error.strerror or error}", hint)


def is_stream(output: str) -> bool:
    """Return whether an output is a device or a pipe, which is written to and never replaced."""
    path = Path(output)
    with suppress(OSError, ValueError):  # no such file, or not a valid name
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            return True
    # These are open descriptors, even if they are regular files.
    return str(path.absolute()).startswith(OPEN_DESCRIPTORS)


def write_stream(output: str, chunks: Iterable[bytes]) -> None:
    """Write to a device or a pipe."""
    with Path(output).open("wb") as stream:
        stream.writelines(chunks)


def make_redactor(
    *,
    patterns: bool,
    paths: list[str],
    cards: bool,
    ibans: bool,
    ssns: bool,
    drop_binary: bool,
) -> Redaction | None:
    """Return the redaction that the options ask for, if any."""
    if not any((patterns, paths, cards, ibans, ssns, drop_binary)):
        return None
    from holdfast.redaction.redactor import Redactor  # noqa: PLC0415 - imported only if used

    try:
        redactor = Redactor(
            patterns, paths, cards=cards, ibans=ibans, ssns=ssns, drop_binary=drop_binary
        )
        return redactor.redact
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--redact-path") from None
