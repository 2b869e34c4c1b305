"""``holdfast state export``: a session as one JSON file."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from holdfast.cli.completion import complete_agent_or_state, complete_ref, complete_session
from holdfast.cli.console import (
    FAILED,
    StoreOption,
    TagOption,
    check_standard_output,
    command,
    err,
    fail,
    out,
    plural,
    read_tags,
    say,
    write_bytes,
)
from holdfast.cli.keys import named_file, signing_key
from holdfast.cli.names import split_reference
from holdfast.cli.references import (
    Reference,
    existing_store,
    find,
    is_session,
    resolve,
)
from holdfast.documents.json_file import check_writable
from holdfast.errors import NotFoundError, StateStoreError
from holdfast.stores.urls import mask_secrets
from holdfast.transfer.manager import Redaction, SnapshotManager, suggest_names

MOST = 1000
OPEN_ALREADY = ("/dev/std", "/dev/fd/", "/proc/self/fd/")


@command
async def export(
    name: Annotated[
        str,
        typer.Argument(
            metavar="AGENT|SESSION",
            help="An agent, a session, or SESSION@REF in the store.",
            autocompletion=complete_agent_or_state,
        ),
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The file, or - for here.")
    ],
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            help="The agent's session; its latest without it.",
            autocompletion=complete_session,
        ),
    ] = None,
    snapshot: Annotated[
        str | None,
        typer.Option(
            "--snapshot",
            metavar="REF",
            help="A snapshot id or prefix, an event number, latest or tag:k=v; now without it.",
            autocompletion=complete_ref,
        ),
    ] = None,
    tag: TagOption = None,
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
    """Write a session with its events as one JSON file: an agent's latest, or the one named.

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
        wanted = await find_exported(manager, name, session, snapshot)
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
        )
    if output == "-":
        try:
            write_bytes(found.chunks())
        except BrokenPipeError as error:
            out.drop(error)  # the document is all that was asked for, and it did not arrive
            raise typer.Exit(FAILED) from None
        return
    if is_stream(output):
        write_stream(output, found.chunks())
    else:
        manager.to_file(found, output)
    taken = sum(each["count"] for each in found.extra["redactions"]) if redaction else 0
    say(
        f"{output}: {plural(found.snapshot.count('messages'), 'message')}, "
        f"{plural(found.event_log_count, 'event')} of {found.agent_id}/{found.session_id}"
        + (f", {plural(taken, 'redaction')}" if redaction else "")
        + (f", signed by {key.key_id}" if key else ""),
        to=err,
    )


async def find_exported(
    manager: SnapshotManager, name: str, session: str | None, ref: str | None
) -> Reference:
    """Find what to export: an agent's session, the one that is named or its latest, or a session.

    An id that is both an agent's and a session's is refused: either may be meant.
    """
    if session is not None:
        location = await manager.locate(name, session)
    else:
        latest = await manager.catalog.latest_session(name)
        owners = await manager.catalog.locations(name)
        if latest is not None and owners and owners != [latest.location]:
            fail(
                f"{name!r} is an agent and also a session; say which",
                f"holdfast state export {quote(owners[0].scope_id)} --session {quote(name)} is the "
                f"session, holdfast state export {quote(name)} --session "
                f"{quote(latest.session_id)} the agent's latest",
            )
        if latest is None and len(owners) > 1:
            agents = ", ".join(each.scope_id for each in owners)
            fail(
                f"session {name} has several agents ({agents}); say which",
                f"holdfast state export {quote(owners[0].scope_id)} --session {quote(name)}",
            )
        if latest is None and not owners:
            return await find_by_reference(manager, name, ref)
        location = owners[0] if latest is None else latest.location
    at = None if ref is None else await resolve(manager.archive, location, ref)
    return Reference(location, at)


async def find_by_reference(manager: SnapshotManager, name: str, ref: str | None) -> Reference:
    """Find ``SESSION@REF``, for a name that is neither an agent nor a session."""
    for session_id, _ in split_reference(name):
        if await is_session(manager, session_id):
            if ref is not None:
                raise typer.BadParameter(f"{name!r} names a state already", param_hint="--snapshot")
            return await find(manager.state_store, name)
    known = [
        *await manager.catalog.agents(limit=MOST),
        *await manager.catalog.session_ids(limit=MOST),
    ]
    raise NotFoundError(
        f"there is no agent {name!r} and no session of that id{suggest_names(name, known)}"
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
        place = check_writable(output)
        # Rights are not all: a file system may be read-only, full, or take no files of ours.
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except StateStoreError as error:
        fail(str(error), hint)
    except OSError as error:
        fail(f"{mask_secrets(output)} cannot be written: {error.strerror or error}", hint)


def is_stream(output: str) -> bool:
    """Whether an output is a device or a pipe: that is written to, and never replaced by a file."""
    path = Path(output)
    with suppress(OSError, ValueError):  # there is nothing, or cannot be
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
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
    from holdfast.redaction.redactor import Redactor  # noqa: PLC0415 - used by few

    try:
        return Redactor(patterns, paths, cards=cards, ibans=ibans, ssns=ssns).redacted
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--redact-path") from None
