"""Which snapshots a policy keeps."""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ids import new_id
from holdfast.snapshots import RetentionPolicy, SnapshotInfo

NOW = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)  # a Sunday
HOUR, DAY, WEEK = dt.timedelta(hours=1), dt.timedelta(days=1), dt.timedelta(weeks=1)


def taken(ago, name=None, **tags):
    """A snapshot that was taken so long ago."""
    moment = NOW - ago
    return SnapshotInfo(
        snapshot_id=name or f"{moment:%Y%m%d-%H%M%S-%f}",
        parent_id=None,
        agent_id="a",
        session_id="s",
        scope="agent",
        created_at=moment,
        tags=tags,
    )


def names(snapshots):
    return [each.snapshot_id for each in snapshots]


def kept(snapshots, **rules):
    found = RetentionPolicy(**rules).kept(snapshots, NOW)
    assert found == sorted(found, key=lambda each: (each.created_at, each.snapshot_id))
    return names(found)


def every(step, count):
    return [taken(step * number) for number in range(count)]


def test_the_last_ones_are_kept():
    snapshots = every(HOUR, 20)
    assert kept(snapshots, last=3) == names(snapshots[2::-1])
    assert kept(snapshots, last=100) == names(snapshots[::-1])
    assert kept(snapshots[::-1], last=3) == names(snapshots[2::-1])


def test_after_a_clock_was_set_back_the_last_ones_are_those_that_were_saved_last():
    first, second, third = (taken(ago, new_id()) for ago in (-10 * DAY, HOUR, 365 * DAY))
    found = RetentionPolicy(last=2).kept([third, first, second], NOW)
    assert names(found) == [second.snapshot_id, third.snapshot_id]


def test_ids_that_tell_no_time_leave_it_to_the_times():
    snapshots = [taken(ago, str(uuid.uuid4())) for ago in (HOUR, DAY, WEEK)]
    assert kept(snapshots, last=2) == names(snapshots[1::-1])


def test_the_newest_is_kept_always():
    snapshots = every(WEEK, 5)
    for rules in ({"last": 0}, {"hourly": 0}, {"weekly": 0}, {"max_age": dt.timedelta()}):
        assert kept(snapshots, **rules) == [snapshots[0].snapshot_id]


def test_of_none_none_is_kept():
    assert kept([], last=5) == []


def test_of_two_of_one_moment_the_later_id_is_the_newer():
    snapshots = [taken(HOUR, "b"), taken(HOUR, "a"), taken(2 * HOUR, "c")]
    assert kept(snapshots, last=1) == ["b"]
    assert kept(snapshots, last=2) == ["a", "b"]


def test_the_newest_of_each_hour_is_kept():
    snapshots = every(dt.timedelta(minutes=10), 40)
    found = kept(snapshots, hourly=3)
    # 12:00, and the last of the hours 11 and 10.
    assert found == ["20261115-105000-000000", "20261115-115000-000000", "20261115-120000-000000"]


def test_the_newest_of_each_day_is_kept():
    snapshots = every(6 * HOUR, 40)
    assert kept(snapshots, daily=3) == [
        "20261113-180000-000000",
        "20261114-180000-000000",
        "20261115-120000-000000",
    ]


def test_the_newest_of_each_week_is_kept_and_weeks_begin_on_monday():
    snapshots = every(DAY, 40)
    assert kept(snapshots, weekly=3) == [
        "20261101-120000-000000",
        "20261108-120000-000000",
        "20261115-120000-000000",
    ]


def test_a_week_goes_over_the_end_of_a_year():
    december, january = dt.datetime(2026, 12, 31, tzinfo=dt.UTC), dt.datetime(2027, 1, 1, 1)
    snapshots = [
        replace(taken(HOUR, name), created_at=moment.replace(tzinfo=dt.UTC))
        for name, moment in (("old", december - WEEK), ("thu", december), ("fri", january))
    ]
    assert kept(snapshots, weekly=5) == ["old", "fri"]


def test_periods_without_a_snapshot_do_not_count():
    snapshots = [taken(ago) for ago in (HOUR, 50 * HOUR, 51 * HOUR, 30 * DAY)]
    assert kept(snapshots, hourly=3) == names(snapshots[2::-1])
    assert kept(snapshots, daily=3) == names([snapshots[3], snapshots[1], snapshots[0]])


def test_periods_are_those_of_utc_whatever_zone_a_time_is_in():
    east = dt.timezone(dt.timedelta(hours=5, minutes=30))
    snapshots = [
        replace(each, created_at=each.created_at.astimezone(east))
        for each in every(dt.timedelta(minutes=10), 40)
    ]
    for rules in ({"hourly": 3}, {"daily": 2}, {"weekly": 2}):
        plain = every(dt.timedelta(minutes=10), 40)
        assert kept(snapshots, **rules) == kept(plain, **rules)


def test_all_that_are_younger_than_an_age_are_kept():
    snapshots = every(HOUR, 10)
    assert kept(snapshots, max_age=3 * HOUR) == names(snapshots[2::-1])
    ahead = taken(-HOUR)
    assert kept([*snapshots, ahead], max_age=HOUR) == names([snapshots[0], ahead])


def test_what_any_rule_keeps_is_kept():
    snapshots = every(HOUR, 24 * 40)
    together = {"last": 5, "hourly": 3, "daily": 7, "weekly": 4, "max_age": 2 * HOUR}
    found = set(kept(snapshots, **together))
    assert found == set().union(*(kept(snapshots, **{rule: together[rule]}) for rule in together))


PROTECTED = [taken(HOUR), taken(9 * DAY, "pin", pin=""), taken(8 * DAY, "env", env="production")]


@pytest.mark.parametrize(
    ("protected", "expected"),
    [
        (["pin"], {"pin"}),
        (("pin", "env"), {"pin", "env"}),
        ({"pin", "nobody"}, {"pin"}),
        (iter(["pin"]), {"pin"}),
        ({"env": "production"}, {"env"}),
        ({"env": "test"}, set()),
        ({"pin": "", "env": "test"}, {"pin"}),
        (MappingProxyType({"env": "production"}), {"env"}),
        ([], set()),
        ({}, set()),
        ([""], set()),
    ],
)
def test_what_has_a_protected_tag_is_kept(protected, expected):
    policy = RetentionPolicy(last=1, protected=protected)
    for _ in range(2):
        found = names(policy.select(PROTECTED, NOW))
        assert set(found) == {PROTECTED[0].snapshot_id} | expected


@pytest.mark.parametrize(
    ("rules", "error", "what"),
    [
        ({}, ValueError, "would remove every snapshot but the newest"),
        ({"protected": ["pin"]}, ValueError, "say what to keep"),
        ({"last": -1}, ValueError, "last is a number from 0"),
        ({"hourly": 1.5}, ValueError, "hourly is a number from 0"),
        ({"daily": "7"}, ValueError, "daily is a number from 0"),
        ({"weekly": -1}, ValueError, "weekly is a number from 0"),
        ({"max_age": 3600}, TypeError, "max_age is a timedelta"),
        ({"last": 1, "protected": "pin"}, TypeError, r'write \["pin"\]'),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused(rules, error, what):
    with pytest.raises(error, match=what):
        RetentionPolicy(**rules)


# ------------------------------------------------------------------------------- for any of them

COUNTS = st.integers(0, 6)
AGES = st.integers(0, 60).map(lambda days: days * DAY)
RULES = st.fixed_dictionaries(
    {},
    optional={
        "last": COUNTS,
        "hourly": COUNTS,
        "daily": COUNTS,
        "weekly": COUNTS,
        "max_age": AGES,
        "protected": st.sets(st.sampled_from(["pin", "env"])),
    },
).filter(lambda rules: rules.keys() - {"protected"})
SNAPSHOTS = st.lists(
    st.builds(
        lambda minutes, tags: taken(minutes * dt.timedelta(minutes=1), **tags),
        st.integers(-100, 80 * 24 * 60),
        st.dictionaries(st.sampled_from(["pin", "env"]), st.just("x"), max_size=1),
    ),
    max_size=40,
    unique_by=lambda each: each.snapshot_id,
)


@given(SNAPSHOTS, RULES)
def test_what_is_kept_is_some_of_what_there_is_with_the_newest(snapshots, rules):
    policy = RetentionPolicy(**rules)
    found = policy.select(snapshots, NOW)
    assert set(names(found)) <= set(names(snapshots))
    assert len(set(names(found))) == len(found)
    assert bool(found) == bool(snapshots)
    if snapshots:
        assert found[-1].created_at == max(each.created_at for each in snapshots)
    assert policy.select(found, NOW) == found


@given(SNAPSHOTS, RULES, st.data())
def test_a_policy_that_asks_for_more_keeps_no_less(snapshots, rules, data):
    rule = data.draw(st.sampled_from(sorted(rules)))
    more = {
        "max_age": rules.get("max_age", DAY) + DAY,
        "protected": {"pin", "env"},
    }.get(rule, 0) or rules[rule] + 1
    assert set(kept(snapshots, **rules)) <= set(kept(snapshots, **{**rules, rule: more}))


@given(SNAPSHOTS, RULES, st.integers(0, 100))
def test_what_is_dropped_is_not_wanted_again_later(snapshots, rules, days):
    policy = RetentionPolicy(**rules)
    now = set(names(policy.select(snapshots, NOW)))
    later = set(names(policy.select(snapshots, NOW + days * DAY)))
    assert later <= now


@given(SNAPSHOTS, RULES)
def test_the_order_in_which_they_are_given_does_not_matter(snapshots, rules):
    assert kept(snapshots, **rules) == kept(snapshots[::-1], **rules)
