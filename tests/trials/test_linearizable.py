"""The head of a session is linearizable, and the checker rejects histories that are not."""

from __future__ import annotations

import asyncio
import time
import uuid
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.stores.memory import MemoryStateStore
from support.backends import SharedMemory, make_url
from trials.linearizable import Link, Operation, problems_in
from trials.linearizable.history import START, pool, read_log, record_history, run_clients


def commit(token, begun, answered, expected, head=None, outcome="ok"):
    return Operation(token, "commit", begun, answered, outcome, expected, head)


def read(token, begun, answered, head):
    return Operation(token, "read", begun, answered, head=head)


FIRST, SECOND = commit("a", 1, 3, "0", "A"), commit("b", 5, 7, "A", "B")
LOG = [Link("a", "0", "A"), Link("b", "A", "B")]


def find_problems(history, log=LOG):
    return "\n".join(problems_in(history, log, "0"))


def test_sequential_commits_are_accepted():
    calls = [FIRST, read("r", 4, 6, "A"), SECOND, read("s", 6, 9, "B")]
    assert problems_in(calls, LOG, "0") == []


def test_a_read_may_see_a_commit_that_has_not_returned():
    assert problems_in([replace(FIRST, answered=9), read("r", 2, 4, "A")], LOG[:1], "0") == []
    assert problems_in([replace(FIRST, answered=9), read("r", 2, 4, "0")], LOG[:1], "0") == []


def test_a_stale_read_is_rejected():
    assert "stands after" in find_problems([FIRST, SECOND, read("r", 8, 9, "A")])


def test_two_reads_that_see_a_commit_come_and_go_are_rejected():
    slow = replace(SECOND, begun=4, answered=20)
    assert "stands after" in find_problems(
        [FIRST, slow, read("r", 5, 6, "B"), read("s", 7, 8, "A")]
    )


def test_a_read_of_an_unknown_head_is_rejected():
    assert "never was" in find_problems([FIRST, SECOND, read("r", 8, 9, "X")])


def test_a_lost_update_is_rejected():
    assert "is lost" in find_problems([FIRST, SECOND], LOG[:1])
    both = commit("b", 2, 4, "0", "B")
    assert "is lost" in find_problems([FIRST, both], LOG[:1])


def test_an_overwritten_update_is_rejected():
    both = commit("b", 2, 4, "0", "B")
    assert "follows 0" in find_problems([FIRST, both], [LOG[0], Link("b", "0", "B")])


def test_a_commit_that_is_applied_twice_is_rejected():
    log = [*LOG, Link("a", "B", "A2")]
    assert "is in the log 2 times" in find_problems([FIRST, SECOND], log)


def test_a_commit_ordered_after_one_that_started_later_is_rejected():
    late = commit("a", 1, 3, None, "A")
    early = commit("b", 5, 7, None, "B")
    assert "stands after" in find_problems(
        [late, early], [Link("b", "0", "B"), Link("a", "B", "A")]
    )


def test_a_commit_that_was_never_started_is_rejected():
    assert "was never started" in find_problems([FIRST])


def test_a_refusal_needs_an_earlier_commit():
    refused = commit("c", 8, 9, "B", outcome="conflict")
    assert "the head had not moved" in find_problems([FIRST, SECOND, refused])
    third = commit("d", 10, 11, "B", "D")
    log = [*LOG, Link("d", "B", "D")]
    assert "the head had not moved" in find_problems([FIRST, SECOND, refused, third], log)
    assert find_problems([FIRST, SECOND, refused, replace(third, begun=9)], log) == ""
    assert find_problems([FIRST, SECOND, replace(refused, expected="A")]) == ""


def test_a_refusal_must_not_have_been_written():
    assert "was refused and is in the log" in find_problems(
        [FIRST, replace(SECOND, outcome="conflict")]
    )


def test_a_commit_cannot_expect_a_head_that_no_call_returned():
    refused = commit("c", 2, 4, "B", outcome="conflict")
    assert "before any call returned it" in find_problems([FIRST, SECOND, refused])


def test_a_commit_with_unknown_outcome_may_be_stored_once_or_not_at_all():
    unknown = replace(SECOND, outcome="unknown", head=None)
    assert find_problems([FIRST, unknown]) == ""
    assert find_problems([FIRST, unknown], LOG[:1]) == ""
    assert find_problems([FIRST, unknown, read("r", 8, 9, "A"), read("s", 10, 11, "B")]) == ""
    assert "stands after" in find_problems([FIRST, unknown, read("r", 2, 3, "B")])


def search_orders(calls, log, start):
    """Return whether a search over all orders, the definition itself, finds one."""
    moves = [link.token for link in log]
    heads = [start, *(link.head for link in log)]
    before = {link.token: link.before for link in log}
    taken = [call for call in calls if call.outcome != "unknown" or call.token in moves]

    def continues(rest, at):
        if not rest:
            return at == len(moves)
        for call in rest:
            if any(other.latest < call.begun for other in rest):
                continue
            left = [other for other in rest if other is not call]
            if call.kind == "read":
                fits = call.head == heads[at] and continues(left, at)
            elif call.outcome == "conflict":
                fits = call.expected != heads[at] and continues(left, at)
            else:
                fits = (
                    at < len(moves)
                    and moves[at] == call.token
                    and before[call.token] == heads[at]
                    and call.expected in (None, heads[at])
                    and call.head in (None, heads[at + 1])
                    and continues(left, at + 1)
                )
            if fits:
                return True
        return False

    return continues(taken, 0)


@st.composite
def histories(draw):
    """Generate calls that one register could have answered; no two times are equal."""
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
            returned = after if outcome == "ok" else None
            if returned:
                known.append((after, answered))
            calls.append(commit(token, begun, answered, expected, returned, outcome))
        else:
            outcome = "unknown" if act == "unknown" else "conflict"
            calls.append(commit(token, begun, answered, expected, outcome=outcome))
    return calls, log


@given(histories())
def test_a_history_of_a_register_is_accepted(made):
    calls, log = made
    assert problems_in(calls, log, "h0") == []


@given(histories(), st.data())
def test_a_changed_history_is_judged_as_by_a_search_over_all_orders(made, data):
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
        search_orders(calls, log, "h0") and check_expected_heads(calls)
    )


def check_expected_heads(calls):
    """Check the one condition beyond linearizability: a refused commit knew what it expected."""
    returned = {"h0": -100}
    for call in calls:
        if call.head is not None:
            returned[call.head] = min(returned.get(call.head, 1000), call.answered)
    return all(
        returned.get(call.expected, 1000) <= call.begun
        for call in calls
        if call.outcome == "conflict" and call.expected is not None
    )


def has_all_kinds(calls):
    kinds = {(call.kind, call.outcome) for call in calls}
    return kinds >= {("read", "ok"), ("commit", "ok"), ("commit", "conflict")}


def test_tasks_on_a_memory_store_are_linearizable():
    async def run():
        content = MemoryStateStore()
        stores = [SharedMemory(content) for _ in range(4)]
        calls = await run_clients(stores, "ses", "m", time.monotonic() + 0.3)
        return calls, await read_log(stores[0], "ses")

    calls, log = asyncio.run(run())
    assert has_all_kinds(calls)
    assert problems_in(calls, log, START) == []


@pytest.fixture(scope="module")
def processes():
    """Two processes that are started once, as their start is what takes time."""
    with pool(2) as workers:
        yield workers
        workers.close()
        workers.join()


@pytest.mark.parametrize("backend", ["sqlite", "postgresql"])
def test_processes_are_linearizable(backend, request, processes):
    calls, log = record_history(
        processes,
        make_url(backend, request),
        f"ses_{uuid.uuid4()}",
        processes=2,
        clients=2,
        seconds=0.5,
    )
    assert has_all_kinds(calls)
    assert problems_in(calls, log, START) == []


def test_a_real_history_without_one_of_its_commits_is_rejected(tmp_path, processes):
    url = f"sqlite:///{tmp_path}/state.db"
    calls, log = record_history(processes, url, "ses", processes=2, clients=1, seconds=0.2)
    assert problems_in(calls, log, START) == []
    assert problems_in(calls, log[:-1], START)
    swapped = [log[1], log[0], *log[2:]]
    assert problems_in(calls, swapped, START)
