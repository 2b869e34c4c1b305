"""Decide whether a history of calls on the head of one log is linearizable, in O(n log n).

The model is one register, the head. A commit that expects head h moves it from h to its own, and is
refused if the head is not h. A commit with ``on_conflict="rebase"`` expects nothing: it moves the
head from any value, or gives up. A read returns the head. A history is linearizable if every call
can be assigned a time between its start and its return such that the register, asked in the order
of these times, returns the same results.

In general this takes a search over orders (Wing and Gong), because concurrent writes could have
happened in either order. Here the results determine it:

*   Each head is a hash of everything before it, so the log gives the order of all moves, and a read
    belongs after the move whose head it returned. Reads of the same head may be swapped freely. The
    resulting sequence is possible exactly if no call in it returned before a call that comes
    earlier in the sequence had started.
*   A refused commit has no position, only a condition: the head was not the expected one. The
    expected head was returned to a client before the call started (otherwise the history is wrong
    already), so the move away from it must precede the refusal. Assign every move the earliest
    time the sequence permits: if the refusal does not hold then, it never does.
*   A call that never returned may have moved the head at any time after it started, or never: the
    log shows which.
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
    """One call: its arguments, its start and return, and its result."""

    token: str
    kind: Literal["commit", "read"]
    begun: int
    answered: int
    outcome: Outcome = "ok"
    expected: str | None = None
    """The head that a commit expects; None if it accepts any."""
    head: str | None = None
    """The head that a read or a successful commit returned."""

    @property
    def latest(self) -> float:
        """The last time at which it can have happened."""
        return NEVER if self.outcome == "unknown" else self.answered


@dataclass(frozen=True, slots=True)
class Link:
    """One move of the head, as recorded in the log."""

    token: str
    before: str
    head: str


def problems_in(history: Iterable[Operation], log: Sequence[Link], start: str) -> list[str]:
    """Return why no register starting at ``start`` could have produced these results.

    ``log`` has all moves, read after the last call returned. The list is empty if the history is
    linearizable.
    """
    calls = list(history)
    problems = [*broken_links(log, start), *wrong_moves(calls, log)]
    # An invalid log gives no sequence to check.
    return problems or [*wrong_times(calls, log, start)]


def broken_links(log: Sequence[Link], start: str) -> Iterator[str]:
    """Yield where the log is not a chain."""
    head = start
    for link in log:
        if link.before != head:
            yield f"{link.token} follows {link.before}, and the head before it is {head}"
        head = link.head
    for head, times in Counter([start, *(link.head for link in log)]).items():
        if times > 1:
            yield f"the head was at {head} {times} times"


def wrong_moves(calls: Sequence[Operation], log: Sequence[Link]) -> Iterator[str]:
    """Yield moves that were lost, duplicated, invented, or that differ from what was returned."""
    commits = {call.token: call for call in calls if call.kind == "commit"}
    times = Counter(link.token for link in log)
    yield from (f"{token} is in the log {n} times" for token, n in times.items() if n > 1)
    yield from (f"{token} is in the log, but was never started" for token in times.keys() - commits)
    for token, call in commits.items():
        if call.outcome == "ok" and not times[token]:
            yield f"{token} was acknowledged and is lost"
        if call.outcome == "conflict" and times[token]:
            yield f"{token} was refused and is in the log"
    for link in log:
        commit = commits.get(link.token)
        if commit is None:
            continue
        if commit.expected is not None and commit.expected != link.before:
            yield f"{link.token} expected {commit.expected} and follows {link.before}"
        if commit.outcome == "ok" and commit.head != link.head:
            yield f"{link.token} returned the head {commit.head}, but the log has {link.head}"


def wrong_times(calls: Sequence[Operation], log: Sequence[Link], start: str) -> Iterator[str]:
    """Yield results that contradict the times."""
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
    yield from wrong_refusals(refused, place, moved, find_first_returns(calls, start))


def find_first_returns(calls: Sequence[Operation], start: str) -> dict[str, float]:
    """Return when each head was first returned to a client."""
    returned: dict[str, float] = {start: LONG_AGO}
    for call in calls:
        if call.head is not None:
            returned[call.head] = min(returned.get(call.head, NEVER), call.answered)
    return returned


def wrong_refusals(
    refused: Iterable[Operation],
    place: dict[str, int],
    moved: dict[int, float],
    returned: dict[str, float],
) -> Iterator[str]:
    """Yield commits that were refused although the head was what they expected all along."""
    for call in refused:
        if call.expected is None:
            continue  # it gave up after losing many races, which is allowed
        if returned.get(call.expected, NEVER) > call.begun:
            yield f"{call.token} expected {call.expected} before any call returned it"
        elif call.expected not in place:
            yield f"{call.token} expected {call.expected}, which the head never was"
        elif moved.get(place[call.expected] + 1, NEVER) > call.answered:
            yield f"{call.token} was refused, but the head had not moved from {call.expected}"
