"""What sessions over one store must do, in plain lists and dicts: the model of the state machine.

A `Place` is what is durable of one session: its log as a list of steps, the state after every
commit, and the kept snapshots. A `Draft` is one writer's view of it: how much of the log it has
seen, and the steps that it has not been told to be durable.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from holdfast import SnapshotLocation
from samples import identical

Pair: TypeAlias = tuple[str, str]
Entries: TypeAlias = dict[Pair, Any]

STARTED = "session.started"
STATUS = ("session", "status")
ABSENT = object()


@dataclass(frozen=True, slots=True)
class Step:
    """One event: what it sets, then what it deletes."""

    type: str
    sets: tuple[tuple[Pair, Any], ...] = ()
    deletes: tuple[Pair, ...] = ()

    @property
    def pairs(self) -> set[Pair]:
        return {pair for pair, _ in self.sets} | set(self.deletes)

    def moved(self, first: int, shift: int) -> Step:
        """The same with its messages from a number on under other numbers."""

        def there(pair: Pair) -> Pair:
            number = int(pair[1]) if pair[0] == "messages" else -1
            return pair if number < first else message_pair(number + shift)

        sets = tuple((there(pair), value) for pair, value in self.sets)
        return replace(self, sets=sets, deletes=tuple(there(pair) for pair in self.deletes))


def message_pair(number: int) -> Pair:
    return "messages", f"{number:012}"


def next_message(entries: Entries) -> int:
    return max((int(key) for space, key in entries if space == "messages"), default=-1) + 1


def messages_of(entries: Entries) -> list[Any]:
    return [entries[pair] for pair in sorted(entries) if pair[0] == "messages"]


def status_of(entries: Entries) -> str:
    return entries.get(STATUS, "pending")


def folded(entries: Entries, steps: Iterable[Step]) -> Entries:
    result = dict(entries)
    for step in steps:
        result.update(step.sets)
        for pair in step.deletes:
            result.pop(pair, None)
    return result


def same(one: Entries, other: Entries) -> bool:
    return one.keys() == other.keys() and all(identical(one[pair], other[pair]) for pair in one)


def way(type_: str, start: Entries, end: Entries) -> Step:
    """The step from one state to another."""
    sets = ((p, v) for p, v in end.items() if p not in start or not identical(v, start[p]))
    return Step(type_, tuple(sets), tuple(start.keys() - end.keys()))


def going_back(start: Entries, end: Entries) -> Step:
    """The step that a rollback is: what was done once stays done."""
    done = {pair: value for pair, value in start.items() if pair[0] == "once"}
    return way("state.restored", start, {**end, **done})


@dataclass(slots=True)
class Kept:
    """A durable snapshot."""

    entries: Entries
    tags: dict[str, str]
    created_at: dt.datetime


@dataclass(slots=True)
class Place:
    """What is durable of one session."""

    location: SnapshotLocation
    log: list[Step] = field(default_factory=list)
    states: dict[int, Entries] = field(default_factory=lambda: {0: {}})
    """The state at the end of every commit, by seq."""
    kept: dict[str, Kept] = field(default_factory=dict)
    latest: Kept | None = None
    floor: int = 0
    acknowledged: bool = False
    """Whether anybody was told that something of it is durable."""
    leftovers: bool = False
    half_founded: bool = False

    @property
    def seq(self) -> int:
        return len(self.log)

    @property
    def entries(self) -> Entries:
        return self.states[self.seq]

    def append(self, steps: Iterable[Step]) -> None:
        now = self.entries
        self.log.extend(steps)
        self.states[self.seq] = folded(now, self.log[-len(list(steps)) :])

    def forget(self) -> None:
        """It was deleted."""
        self.__init__(self.location)  # type: ignore[misc]

    def newest(self, count: int) -> set[str]:
        ordered = sorted(self.kept, key=lambda id_: (self.kept[id_].created_at, id_))
        return set(ordered[-max(1, count) :])


@dataclass(frozen=True, slots=True)
class Draft:
    """What one writer has seen of a log, and what of its own waits."""

    known: int
    pending: tuple[Step, ...] = ()
    written: int = 0
    """So many of the first that wait are in the log, and the writer was not told."""

    def entries(self, place: Place) -> Entries:
        return folded(place.states[self.known], self.pending)

    def told(self) -> Draft:
        """After finding its own steps in the log."""
        return Draft(self.known + self.written, self.pending[self.written :])

    def rebased(self, place: Place) -> Draft | None:
        """On top of all that others did, or None where both touched the same."""
        base = place.states[self.known]
        theirs = place.log[self.known :]
        first = next_message(base)
        shift = next_message(place.entries) - first
        mine = self.pending
        if self.known == 0 and mine and mine[0].type == STARTED:
            mine = mine[1:]
        moved = tuple(step.moved(first, shift) for step in mine)
        result = folded(place.entries, moved)
        touched = {pair for step in moved for pair in step.pairs}
        for pair in touched & {pair for step in theirs for pair in step.pairs}:
            if not identical(result.get(pair, ABSENT), place.entries.get(pair, ABSENT)):
                return None
        return Draft(place.seq, moved)


def course(place: Place, draft: Draft, on_conflict: str, *, fully: bool) -> Iterator[Draft | None]:
    """What a writer's draft becomes until it can be appended; None at the end for a conflict.

    ``fully``: it takes in what others did also where nothing of its own waits.
    """
    yield draft
    while draft.known < place.seq and (draft.pending or fully):
        if place.floor > draft.known:
            yield None
            return
        if draft.written:
            draft = draft.told()
        elif on_conflict == "raise":
            yield None
            return
        else:
            rebased = draft.rebased(place)
            if rebased is None:
                yield None
                return
            draft = rebased
        yield draft
