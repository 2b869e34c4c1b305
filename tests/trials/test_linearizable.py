"""The head of a session is linearizable, and the checker that says so can tell when it is not."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.memory import MemoryStateStore
from support.backends import SharedMemory, place
from trials.linearizable import Link, Operation, problems_in
from trials.linearizable.recording import START, history_of, logged, pool, recorded


def commit(token, begun, answered, expected, head=None, outcome="ok"):
    return Operation(token, "commit", begun, answered, outcome, expected, head)


def read(token, begun, answered, head):
    return Operation(token, "read", begun, answered, head=head)


FIRST, SECOND = commit("a", 1, 3, "0", "A"), commit("b", 5, 7, "A", "B")
LOG = [Link("a", "0", "A"), Link("b", "A", "B")]


def rejects(history, log=LOG):
    return "\n".join(problems_in(history, log, "0"))


def test_commits_one_after_the_other_are_accepted():
    calls = [FIRST, read("r", 4, 6, "A"), SECOND, read("s", 6, 9, "B")]
    assert problems_in(calls, LOG, "0") == []


def test_a_read_may_see_a_commit_that_is_still_under_way():
    assert problems_in([replace(FIRST, answered=9), read("r", 2, 4, "A")], LOG[:1], "0") == []
    assert problems_in([replace(FIRST, answered=9), read("r", 2, 4, "0")], LOG[:1], "0") == []


def test_a_stale_read_is_rejected():
    assert "stands after" in rejects([FIRST, SECOND, read("r", 8, 9, "A")])


def test_two_reads_that_see_a_commit_come_and_go_are_rejected():
    slow = replace(SECOND, begun=4, answered=20)
    assert "stands after" in rejects([FIRST, slow, read("r", 5, 6, "B"), read("s", 7, 8, "A")])


def test_a_read_of_what_never_was_is_rejected():
    assert "never was" in rejects([FIRST, SECOND, read("r", 8, 9, "X")])


def test_a_lost_update_is_rejected():
    assert "is lost" in rejects([FIRST, SECOND], LOG[:1])
    both = commit("b", 2, 4, "0", "B")
    assert "is lost" in rejects([FIRST, both], LOG[:1])


def test_an_update_that_another_one_overwrote_is_rejected():
    both = commit("b", 2, 4, "0", "B")
    assert "follows 0" in rejects([FIRST, both], [LOG[0], Link("b", "0", "B")])


def test_a_commit_that_is_applied_twice_is_rejected():
    log = [*LOG, Link("a", "B", "A2")]
    assert "is in the log 2 times" in rejects([FIRST, SECOND], log)


def test_a_commit_that_comes_after_one_that_began_later_is_rejected():
    late = commit("a", 1, 3, None, "A")
    early = commit("b", 5, 7, None, "B")
    assert "stands after" in rejects([late, early], [Link("b", "0", "B"), Link("a", "B", "A")])


def test_a_commit_of_nobody_is_rejected():
    assert "nobody began it" in rejects([FIRST])


def test_a_refusal_needs_somebody_who_was_first():
    refused = commit("c", 8, 9, "B", outcome="conflict")
    assert "nobody had moved" in rejects([FIRST, SECOND, refused])
    third = commit("d", 10, 11, "B", "D")
    log = [*LOG, Link("d", "B", "D")]
    assert "nobody had moved" in rejects([FIRST, SECOND, refused, third], log)
    assert rejects([FIRST, SECOND, refused, replace(third, begun=9)], log) == ""
    assert rejects([FIRST, SECOND, replace(refused, expected="A")]) == ""


def test_a_refusal_must_not_have_been_written():
    assert "was refused and is in the log" in rejects([FIRST, replace(SECOND, outcome="conflict")])


def test_nobody_can_expect_a_head_before_anybody_knows_it():
    refused = commit("c", 2, 4, "B", outcome="conflict")
    assert "before anybody" in rejects([FIRST, SECOND, refused])


def test_an_unknown_outcome_may_be_there_once_later_or_not_at_all():
    unknown = replace(SECOND, outcome="unknown", head=None)
    assert rejects([FIRST, unknown]) == ""
    assert rejects([FIRST, unknown], LOG[:1]) == ""
    assert rejects([FIRST, unknown, read("r", 8, 9, "A"), read("s", 10, 11, "B")]) == ""
    assert "stands after" in rejects([FIRST, unknown, read("r", 2, 3, "B")])


# ------------------------------------------------------------------------- against a plain search


def searched(calls, log, start):
    """What a search over all orders says: the definition, and nothing clever."""
    moves = [link.token for link in log]
    heads = [start, *(link.head for link in log)]
    before = {link.token: link.before for link in log}
    taken = [call for call in calls if call.outcome != "unknown" or call.token in moves]

    def goes_on(rest, at):
        if not rest:
            return at == len(moves)
        for call in rest:
            if any(other.latest < call.begun for other in rest):
                continue
            left = [other for other in rest if other is not call]
            if call.kind == "read":
                fits = call.head == heads[at] and goes_on(left, at)
            elif call.outcome == "conflict":
                fits = call.expected != heads[at] and goes_on(left, at)
            else:
                fits = (
                    at < len(moves)
                    and moves[at] == call.token
                    and before[call.token] == heads[at]
                    and call.expected in (None, heads[at])
                    and call.head in (None, heads[at + 1])
                    and goes_on(left, at + 1)
                )
            if fits:
                return True
        return False

    return goes_on(taken, 0)


@st.composite
def histories(draw):
    """Calls that one register answered, at moments within their times; no two times are equal."""
    count = draw(st.integers(1, 7))
    times = draw(st.permutations(range(3 * count)))
    calls, log, head, known = [], [], "h0", [("h0", -1)]
    spans = sorted(
        (sorted(times[3 * n : 3 * n + 3]) for n in range(count)), key=lambda each: each[1]
    )
    for number, (begun, _, answered) in enumerate(spans):
        token = f"t{number}"
        seen = [each for each, since in known if since < begun]
        act = draw(st.sampled_from(["read", "commit", "any", "unknown", "commit"]))
        if act == "read":
            calls.append(read(token, begun, answered, head))
            known.append((head, answered))
            continue
        expected = None if act == "any" else draw(st.sampled_from(seen))
        outcome = "unknown" if act == "unknown" else "ok"
        if expected in (None, head):
            after = f"h{len(log) + 1}"
            log.append(Link(token, head, after))
            head = after
            told = after if outcome == "ok" else None
            if told:
                known.append((after, answered))
            calls.append(commit(token, begun, answered, expected, told, outcome))
        else:
            outcome = "unknown" if act == "unknown" else "conflict"
            calls.append(commit(token, begun, answered, expected, outcome=outcome))
    return calls, log


@given(histories())
def test_what_a_register_answered_is_accepted(made):
    calls, log = made
    assert problems_in(calls, log, "h0") == []


@given(histories(), st.data())
def test_what_is_changed_is_judged_as_a_search_over_all_orders_judges_it(made, data):
    calls, log = made
    place_ = data.draw(st.integers(0, len(calls) - 1))
    call = calls[place_]
    heads = ["h0", *(link.head for link in log)]
    change = data.draw(st.sampled_from(["head", "later", "earlier", "outcome", "drop", "swap"]))
    if change == "head" and call.kind == "read":
        calls[place_] = replace(call, head=data.draw(st.sampled_from(heads)))
    elif change == "later":
        calls[place_] = replace(call, begun=call.begun + 50, answered=call.answered + 50)
    elif change == "earlier":
        calls[place_] = replace(call, begun=call.begun - 50, answered=call.answered - 50)
    elif change == "outcome" and call.kind == "commit" and call.expected is not None:
        flipped = "ok" if call.outcome != "ok" else "conflict"
        there = {link.token: link.head for link in log}
        head = there.get(call.token, "none") if flipped == "ok" else None
        calls[place_] = replace(call, outcome=flipped, head=head)
    elif change == "drop" and log:
        log = log[:-1]
    elif change == "swap" and len(log) > 1:
        log = [log[1], log[0], *log[2:]]
    assert (problems_in(calls, log, "h0") == []) == (
        searched(calls, log, "h0") and all_expected_what_was_told(calls)
    )


def all_expected_what_was_told(calls):
    """The one demand beyond linearizability: whoever was refused knew what it expected."""
    told = {"h0": -100}
    for call in calls:
        if call.head is not None:
            told[call.head] = min(told.get(call.head, 1000), call.answered)
    return all(
        told.get(call.expected, 1000) <= call.begun
        for call in calls
        if call.outcome == "conflict" and call.expected is not None
    )


# ------------------------------------------------------------------------------ the real thing


def shape_of(told):
    kinds = {(call.kind, call.outcome) for call in told}
    return kinds >= {("read", "ok"), ("commit", "ok"), ("commit", "conflict")}


def test_tasks_on_a_store_in_memory_see_one_head():
    async def whole():
        content = MemoryStateStore()
        stores = [SharedMemory(content) for _ in range(4)]
        told = await recorded(stores, "ses", "m", time.monotonic() + 0.3)
        return told, await logged(stores[0], "ses")

    told, log = asyncio.run(whole())
    assert shape_of(told)
    assert problems_in(told, log, START) == []


@pytest.fixture(scope="module")
def processes():
    """Two processes that are started once, as their start is what takes time."""
    with pool(2) as workers:
        yield workers
        workers.close()
        workers.join()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_processes_see_one_head(backend, request, processes):
    told, log = history_of(
        processes,
        place(backend, request),
        f"ses_{uuid.uuid4()}",
        processes=2,
        clients=2,
        seconds=0.5,
    )
    assert shape_of(told)
    assert problems_in(told, log, START) == []


def test_a_history_of_the_real_thing_is_rejected_once_a_commit_is_taken_away(tmp_path, processes):
    url = f"sqlite:///{tmp_path}/state.db"
    told, log = history_of(processes, url, "ses", processes=2, clients=1, seconds=0.2)
    assert problems_in(told, log, START) == []
    assert problems_in(told, log[:-1], START)
    swapped = [log[1], log[0], *log[2:]]
    assert problems_in(told, swapped, START)
