"""Values are cleaned in linear time, and marks are kept."""

from __future__ import annotations

import time

import pytest

from holdfast.redaction.clean import Cleaner, exclude_marks, merge_findings
from holdfast.redaction.detect import Detector
from holdfast.redaction.findings import Finding

DETECTOR = Detector(secrets=True, emails=True, phones=False)


def clean_value(value):
    cleaner = Cleaner(DETECTOR)
    cleaner.clean_value(value)
    cleaner.collecting = False
    return cleaner.clean_value(value)


def measure_time(work):
    def once():
        began = time.process_time()
        work()
        return time.process_time() - began

    return min(once() for _ in range(3))


@pytest.mark.parametrize(
    "value",
    [
        lambda size: {f"user{number}@example.com": 1 for number in range(size // 50)},
        lambda size: "[redacted: secret] a@example.com " * (size // 33),
        lambda size: [
            "password",
            *(f"password=hunter2{number:06}" for number in range(size // 23)),
        ],
        lambda size: (
            [{"password": "a" * 100 + str(number)} for number in range(size // 100)] + ["a" * size]
        ),
        lambda size: [{"password": "b" * (size // 2)}, "b" * (size // 2 - 1)],
        lambda size: {"A" * size: {"value": 12345}},
        lambda size: {"a" * 100: {"B" * size: 12345}},
    ],
    ids=["keys", "marks", "passwords", "alike", "one long", "a name", "a name inside"],
)
def test_cleaning_takes_linear_time(value):
    small, large = value(5_000), value(40_000)
    least = max(measure_time(lambda: clean_value(small)), 0.01)
    assert (
        measure_time(lambda: clean_value(large)) < 24 * least
    )  # the square would be 64 times as much


def test_redacted_keys_are_numbered_in_order():
    new = clean_value(
        {"a@example.com": 1, "[redacted: email 2]": 2, "b@example.com": 3, "c@x.org": 4}
    )
    assert list(new) == [
        "[redacted: email]",
        "[redacted: email 2]",
        "[redacted: email 3]",
        "[redacted: email 4]",
    ]


@pytest.mark.parametrize(
    ("span", "left"),
    [
        ((0, 5), [(0, 5)]),
        ((0, 10), [(0, 10)]),
        ((0, 12), [(0, 10)]),
        ((10, 20), []),
        ((12, 18), []),
        ((15, 25), [(20, 25)]),
        ((20, 30), [(20, 30)]),
        ((5, 45), [(5, 45)]),
        ((15, 35), [(20, 30)]),
        ((35, 50), [(40, 50)]),
    ],
)
def test_existing_marks_are_not_redacted_again(span, left):
    marks = [(10, 20), (30, 40)]
    found = [(each.start, each.end) for each in exclude_marks(Finding(*span, "secret"), marks)]
    assert found == left


def test_findings_in_a_text_without_marks_are_merged():
    assert merge_findings([Finding(0, 3, "a"), Finding(2, 5, "b")], "abcdef") == [
        Finding(0, 5, "a")
    ]


def test_many_long_secrets_with_the_same_start_are_found():
    secrets = ["x" * 80 + f"{number:03}" + "y" * (number % 7) for number in range(100)]
    new = clean_value(
        [{"password": secret} for secret in secrets] + [f"use {s} now" for s in secrets]
    )
    assert new[100:] == ["use [redacted: secret] now"] * 100
