"""The hash chain, changes and the JSON form of events."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Store
from holdfast.log.changes import array_header, changes_from_json, fold_changes
from holdfast.log.event import (
    draft_event,
    draft_from_json,
    event_to_compact_json,
    event_to_json,
    format_time,
)
from holdfast.log.hash_chain import encode_canonical_event, link_event, link_events
from holdfast.values.binary_encoding import canonicalize, encode
from support.sample_values import nest_lists, text, values

SETS = st.lists(st.tuples(text, text, values), max_size=4)
DELETES = st.lists(st.tuples(text, text), max_size=4)
DRAFTS = st.builds(
    lambda type_, data, set_, delete: draft_event(type_, data, set_=set_, delete=delete),
    text,
    values,
    SETS,
    DELETES,
)


def hashed_fields(event, seq):
    """Return the hashed fields of an event as one value."""
    return {
        "seq": seq,
        "id": event.id,
        "type": event.type,
        "at": format_time(event.at),
        "data": event.data,
        "changes": {
            "set": [list(item) for item in event.changes["set"]],
            "delete": [list(pair) for pair in event.changes["delete"]],
        },
    }


@given(DRAFTS, st.integers(1, 2**40))
def test_canonical_event_bytes_equal_those_of_a_dict(event, seq):
    assert encode_canonical_event(event, seq) == canonicalize(encode(hashed_fields(event, seq)))


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 65_535, 65_536])
def test_array_headers_match_msgpack(count):
    assert encode([None] * count)[: len(array_header(count))] == array_header(count)
    assert len(encode([None] * count)) == len(array_header(count)) + count


def test_canonical_event_bytes_with_many_changes():
    event = draft_event(
        "many",
        set_=[("n", f"{number}", number) for number in range(70_000)],
        delete=[("n", f"{number}") for number in range(300)],
    )
    assert encode_canonical_event(event, 7) == canonicalize(encode(hashed_fields(event, 7)))


def test_the_hash_matches_the_specification():
    event = draft_event("a", {"b": 1, "a": 2}, set_=[("n", "k", (1, 2))])
    expected = hashlib.sha256(b"prev" + canonicalize(encode(hashed_fields(event, 3)))).hexdigest()
    assert link_event(event, 3, "prev").hash == expected


def test_values_in_events_have_the_full_nesting_limit():
    deepest = 1
    while True:
        try:
            Store().set("n", "k", nest_lists(deepest * 2))
        except TypeError:
            break
        deepest *= 2
    for depth in (deepest, deepest * 2 - 1):
        try:
            Store().set("n", "k", nest_lists(depth))
        except TypeError:
            continue
        event = draft_event("deep", nest_lists(depth), set_=[("n", "k", nest_lists(depth))])
        again = draft_from_json(event_to_json(event))
        assert link_event(again, 1, "").hash == link_event(event, 1, "").hash


@given(DRAFTS)
def test_compact_and_full_json_decode_to_the_same_event(event):
    hashes = {
        link_event(each, 9, "p").hash
        for each in (
            event,
            draft_from_json(event_to_json(event)),
            draft_from_json(event_to_compact_json(event)),
        )
    }
    assert len(hashes) == 1


@given(st.lists(DRAFTS, max_size=5), st.integers(0, 99), text)
def test_each_event_refers_to_the_previous_hash(drafts, seq, prev):
    events = link_events(drafts, seq, prev)
    assert [event.seq for event in events] == list(range(seq + 1, seq + 1 + len(drafts)))
    assert [event.prev for event in events] == [prev, *(event.hash for event in events)][:-1]


SMALL = st.fixed_dictionaries(
    {
        "set": st.lists(
            st.tuples(st.sampled_from("mn"), st.sampled_from("abc"), st.integers(0, 3)), max_size=4
        ),
        "delete": st.lists(st.tuples(st.sampled_from("mn"), st.sampled_from("abc")), max_size=3),
    }
)


@given(st.lists(SMALL, max_size=8))
def test_folding_at_once_equals_folding_one_by_one(changes):
    together, apart = Store(), Store()
    fold_changes(together, changes)
    for each in changes:
        fold_changes(apart, [each])
    assert together.snapshot().digest == apart.snapshot().digest
    plain = {}
    for each in changes:
        for space, key, value in each["set"]:
            plain[space, key] = value
        for pair in each["delete"]:
            plain.pop(pair, None)
    assert {(space, key): value for space, key, value in together.snapshot().items()} == plain


def test_folding_no_changes_does_not_touch_the_store():
    store = Store()
    before = store.snapshot()
    fold_changes(store, [{"set": [], "delete": []}])
    assert store.snapshot().digest == before.digest


@pytest.mark.parametrize(
    "tree", [None, 7, [], {"set": 7}, {"set": [["n"]]}, {"set": [[1, "k", 2]]}, {"delete": [["n"]]}]
)
def test_malformed_changes_are_rejected(tree):
    with pytest.raises((AttributeError, TypeError, ValueError)):
        changes_from_json(tree)
