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
from support.sample_values import identical

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
            return message_pair(int(pair[1]) + shift) if is_new(pair, first) else pair

        sets = tuple((there(pair), value) for pair, value in self.sets)
        return replace(self, sets=sets, deletes=tuple(there(pair) for pair in self.deletes))


def message_pair(number: int) -> Pair:
    return "messages", f"{number:012}"


def is_new(pair: Pair, first: int) -> bool:
    """Whether it is a message from a number on."""
    return pair[0] == "messages" and int(pair[1]) >= first


def brings_back(steps: Iterable[Step], first: int) -> bool:
    """Whether messages come from elsewhere than from being appended: those have their numbers."""
    appended: Entries = {}
    for step in steps:
        if step.type == "message.appended":
            appended.update(step.sets)
        elif any(
            is_new(pair, first) and not identical(value, appended.get(pair, ABSENT))
            for pair, value in step.sets
        ):
            return True
    return False


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
    log_start: int = 0
    gone: set[int] = field(default_factory=set)
    """The seqs of commits whose first event is pruned and cannot be read any more."""
    acknowledged: bool = False
    """Whether anybody was told that something of it is durable."""
    deleted: bool = False
    """Whether the session was deleted; another may have been begun under its id."""

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

    def newest(self, count: int) -> set[str]:
        """As they were saved: one that is saved again is a new one."""
        return set(list(self.kept)[-max(1, count) :])


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
        if brings_back(mine, first):
            first, shift = next_message(dict.fromkeys(pair for s in mine for pair in s.pairs)), 0
        if self.known == 0 and mine and mine[0].type == STARTED:
            mine = mine[1:]
        moved = tuple(step.moved(first, shift) for step in mine)
        result = folded(place.entries, moved)
        touched = {pair for step in mine for pair in step.pairs if not is_new(pair, first)}
        for pair in touched & {pair for step in theirs for pair in step.pairs}:
            if not identical(result.get(pair, ABSENT), place.entries.get(pair, ABSENT)):
                return None
        return Draft(place.seq, moved)


def course(
    place: Place, draft: Draft, on_conflict: str, *, fully: bool, doomed: int = 0
) -> Iterator[Draft | None]:
    """What a writer's draft becomes until it can be appended; None at the end for a conflict.

    ``fully``: it takes in what others did also where nothing of its own waits. ``doomed``: up to
    which event the log is pruned, or about to be.
    """
    yield draft
    if (place.deleted or draft.known < doomed) and (draft.pending or fully):
        yield None
        return
    while draft.known < place.seq and (draft.pending or fully):
        if draft.known + 1 in place.gone:
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
