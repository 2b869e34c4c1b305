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


def make_snapshot(ago, name=None, **tags):
    """Return the record of a snapshot of an age."""
    time = NOW - ago
    return SnapshotInfo(
        snapshot_id=name or f"{time:%Y%m%d-%H%M%S-%f}",
        parent_id=None,
        agent_id="a",
        session_id="s",
        scope="agent",
        created_at=time,
        tags=tags,
    )


def list_ids(snapshots):
    return [each.snapshot_id for each in snapshots]


def select(snapshots, **rules):
    found = RetentionPolicy(**rules).select(snapshots, NOW)
    assert found == sorted(found, key=lambda each: (each.created_at, each.snapshot_id))
    return list_ids(found)


def make_snapshots(step, count):
    return [make_snapshot(step * number) for number in range(count)]


def test_last_keeps_the_newest():
    snapshots = make_snapshots(HOUR, 20)
    assert select(snapshots, last=3) == list_ids(snapshots[2::-1])
    assert select(snapshots, last=100) == list_ids(snapshots[::-1])
    assert select(snapshots[::-1], last=3) == list_ids(snapshots[2::-1])


def test_last_uses_the_order_of_saving_after_a_clock_was_set_back():
    first, second, third = (make_snapshot(ago, new_id()) for ago in (-10 * DAY, HOUR, 365 * DAY))
    found = RetentionPolicy(last=2).select([third, first, second], NOW)
    assert list_ids(found) == [second.snapshot_id, third.snapshot_id]


def test_ids_without_a_time_are_sorted_by_created_at():
    snapshots = [make_snapshot(ago, str(uuid.uuid4())) for ago in (HOUR, DAY, WEEK)]
    assert select(snapshots, last=2) == list_ids(snapshots[1::-1])


def test_the_newest_is_always_kept():
    snapshots = make_snapshots(WEEK, 5)
    for rules in ({"last": 0}, {"hourly": 0}, {"weekly": 0}, {"max_age": dt.timedelta()}):
        assert select(snapshots, **rules) == [snapshots[0].snapshot_id]


def test_no_snapshots_give_no_result():
    assert select([], last=5) == []


def test_of_equal_times_the_later_id_is_newer():
    snapshots = [
        make_snapshot(HOUR, "b"),
        make_snapshot(HOUR, "a"),
        make_snapshot(2 * HOUR, "c"),
    ]
    assert select(snapshots, last=1) == ["b"]
    assert select(snapshots, last=2) == ["a", "b"]


def test_hourly_keeps_the_newest_of_each_hour():
    snapshots = make_snapshots(dt.timedelta(minutes=10), 40)
    found = select(snapshots, hourly=3)
    # 12:00, and the last of the hours 11 and 10.
    assert found == ["20261115-105000-000000", "20261115-115000-000000", "20261115-120000-000000"]


def test_daily_keeps_the_newest_of_each_day():
    snapshots = make_snapshots(6 * HOUR, 40)
    assert select(snapshots, daily=3) == [
        "20261113-180000-000000",
        "20261114-180000-000000",
        "20261115-120000-000000",
    ]


def test_weekly_keeps_the_newest_of_each_week_from_monday():
    snapshots = make_snapshots(DAY, 40)
    assert select(snapshots, weekly=3) == [
        "20261101-120000-000000",
        "20261108-120000-000000",
        "20261115-120000-000000",
    ]


def test_a_week_can_span_two_years():
    december, january = dt.datetime(2026, 12, 31, tzinfo=dt.UTC), dt.datetime(2027, 1, 1, 1)
    snapshots = [
        replace(make_snapshot(HOUR, name), created_at=time.replace(tzinfo=dt.UTC))
        for name, time in (("old", december - WEEK), ("thu", december), ("fri", january))
    ]
    assert select(snapshots, weekly=5) == ["old", "fri"]


def test_periods_without_snapshots_do_not_count():
    snapshots = [make_snapshot(ago) for ago in (HOUR, 50 * HOUR, 51 * HOUR, 30 * DAY)]
    assert select(snapshots, hourly=3) == list_ids(snapshots[2::-1])
    assert select(snapshots, daily=3) == list_ids([snapshots[3], snapshots[1], snapshots[0]])


def test_periods_are_in_utc():
    east = dt.timezone(dt.timedelta(hours=5, minutes=30))
    snapshots = [
        replace(each, created_at=each.created_at.astimezone(east))
        for each in make_snapshots(dt.timedelta(minutes=10), 40)
    ]
    for rules in ({"hourly": 3}, {"daily": 2}, {"weekly": 2}):
        plain = make_snapshots(dt.timedelta(minutes=10), 40)
        assert select(snapshots, **rules) == select(plain, **rules)


def test_max_age_keeps_all_younger_snapshots():
    snapshots = make_snapshots(HOUR, 10)
    assert select(snapshots, max_age=3 * HOUR) == list_ids(snapshots[2::-1])
    ahead = make_snapshot(-HOUR)
    assert select([*snapshots, ahead], max_age=HOUR) == list_ids([snapshots[0], ahead])


def test_rules_add_up():
    snapshots = make_snapshots(HOUR, 24 * 40)
    together = {"last": 5, "hourly": 3, "daily": 7, "weekly": 4, "max_age": 2 * HOUR}
    found = set(select(snapshots, **together))
    assert found == set().union(*(select(snapshots, **{rule: together[rule]}) for rule in together))


PROTECTED = [
    make_snapshot(HOUR),
    make_snapshot(9 * DAY, "pin", pin=""),
    make_snapshot(8 * DAY, "env", env="production"),
]


@pytest.mark.parametrize(
    ("protected", "expected"),
    [
        (["pin"], {"pin"}),
        (("pin", "env"), {"pin", "env"}),
        ({"pin", "other"}, {"pin"}),
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
def test_protected_tags_are_kept(protected, expected):
    policy = RetentionPolicy(last=1, protected=protected)
    for _ in range(2):
        found = list_ids(policy.select(PROTECTED, NOW))
        assert set(found) == {PROTECTED[0].snapshot_id} | expected


@pytest.mark.parametrize(
    ("rules", "error", "what"),
    [
        ({}, ValueError, "a policy needs a rule"),
        ({"protected": ["pin"]}, ValueError, "a policy needs a rule"),
        ({"last": -1}, ValueError, "last must be an int of 0 or more"),
        ({"hourly": 1.5}, ValueError, "hourly must be an int of 0 or more"),
        ({"daily": "7"}, ValueError, "daily must be an int of 0 or more"),
        ({"weekly": -1}, ValueError, "weekly must be an int of 0 or more"),
        ({"max_age": 3600}, TypeError, "max_age must be a timedelta"),
        ({"last": 1, "protected": "pin"}, TypeError, r'use \["pin"\]'),
    ],
)
def test_invalid_policies_are_rejected(rules, error, what):
    with pytest.raises(error, match=what):
        RetentionPolicy(**rules)


# ----------------------------------------------------------------------------------- properties

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
        lambda minutes, tags: make_snapshot(minutes * dt.timedelta(minutes=1), **tags),
        st.integers(-100, 80 * 24 * 60),
        st.dictionaries(st.sampled_from(["pin", "env"]), st.just("x"), max_size=1),
    ),
    max_size=40,
    unique_by=lambda each: each.snapshot_id,
)


@given(SNAPSHOTS, RULES)
def test_the_result_is_a_sorted_subset_with_the_newest(snapshots, rules):
    policy = RetentionPolicy(**rules)
    found = policy.select(snapshots, NOW)
    assert set(list_ids(found)) <= set(list_ids(snapshots))
    assert len(set(list_ids(found))) == len(found)
    assert bool(found) == bool(snapshots)
    if snapshots:
        assert found[-1].created_at == max(each.created_at for each in snapshots)
    assert policy.select(found, NOW) == found


@given(SNAPSHOTS, RULES, st.data())
def test_a_larger_policy_keeps_at_least_as_much(snapshots, rules, data):
    rule = data.draw(st.sampled_from(sorted(rules)))
    more = {
        "max_age": rules.get("max_age", DAY) + DAY,
        "protected": {"pin", "env"},
    }.get(rule, 0) or rules[rule] + 1
    assert set(select(snapshots, **rules)) <= set(select(snapshots, **{**rules, rule: more}))


@given(SNAPSHOTS, RULES, st.integers(0, 100))
def test_an_expired_snapshot_is_not_kept_later(snapshots, rules, days):
    policy = RetentionPolicy(**rules)
    now = set(list_ids(policy.select(snapshots, NOW)))
    later = set(list_ids(policy.select(snapshots, NOW + days * DAY)))
    assert later <= now


@given(SNAPSHOTS, RULES)
def test_the_result_does_not_depend_on_the_input_order(snapshots, rules):
    assert select(snapshots, **rules) == select(snapshots[::-1], **rules)
