"""Options that filter sessions and snapshots."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import typer

from holdfast.cli.console import parse_tags
from holdfast.snapshots.filters import ListingFilter, make_filter, parse_since
from holdfast.snapshots.session_state import STATUSES

StatusOption = Annotated[
    list[str] | None,
    typer.Option(
        "--status",
        metavar="STATUS",
        help=f"Only this status: {', '.join(STATUSES)}. Repeatable.",
    ),
]
TagFilterOption = Annotated[
    list[str] | None,
    typer.Option("--tag", metavar="K=V", help="Only with this tag. Repeatable."),
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Only since a time, or a duration such as 2h or 3d."
    ),
]
UnfinishedOption = Annotated[
    bool, typer.Option("--unfinished", help="Only with unfinished tool calls.")
]


def parse_filter(
    status: list[str] | None, tag: list[str] | None, since: str | None, *, unfinished: bool
) -> ListingFilter:
    """Return the filter that the options describe."""
    for each in status or []:
        if each not in STATUSES:
            raise typer.BadParameter(
                f"invalid status {each!r}: must be one of {', '.join(STATUSES)}",
                param_hint="--status",
            )
    return make_filter(
        status=status or None,
        tags=parse_tags(tag),
        since=parse_since_option(since),
        unfinished=unfinished,
    )


def parse_since_option(text: str | None) -> dt.datetime | None:
    """Return the time that ``--since`` stands for."""
    try:
        return None if text is None else parse_since(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--since") from None
