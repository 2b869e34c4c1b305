"""Copies of plain data, and exact equality."""

from __future__ import annotations

import enum
import uuid
from collections import OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.values.binary_encoding import encode
from holdfast.values.exact_copy import UNCOPYABLE, copy_plain, find_unequal, is_equal

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from([0.0, -0.0, 1.0, 2.5]),
    st.text("ab", max_size=2),
    st.binary(max_size=2),
)
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.one_of(st.text("ab", max_size=1), st.integers(0, 1)), inner, max_size=3),
    ),
    max_leaves=8,
)


class Word(enum.StrEnum):
    A = "a"


class Touchy:
    def __eq__(self, other):
        raise ValueError("which of them?")

    __hash__ = None


@given(PLAIN, PLAIN)
def test_exact_equality_matches_equal_encodings(one, other):
    assert is_equal(copy_plain(one), one)
    assert is_equal(copy_plain(one), other) == (encode(one) == encode(other))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", Word.A),
        (b"a", bytearray(b"a")),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({1: "x"}, {True: "x"}),
        ({"a": 1}, OrderedDict(a=1)),
        ("a", Touchy()),
        ([[1]], [[1, 2]]),
    ],
)
def test_equal_values_of_other_types_are_not_exactly_equal(one, other):
    for wrapped in (lambda value: value, lambda value: [value], lambda value: {"k": {"v": value}}):
        assert not is_equal(copy_plain(wrapped(one)), wrapped(other))


def test_a_copy_is_independent_of_the_original():
    value = {"a": [{"b": [1]}], "c": ([2],)}
    copy = copy_plain(value)
    value["a"][0]["b"].append(3)
    assert not is_equal(copy, value)
    value["a"][0]["b"].pop()
    assert is_equal(copy, value)
    value["c"][0].append(3)
    assert not is_equal(copy, value)


@pytest.mark.parametrize("value", [uuid.uuid4(), Word.A, [Touchy()], {"a": {1}}, OrderedDict()])
def test_other_types_cannot_be_copied(value):
    with pytest.raises(TypeError):
        copy_plain(value)
    assert not is_equal(UNCOPYABLE, value)


def test_find_unequal_returns_indexes():
    assert find_unequal([1, "a", UNCOPYABLE, [2]], [1, "b", 3]) == [1, 2]
    assert find_unequal([], [1]) == []
