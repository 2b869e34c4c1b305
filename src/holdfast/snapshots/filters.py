"""Filters of listings: by status, tags, time and unfinished tool calls."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from holdfast.errors import short_repr
from holdfast.snapshots.keys import validate_limit
from holdfast.snapshots.records import SnapshotInfo, validate_tags
from holdfast.snapshots.session_state import validate_status
from holdfast.snapshots.storage import SnapshotPage

MIN_PAGE_SIZE = 64
ReadPage: TypeAlias = Callable[[int | None, str | None], Awaitable[SnapshotPage]]
"""Returns a page of at most n snapshots after a token."""
DURATION = re.compile(r"([0-9]{1,9})([smhdw])")
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True, slots=True)
class ListingFilter:
    """Conditions that must all hold. Without any, everything matches."""

    statuses: frozenset[str] = frozenset()
    """Any of these statuses; empty for every status."""
    tags: dict[str, str] = field(default_factory=dict)
    """All of these tags, with these values."""
    since: dt.datetime | None = None
    """Not older than this."""
    unfinished: bool = False
    """Only with tool calls that have no result."""

    def __bool__(self) -> bool:
        return bool(self.statuses or self.tags or self.since or self.unfinished)

    def matches(
        self, *, status: str | None, tags: Mapping[str, str], at: dt.datetime, unfinished: bool
    ) -> bool:
        """Tell whether all conditions hold."""
        return (
            (not self.statuses or status in self.statuses)
            and self.tags.items() <= tags.items()
            and (self.since is None or at >= self.since)
            and (unfinished or not self.unfinished)
        )

    def matches_snapshot(self, info: SnapshotInfo) -> bool:
        """Tell whether all conditions hold for a snapshot."""
        return self.matches(
            status=info.status, tags=info.tags, at=info.created_at, unfinished=info.unfinished
        )


def make_filter(
    *,
    status: str | Iterable[str] | None = None,
    tags: Mapping[str, str] | None = None,
    since: dt.datetime | None = None,
    unfinished: bool = False,
) -> ListingFilter:
    """Make a filter of the arguments of a listing.

    Raises:
        ValueError: A status is unknown, or ``since`` has no time zone.
        TypeError: The tags are not a mapping of text to text, or ``since`` is not a datetime.

    """
    statuses = [] if status is None else [status] if isinstance(status, str) else list(status)
    if since is not None:
        if not isinstance(since, dt.datetime):
            raise TypeError(f"since must be a datetime, got {short_repr(since)}")
        if since.tzinfo is None:
            raise ValueError(
                f"since must have a time zone, got {short_repr(since)}; add tzinfo=UTC"
            )
    return ListingFilter(
        frozenset(map(validate_status, statuses)), validate_tags(tags), since, bool(unfinished)
    )


def parse_since(text: str, now: dt.datetime | None = None) -> dt.datetime:
    """Parse a duration before now such as ``2h``, or an ISO time.

    A time without a zone is UTC.

    Raises:
        ValueError: The text is neither of the two.

    """
    now = now or dt.datetime.now(dt.UTC)
    found = DURATION.fullmatch(text)
    try:
        if found:
            return now - dt.timedelta(**{UNITS[found[2]]: int(found[1])})
        at = dt.datetime.fromisoformat(text)
        return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at.astimezone(dt.UTC)
    except (ValueError, OverflowError):
        raise ValueError(
            f"invalid time {short_repr(text)}; use a duration such as 90s, 15m, 2h, 3d or 1w, or a "
            "time such as 2026-06-01 or 2026-06-01T09:30:00Z"
        ) from None


async def fill_page(
    read_page: ReadPage, wanted: ListingFilter, limit: int | None, next_token: str | None
) -> SnapshotPage:
    """Return a page of the snapshots that match, from as many unfiltered pages as it takes."""
    if not wanted:
        return await read_page(limit, next_token)
    most = None if limit is None else validate_limit(limit)
    found: list[SnapshotInfo] = []
    while True:
        page = await read_page(None if most is None else max(most, MIN_PAGE_SIZE), next_token)
        for number, info in enumerate(page.snapshots, start=1):
            if not wanted.matches_snapshot(info):
                continue
            found.append(info)
            if len(found) == most:
                # The token of a page that ends here.
                return SnapshotPage(found, (await read_page(number, next_token)).next_token)
        if page.next_token is None:
            return SnapshotPage(found)
        next_token = page.next_token
