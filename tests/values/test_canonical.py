"""Canonical bytes are computed by shortcuts that equal the plain computation."""

from __future__ import annotations

import datetime as dt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import UnsupportedValueError
from holdfast.log.changes import encode_canonical_changes
from holdfast.log.event import (
    draft_event,
    draft_from_json,
    event_to_compact_json,
    format_time,
    parse_time,
)
from holdfast.values.binary_encoding import canonicalize, encode
from holdfast.values.json_encoding import encode_canonical
from support.sample_values import nest_lists, text, values


@given(values)
def test_canonical_bytes_of_a_value_equal_those_of_its_binary_encoding(value):
    assert encode_canonical(value) == canonicalize(encode(value))


@pytest.mark.parametrize("value", [2**53, -(2**70), float("inf"), {"$x": 1}, {1: 2}, (1,), -0.0])
def test_canonical_bytes_of_tagged_values_equal_those_of_their_binary_encoding(value):
    for each in (value, [value], {"b": value, "a": [value]}):
        assert encode_canonical(each) == canonicalize(encode(each))


def test_a_value_without_canonical_bytes_is_an_error_that_names_its_path():
    with pytest.raises(UnsupportedValueError, match="lone surrogate") as refused:
        encode_canonical({"a": ["fine", "\ud800"]})
    assert refused.value.path == "$.a[1]"
    with pytest.raises(UnsupportedValueError, match="nested more than"):
        encode_canonical(nest_lists(100_000))


@given(st.lists(st.tuples(text, text, values), max_size=3), st.lists(st.tuples(text, text)))
def test_canonical_bytes_of_changes_equal_those_of_a_dict(sets, deletes):
    as_a_dict = {"set": [list(item) for item in sets], "delete": [list(pair) for pair in deletes]}
    assert encode_canonical_changes({"set": sets, "delete": deletes}) == canonicalize(
        encode(as_a_dict)
    )


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_times_are_formatted_with_microseconds(moment):
    for each in (moment, moment.replace(microsecond=0), moment.replace(microsecond=1)):
        written = format_time(each)
        assert written == each.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        assert parse_time(written) == each
        assert parse_time(written).tzinfo is dt.UTC


def test_unknown_fields_of_an_event_are_preserved_and_events_share_none():
    tree = event_to_compact_json(draft_event("a", set_=[("n", "k", 1)]))
    one, two = draft_from_json(tree), draft_from_json(tree)
    assert one.extra == {}
    assert one.extra is not two.extra
    assert draft_from_json({**tree, "later": [1]}).extra == {"later": [1]}
