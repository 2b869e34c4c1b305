"""The subjects of keys in a NATS bucket."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.stores.nats.subjects import (
    key_headers,
    key_to_subject,
    parse_etag,
    prefix_pattern,
    subject_to_key,
)

KV_KEY = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*")

KEYS = st.text(st.sampled_from("ab/.-_=~A0 é\x00\U0010ffff"), min_size=1, max_size=12) | st.builds(
    lambda part, times, end: "".join([part * times, end])[:8000],
    st.text(st.sampled_from("a/é="), min_size=1, max_size=5),
    st.integers(1, 900),
    st.text(st.sampled_from("xy/"), max_size=3),
)


def matches(pattern: str, subject: str) -> bool:
    """Match as the server does, for patterns that end in ``>``."""
    assert pattern.endswith(">")
    return subject.startswith(pattern[:-1]) and subject != pattern[:-2]


@example("a", "a/")
@example("=", "==")
@example("", "/")
@given(KEYS, KEYS)
def test_subjects_are_unique_and_valid_nats_keys(one, other):
    for key in filter(None, (one, other)):
        subject = key_to_subject(key)
        assert KV_KEY.fullmatch(subject)
        assert len(subject) <= 600
        headers = key_headers(key, subject)
        assert all(re.fullmatch(r"[!-~]+", text) for text in headers.values())
        assert subject_to_key(subject, headers) == key
    assert (key_to_subject(one) == key_to_subject(other)) == (one == other)


@given(KEYS, st.data())
def test_the_pattern_of_a_prefix_matches_every_key_with_it(key, data):
    prefix = key[: data.draw(st.integers(0, len(key)))]
    assert matches(prefix_pattern(prefix), key_to_subject(key))


def test_subjects_are_readable():
    assert key_to_subject("agents/7/\u00e9tat") == "agents.7.=C3=A9tat"
    assert key_to_subject("a//b/") == "a.=.b.="
    assert key_to_subject("tasks/" + "x" * 1000).startswith("tasks.=-")
    assert prefix_pattern("agents/7/st") == "agents.7.>"
    assert prefix_pattern("ag") == prefix_pattern("") == ">"
    assert prefix_pattern("a/" * 40) == "a." * 32 + ">"


@pytest.mark.parametrize(
    "subject",
    ["a/b", "=chunk.0123.0", "=c3=a9", "=C3", "a b", "=-0123", "a..b", "=-" + "0" * 64, ""],
)
def test_a_subject_of_another_program_has_no_key(subject):
    for named in ({}, {"Holdfast-Key": "YQ=="}, {"Holdfast-Key": "A"}, {"Holdfast-Key": "/w=="}):
        assert subject_to_key(subject, named) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0",
        "01",
        "-1",
        "+1",
        "1.0",
        " 1",
        "1\n",
        "٣",
        '"',
        "é",
        "no-such-etag",
        "1-",
        "1-abc",
        "9" * 20,
    ],
)
def test_an_etag_that_no_store_returned_is_not_parsed(text):
    assert parse_etag(text) is None


def test_etags_round_trip():
    for text in ("1", "18446744073709", "7-" + "0a" * 16):
        assert str(parse_etag(text)) == text
