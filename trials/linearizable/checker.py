"""Decides whether a history of calls on the head of one log is linearizable, in n log n.

The model is one register, the head, and the list of its moves. A commit that expects the head h
moves it from h to its own; where the head is not h, it is refused. A commit that expects nothing,
as one with ``on_conflict="rebase"``, moves it from wherever it is, or gives up. A read gives the
head. A history is linearizable if each call can be given one moment between its begin and its
answer such that, one by one in the order of these moments, the register gives those very answers.

In general that takes a search over orders (Wing and Gong), as several writes may be exchanged and
no answer tells which was first. Here the answers tell:

*   Each head is a hash over all before it, so the log names the one order of all moves. A read
    names the move after which it stands. Only reads of the same head can be exchanged, and they do
    not mind. So all of these have a place in one row, and the row is possible exactly if nobody in
    it was answered before somebody who stands further ahead had begun.
*   A refusal has no place, only a demand: the head was not the expected one. The expected head was
    told to somebody before the call began, or the history is wrong for that alone, so the move away
    from it must have come before the refusal. Every move is best made as early as the row permits:
    the moments that are earliest for one are so for all. So where a refusal does not hold with
    these, it holds with none, and there is nothing to search.
*   A call whose answer never came may have moved the head at any time after it began, or never: the
    log tells which.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["ok", "conflict", "unknown"]

NEVER = float("inf")
LONG_AGO = float("-inf")


@dataclass(frozen=True, slots=True)
class Operation:
    """One call: what it asked for, between which moments, and what came of it."""

    token: str
    kind: Literal["commit", "read"]
    begun: int
    answered: int
    outcome: Outcome = "ok"
    expected: str | None = None
    """The head that a commit was to follow; None where it was to follow any."""
    head: str | None = None
    """The head that a read gave, or a commit that is ok."""

    @property
    def latest(self) -> float:
        """The last moment at which it may have happened."""
        return NEVER if self.outcome == "unknown" else self.answered


@dataclass(frozen=True, slots=True)
class Link:
    """One move of the head, as the log has it in the end."""

    token: str
    before: str
    head: str


def problems_in(history: Iterable[Operation], log: Sequence[Link], start: str) -> list[str]:
    """Why no register could have given these answers, beginning at ``start``; empty if one could.

    ``log`` is all of the moves, read after the last call was answered.
    """
    calls = list(history)
    problems = [*broken_links(log, start), *wrong_moves(calls, log)]
    # Where the log itself is wrong, there is no row to stand in.
    return problems or [*wrong_times(calls, log, start)]


def broken_links(log: Sequence[Link], start: str) -> Iterator[str]:
    """Where the log is no chain."""
    head = start
    for link in log:
        if link.before != head:
            yield f"{link.token} follows {link.before}, and the head before it is {head}"
        head = link.head
    for head, times in Counter([start, *(link.head for link in log)]).items():
        if times > 1:
            yield f"the head was at {head} {times} times"


def wrong_moves(calls: Sequence[Operation], log: Sequence[Link]) -> Iterator[str]:
    """Moves that were lost, doubled, made up, or not as they were told."""
    commits = {call.token: call for call in calls if call.kind == "commit"}
    times = Counter(link.token for link in log)
    yield from (f"{token} is in the log {n} times" for token, n in times.items() if n > 1)
    yield from (f"{token} is in the log, and nobody began it" for token in times.keys() - commits)
    for token, call in commits.items():
        if call.outcome == "ok" and not times[token]:
            yield f"{token} was acknowledged and is lost"
        if call.outcome == "conflict" and times[token]:
            yield f"{token} was refused and is in the log"
    for link in log:
        told = commits.get(link.token)
        if told is None:
            continue
        if told.expected is not None and told.expected != link.before:
            yield f"{link.token} expected {told.expected} and follows {link.before}"
        if told.outcome == "ok" and told.head != link.head:
            yield f"{link.token} was told the head {told.head}, and the log has {link.head}"


def wrong_times(calls: Sequence[Operation], log: Sequence[Link], start: str) -> Iterator[str]:
    """Answers that were right at another time only."""
    place = {start: 0} | {link.head: number for number, link in enumerate(log, 1)}
    number_of = {link.token: number for number, link in enumerate(log, 1)}
    row: list[tuple[float, Operation]] = []
    for call in calls:
        if call.kind == "read":
            if call.head not in place:
                yield f"{call.token} read {call.head}, which the head never was"
            else:
                row.append((place[call.head] + 0.5, call))
        elif call.token in number_of:
            row.append((number_of[call.token], call))
    row.sort(key=lambda placed: (placed[0], placed[1].begun))
    moved: dict[int, float] = {0: LONG_AGO}
    earliest = LONG_AGO
    last: Operation | None = None
    for where, call in row:
        if call.latest < earliest and last is not None:
            yield f"{call.token} was answered before {last.token} began, and stands after it"
        if call.begun > earliest:
            earliest, last = call.begun, call
        if call.kind == "commit":
            moved[int(where)] = earliest
    refused = [call for call in calls if call.kind == "commit" and call.outcome == "conflict"]
    yield from wrong_refusals(refused, place, moved, told_at(calls, start))


def told_at(calls: Sequence[Operation], start: str) -> dict[str, float]:
    """When each head was first known to anybody, as far as answers tell."""
    told: dict[str, float] = {start: LONG_AGO}
    for call in calls:
        if call.head is not None:
            told[call.head] = min(told.get(call.head, NEVER), call.answered)
    return told


def wrong_refusals(
    refused: Iterable[Operation],
    place: dict[str, int],
    moved: dict[int, float],
    told: dict[str, float],
) -> Iterator[str]:
    """Commits that were refused although the head was what they expected, all the time."""
    for call in refused:
        if call.expected is None:
            continue  # it gave up after many lost races: all that is demanded is that it did
        if told.get(call.expected, NEVER) > call.begun:
            yield f"{call.token} expected {call.expected} before anybody was told of it"
        elif call.expected not in place:
            yield f"{call.token} expected {call.expected}, which the head never was"
        elif moved.get(place[call.expected] + 1, NEVER) > call.answered:
            yield f"{call.token} was refused, and nobody had moved the head from {call.expected}"
