"""Encoding and decoding manifests."""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import IntegrityError, InvalidDocumentError
from holdfast.log.event_log import Position
from holdfast.snapshots import SnapshotManifest
from holdfast.snapshots.envelope import encode_envelope
from holdfast.snapshots.manifest import KNOWN_FIELDS, decode_manifest
from support.observed_store import HERE, flip_bit, try_call
from support.sample_values import text

KEY = HERE.manifest_key
TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30), timezones=st.just(dt.UTC))
FULL = SnapshotManifest(
    incarnation="1f3a9c2e",
    started_at=dt.datetime(2026, 11, 15, 9, 30, 0, 1, dt.UTC),
    active_at=dt.datetime(2026, 11, 15, 23, tzinfo=dt.UTC),
    updated_at=dt.datetime(2026, 11, 16, tzinfo=dt.UTC),
    log_start=Position(31, "ab" * 32),
    extra={"owner": "us", "more": [1, {"a": None}]},
)


@given(
    st.builds(
        SnapshotManifest,
        started_at=st.none() | TIMES,
        updated_at=st.none() | TIMES,
        log_start=st.builds(Position, st.integers(0, 10**12), text),
        extra=st.dictionaries(
            text.filter(lambda name: name not in KNOWN_FIELDS), text | st.integers(0, 9)
        ),
    )
)
def test_decode_returns_the_encoded_manifest(given_):
    assert decode_manifest(KEY, given_.encode()) == given_


def test_the_log_of_an_empty_manifest_starts_at_zero():
    empty = SnapshotManifest()
    assert empty.log_start == Position()
    assert decode_manifest(KEY, empty.encode()) == empty


def test_the_stored_form_is_plain_json():
    content = json.loads(FULL.encode())["content"]
    assert content == {
        "owner": "us",
        "more": [1, {"a": None}],
        "schema_version": 1,
        "incarnation": "1f3a9c2e",
        "started_at": "2026-11-15T09:30:00.000001Z",
        "updated_at": "2026-11-16T00:00:00.000000Z",
        "active_at": "2026-11-15T23:00:00.000000Z",
        "floor": {"seq": 31, "hash": "ab" * 32},
    }


def test_extra_fields_cannot_replace_known_ones():
    posing = SnapshotManifest(extra={"floor": {"seq": 99, "hash": ""}, "schema_version": 7})
    assert decode_manifest(KEY, posing.encode()) == SnapshotManifest()


def test_a_newer_schema_is_rejected():
    data = SnapshotManifest(schema_version=2).encode()
    with pytest.raises(InvalidDocumentError, match=r"newer Holdfast \(schema 2, this"):
        decode_manifest(KEY, data)


def test_any_flipped_bit_is_detected_or_changes_nothing():
    data = FULL.encode()
    for bit in range(len(data) * 8):
        found, refusal = try_call(decode_manifest, KEY, flip_bit(data, bit))
        assert found == FULL or KEY in refusal


CONTENT = json.loads(FULL.encode())["content"]


@pytest.mark.parametrize("name", sorted(KNOWN_FIELDS - {"pruning", "creating", "blob_sweeps"}))
def test_a_missing_field_is_damage(name):
    tree = {key: value for key, value in CONTENT.items() if key != name}
    with pytest.raises(IntegrityError, match=f"{KEY} is damaged: field '{name}' is missing"):
        decode_manifest(KEY, encode_envelope(tree))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema_version", "one"),
        ("schema_version", None),
        ("incarnation", "../other"),
        ("incarnation", 7),
        ("active_at", "today"),
        ("started_at", "yesterday"),
        ("started_at", 7),
        ("updated_at", "9999-12-31T23:59:59-01:00"),
        ("blob_sweeps", -1),
        ("blob_sweeps", "1"),
        ("floor", None),
        ("floor", []),
        ("floor", {"seq": 3}),
    ],
)
def test_an_invalid_field_is_damage(name, value):
    with pytest.raises(IntegrityError, match=f"{KEY} is damaged"):
        decode_manifest(KEY, encode_envelope({**CONTENT, name: value}))


def test_a_claim_is_a_manifest_without_a_session():
    claim = SnapshotManifest(creating="0123abcd")
    assert claim.is_claim
    assert claim.live_incarnation == "0123abcd"
    # Written by an older version, which does not know the field.
    created = SnapshotManifest(
        creating="0123abcd", incarnation="4567cdef", started_at=dt.datetime.now(dt.UTC)
    )
    assert not created.is_claim
    assert created.live_incarnation == "4567cdef"
