"""Encoding and decoding the records of snapshots."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import IntegrityError, InvalidDocumentError
from holdfast.log.event_log import Position
from holdfast.snapshots import SnapshotInfo, SnapshotLocation
from holdfast.snapshots.envelope import encode_envelope
from holdfast.snapshots.records import decode_record, validate_tags
from support.observed_store import HERE, flip_bit, try_call
from support.sample_values import text

ID = "019a8b5e-6f00-7000-8000-000000000000"
INFO = SnapshotInfo(
    snapshot_id=ID,
    parent_id="before",
    agent_id=HERE.scope_id,
    session_id=HERE.session_id,
    scope=HERE.scope,
    created_at=dt.datetime(2026, 11, 15, 9, 30, 0, 123456, dt.UTC),
    tags={"env": "production"},
    status="running",
    message_count=12,
    size_bytes=3456,
    seq=31,
    hash="ab" * 32,
    keyframe=20,
    unfinished=True,
)
KEY = HERE.snapshot_key(ID)
PLAIN = SnapshotInfo(
    snapshot_id="x",
    parent_id=None,
    agent_id=HERE.scope_id,
    session_id=HERE.session_id,
    scope=HERE.scope,
    created_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
)

TIMES = st.datetimes(
    dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.timezones() | st.just(dt.UTC)
)
INFOS = st.builds(
    SnapshotInfo,
    snapshot_id=st.text("abcXYZ019-_", min_size=1, max_size=128),
    parent_id=st.none() | text,
    agent_id=st.just(HERE.scope_id) | text,
    session_id=st.just(HERE.session_id) | text,
    scope=st.just(HERE.scope),
    created_at=TIMES,
    tags=st.dictionaries(text, text, max_size=3),
    status=text,
    message_count=st.integers(0, 2**53),
    size_bytes=st.integers(0, 2**53),
    seq=st.integers(0, 10**12),
    hash=text,
    keyframe=st.integers(0, 10**12),
    unfinished=st.booleans(),
    source_environment=st.none() | text,
    extra=st.dictionaries(text, st.none() | text | st.lists(st.integers(0, 9)), max_size=2),
    saved_at=st.none() | st.datetimes(timezones=st.just(dt.UTC)),
)


@given(INFOS)
def test_decode_returns_the_encoded_record(info):
    key = HERE.snapshot_key(info.snapshot_id)
    again = decode_record(key, info.encode(HERE), HERE)
    # Compared in UTC: an ambiguous local time equals no time in another zone.
    assert again == replace(info, created_at=info.created_at.astimezone(dt.UTC))
    assert again.created_at.tzinfo is dt.UTC


def test_a_record_has_a_position():
    assert INFO.position == Position(31, "ab" * 32)
    assert INFO.event_log_count == 31
    assert PLAIN.position == Position()


def test_a_record_takes_a_few_hundred_bytes():
    assert len(INFO.encode(HERE)) < 500
    assert len(PLAIN.encode(HERE)) < 350


def test_ids_equal_to_the_location_are_not_stored():
    assert b"research-bot" not in INFO.encode(HERE)
    elsewhere = SnapshotLocation("copy", "multi_agent", "team")
    data = INFO.encode(elsewhere)
    assert json.loads(data)["content"]["agent_id"] == "research-bot"
    again = decode_record(elsewhere.snapshot_key(ID), data, elsewhere)
    assert again == replace(INFO, scope="multi_agent")


def test_empty_fields_are_not_stored():
    content = json.loads(PLAIN.encode(HERE))["content"]
    assert not {"tags", "unfinished", "agent_id", "session_id"} & content.keys()


def test_a_time_in_another_zone_is_stored_in_utc():
    there = dt.datetime(2026, 7, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    again = decode_record(KEY, replace(INFO, created_at=there).encode(HERE), HERE)
    assert again.created_at == there
    assert again.created_at.hour == 10


def test_the_latest_record_can_have_any_id():
    assert decode_record(HERE.latest_key, INFO.encode(HERE), HERE) == INFO


def test_a_record_under_the_key_of_another_is_damage():
    other = HERE.snapshot_key("another")
    with pytest.raises(IntegrityError, match=f"{other} is damaged: it belongs to snapshot {ID}"):
        decode_record(other, INFO.encode(HERE), HERE)


def test_any_flipped_bit_is_detected_or_changes_nothing():
    data = INFO.encode(HERE)
    for bit in range(len(data) * 8):
        found, refusal = try_call(decode_record, KEY, flip_bit(data, bit), HERE)
        assert found == INFO or KEY in refusal


FIELDS = json.loads(INFO.encode(HERE))["content"]
NEEDED = [name for name in FIELDS if name not in ("tags", "unfinished")]


@pytest.mark.parametrize("name", NEEDED)
def test_a_missing_field_is_damage(name):
    tree = {key: value for key, value in FIELDS.items() if key != name}
    with pytest.raises(IntegrityError, match=f"snapshot record {KEY} is damaged: .*{name}"):
        decode_record(KEY, encode_envelope(tree), HERE)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("created_at", "yesterday"),
        ("created_at", "2026-01-01T00:00:00"),
        ("created_at", "0001-01-01T00:00:00+01:00"),
        ("created_at", None),
        ("snapshot_id", 7),
        ("snapshot_id", None),
        ("snapshot_id", ""),
        ("snapshot_id", "../../elsewhere"),
    ],
)
def test_an_invalid_field_is_damage(name, value):
    with pytest.raises(IntegrityError, match=f"{KEY} is damaged"):
        decode_record(KEY, encode_envelope({**FIELDS, name: value}), HERE)


def test_unknown_fields_are_ignored():
    assert decode_record(KEY, encode_envelope({**FIELDS, "colour": "red"}), HERE) == INFO


def test_a_newer_format_is_rejected():
    data = INFO.encode(HERE).replace(b'"format":1', b'"format":2', 1)
    with pytest.raises(InvalidDocumentError, match="newer Holdfast"):
        decode_record(KEY, data, HERE)


# -------------------------------------------------------------------------------------- tags


class Label(str):
    __slots__ = ()


def test_tags_are_copied_as_plain_str():
    given_ = {"env": "production", Label("kind"): Label("nightly")}
    tags = validate_tags(given_)
    assert tags == {"env": "production", "kind": "nightly"}
    assert {type(each) for item in tags.items() for each in item} == {str}
    given_["env"] = "changed"
    assert tags["env"] == "production"
    assert validate_tags(None) == {}


@pytest.mark.parametrize("bad", ["env=production", ["env"], 7, {"env"}])
def test_tags_must_be_a_mapping(bad):
    with pytest.raises(TypeError, match="tags must be a mapping such as"):
        validate_tags(bad)


@pytest.mark.parametrize("bad", [{"n": 1}, {1: "n"}, {"n": None}, {"n": b"x"}])
def test_tags_must_be_str(bad):
    with pytest.raises(TypeError, match="tag names and values must be str"):
        validate_tags(bad)


@pytest.mark.parametrize("bad", [{"\ud800": "x"}, {"x": "\ud800"}])
def test_a_tag_with_a_lone_surrogate_is_rejected(bad):
    with pytest.raises(ValueError, match="lone surrogate"):
        validate_tags(bad)
