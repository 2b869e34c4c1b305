"""The model of the session state machine, in plain lists and dicts.

A `SessionModel` is the durable part of one session: its log as a list of steps, the state after
every commit, and the saved snapshots. A `Draft` is one writer's view of it: how much of the log the
writer has read, and its pending steps.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from holdfast import SnapshotLocation
from support.sample_values import is_identical

Pair: TypeAlias = tuple[str, str]
Entries: TypeAlias = dict[Pair, Any]

STARTED = "session.started"
STATUS = ("session", "status")
ABSENT = object()


@dataclass(frozen=True, slots=True)
class Step:
    """One event: the entries that it sets, then those that it deletes."""

    type: str
    sets: tuple[tuple[Pair, Any], ...] = ()
    deletes: tuple[Pair, ...] = ()

    @property
    def pairs(self) -> set[Pair]:
        return {pair for pair, _ in self.sets} | set(self.deletes)

    def renumber(self, first: int, shift: int) -> Step:
        """Return the step with its messages from a number on renumbered."""

        def renumber_pair(pair: Pair) -> Pair:
            return message_pair(int(pair[1]) + shift) if is_new(pair, first) else pair

        sets = tuple((renumber_pair(pair), value) for pair, value in self.sets)
        return replace(self, sets=sets, deletes=tuple(renumber_pair(pair) for pair in self.deletes))


def message_pair(number: int) -> Pair:
    return "messages", f"{number:012}"


def is_new(pair: Pair, first: int) -> bool:
    """Return whether an entry is a message from a number on."""
    return pair[0] == "messages" and int(pair[1]) >= first


def restores_messages(steps: Iterable[Step], first: int) -> bool:
    """Return whether a step sets messages other than by appending: those keep their numbers."""
    appended: Entries = {}
    for step in steps:
        if step.type == "message.appended":
            appended.update(step.sets)
        elif any(
            is_new(pair, first) and not is_identical(value, appended.get(pair, ABSENT))
            for pair, value in step.sets
        ):
            return True
    return False


def next_message(entries: Entries) -> int:
    return max((int(key) for space, key in entries if space == "messages"), default=-1) + 1


def list_messages(entries: Entries) -> list[Any]:
    return [entries[pair] for pair in sorted(entries) if pair[0] == "messages"]


def get_status(entries: Entries) -> str:
    return entries.get(STATUS, "pending")


def fold_steps(entries: Entries, steps: Iterable[Step]) -> Entries:
    result = dict(entries)
    for step in steps:
        result.update(step.sets)
        for pair in step.deletes:
            result.pop(pair, None)
    return result


def is_same(one: Entries, other: Entries) -> bool:
    return one.keys() == other.keys() and all(is_identical(one[pair], other[pair]) for pair in one)


def make_step(type_: str, start: Entries, end: Entries) -> Step:
    """Return the step from one state to another."""
    sets = ((p, v) for p, v in end.items() if p not in start or not is_identical(v, start[p]))
    return Step(type_, tuple(sets), tuple(start.keys() - end.keys()))


def make_rollback(start: Entries, end: Entries) -> Step:
    """Return the step of a rollback, which keeps the results of ``once``."""
    done = {pair: value for pair, value in start.items() if pair[0] == "once"}
    return make_step("state.restored", start, {**end, **done})


@dataclass(slots=True)
class SavedSnapshot:
    """A durable snapshot."""

    entries: Entries
    tags: dict[str, str]
    created_at: dt.datetime


@dataclass(slots=True)
class SessionModel:
    """The durable part of one session."""

    location: SnapshotLocation
    log: list[Step] = field(default_factory=list)
    states: dict[int, Entries] = field(default_factory=lambda: {0: {}})
    """The state at the end of every commit, by seq."""
    kept: dict[str, SavedSnapshot] = field(default_factory=dict)
    latest: SavedSnapshot | None = None
    log_start: int = 0
    gone: set[int] = field(default_factory=set)
    """The first seqs of commits that were pruned."""
    acknowledged: bool = False
    """Whether a write to it was acknowledged."""
    deleted: bool = False
    """Whether the session was deleted; there may be a new one with its id."""

    @property
    def seq(self) -> int:
        return len(self.log)

    @property
    def entries(self) -> Entries:
        return self.states[self.seq]

    def append(self, steps: Iterable[Step]) -> None:
        now = self.entries
        self.log.extend(steps)
        self.states[self.seq] = fold_steps(now, self.log[-len(list(steps)) :])

    def newest(self, count: int) -> set[str]:
        """Return the ids of the snapshots that were saved last, at least one."""
        return set(list(self.kept)[-max(1, count) :])


@dataclass(frozen=True, slots=True)
class Draft:
    """How much of a log one writer has read, and its pending steps."""

    known: int
    pending: tuple[Step, ...] = ()
    written: int = 0
    """How many pending steps are in the log although their commit failed."""

    def entries(self, model: SessionModel) -> Entries:
        return fold_steps(model.states[self.known], self.pending)

    def acknowledge(self) -> Draft:
        """Return the draft after the writer found its own steps in the log."""
        return Draft(self.known + self.written, self.pending[self.written :])

    def rebase(self, model: SessionModel) -> Draft | None:
        """Return the draft on top of the concurrent steps, or None for a conflict."""
        base = model.states[self.known]
        theirs = model.log[self.known :]
        first = next_message(base)
        shift = next_message(model.entries) - first
        mine = self.pending
        if restores_messages(mine, first):
            first, shift = next_message(dict.fromkeys(pair for s in mine for pair in s.pairs)), 0
        if self.known == 0 and mine and mine[0].type == STARTED:
            mine = mine[1:]
        renumbered = tuple(step.renumber(first, shift) for step in mine)
        result = fold_steps(model.entries, renumbered)
        touched = {pair for step in mine for pair in step.pairs if not is_new(pair, first)}
        for pair in touched & {pair for step in theirs for pair in step.pairs}:
            if not is_identical(result.get(pair, ABSENT), model.entries.get(pair, ABSENT)):
                return None
        return Draft(model.seq, renumbered)


def predict_drafts(
    model: SessionModel, draft: Draft, on_conflict: str, *, fully: bool, pruned_through: int = 0
) -> Iterator[Draft | None]:
    """Yield the drafts of a writer until the last can be appended; None at the end for a conflict.

    ``fully``: a writer without pending steps reads the concurrent ones too. ``pruned_through`` is
    the last event that is pruned, or about to be.
    """
    yield draft
    if (model.deleted or draft.known < pruned_through) and (draft.pending or fully):
        yield None
        return
    while draft.known < model.seq and (draft.pending or fully):
        if draft.known + 1 in model.gone:
            yield None
            return
        if draft.written:
            draft = draft.acknowledge()
        elif on_conflict == "raise":
            yield None
            return
        else:
            following = draft.rebase(model)
            if following is None:
                yield None
                return
            draft = following
        yield draft
