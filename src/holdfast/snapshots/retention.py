"""Which snapshots to keep: a policy, and its decision as a pure function of the snapshots."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.errors import short_repr
from holdfast.snapshots.records import SnapshotInfo

HOUR = "%Y-%m-%d %H"
DAY = "%Y-%m-%d"
WEEK = "%G-%V"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """Which snapshots to keep: all that any rule keeps, and always the newest.

    ``last`` keeps the newest n snapshots. ``hourly``, ``daily`` and ``weekly`` keep the newest
    snapshot of each of the latest n hours, days or weeks (in UTC) that have one. ``max_age`` keeps
    all that are younger. ``protected`` keeps all that have one of these tags; given as a mapping,
    with this value.

    Raises:
        TypeError: ``max_age`` is not a timedelta, or ``protected`` is a str.
        ValueError: A number is negative, or no rule is given.

    """

    last: int | None = None
    hourly: int | None = None
    daily: int | None = None
    weekly: int | None = None
    max_age: dt.timedelta | None = None
    protected: Mapping[str, str] | Iterable[str] = field(default_factory=tuple)

    def __post_init__(self) -> None:
        for name in ("last", "hourly", "daily", "weekly"):
            number = getattr(self, name)
            if number is not None and (not isinstance(number, int) or number < 0):
                raise ValueError(
                    f"{name} must be an int of 0 or more, or None, got {short_repr(number)}"
                )
        if self.max_age is not None and not isinstance(self.max_age, dt.timedelta):
            raise TypeError(f"max_age must be a timedelta, got {short_repr(self.max_age)}")
        if isinstance(self.protected, str):
            raise TypeError(
                f'protected must be a list of tags, got a str; use ["{self.protected}"]'
            )
        if not isinstance(self.protected, Mapping):
            object.__setattr__(self, "protected", tuple(self.protected))
        rules = (self.last, self.hourly, self.daily, self.weekly, self.max_age)
        if all(rule is None for rule in rules):
            raise ValueError(
                "a policy needs a rule such as RetentionPolicy(last=10, daily=7); use last=1 to "
                "keep only the newest and the protected snapshots"
            )

    def select(self, snapshots: Iterable[SnapshotInfo], now: dt.datetime) -> list[SnapshotInfo]:
        """Return the snapshots to keep, oldest first."""
        newest_first = sorted(snapshots, key=age_order, reverse=True)
        keep = {each.snapshot_id for each in newest_first[: max(1, self.last or 0)]}
        for count, form in ((self.hourly, HOUR), (self.daily, DAY), (self.weekly, WEEK)):
            keep |= newest_of_periods(newest_first, count or 0, form)
        for each in newest_first:
            if self.max_age is not None and now - each.created_at < self.max_age:
                keep.add(each.snapshot_id)
            if self._protects(each.tags):
                keep.add(each.snapshot_id)
        return [each for each in reversed(newest_first) if each.snapshot_id in keep]

    def _protects(self, tags: Mapping[str, str]) -> bool:
        if isinstance(self.protected, Mapping):
            return any(tags.get(name) == value for name, value in self.protected.items())
        return any(name in tags for name in self.protected)


def age_order(snapshot: SnapshotInfo) -> tuple[str, str]:
    """Return the sort key for oldest first: the order of saving, even if a clock was set back."""
    return snapshot.order, snapshot.snapshot_id


def newest_of_periods(newest_first: list[SnapshotInfo], count: int, form: str) -> set[str]:
    """Return the newest snapshot of each of the latest periods that have one."""
    found: dict[str, str] = {}
    for each in newest_first:
        period = each.created_at.astimezone(dt.UTC).strftime(form)
        if len(found) == count and period not in found:
            break
        found.setdefault(period, each.snapshot_id)
    return set(found.values()) if count else set()
