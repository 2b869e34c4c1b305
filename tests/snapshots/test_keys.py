"""The keys of a session, for any ids."""

from __future__ import annotations

import datetime as dt
import enum

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.snapshots.keys import (
    EPOCH,
    MAX_ID_LENGTH,
    SCOPES,
    SnapshotLocation,
    agent_index_prefix,
    deletion_mark_key,
    index_key,
    parse_index_key,
    parse_location,
    quote_id,
    session_prefix,
    unquote_id,
    validate_limit,
    validate_snapshot_id,
)
from holdfast.stores.validation import validate_key

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=MAX_ID_LENGTH)
LOCATIONS = st.builds(SnapshotLocation, IDS, st.sampled_from(SCOPES), IDS)
HOSTILE = [".", "..", "...", "/", "../..", "a/b", "a\\b", "%2F", "%", "\x00", "\n", " ", "é", "🦀"]


def test_keys_have_the_documented_form():
    location = SnapshotLocation("ses_abc123", scope_id="research-bot")
    prefix = "sessions/ses_abc123/scopes/agent/research-bot/"
    assert location.prefix == prefix
    assert location.manifest_key == f"{prefix}snapshots/manifest.json"
    assert location.latest_key == f"{prefix}snapshots/snapshot_latest.json"
    key = location.snapshot_key("019a8b5e-6f00-7000-8000-000000000000")
    assert key == (
        f"{prefix}snapshots/immutable_history/snapshot_019a8b5e-6f00-7000-8000-000000000000.json"
    )
    assert location.is_history_key(key)
    assert not location.is_history_key(f"{key}~")
    together = SnapshotLocation("s", "multi_agent", "team")
    assert together.prefix == "sessions/s/scopes/multi_agent/team/"
    assert deletion_mark_key("ses_abc123") == "sessions/ses_abc123/deleted.json"


@given(LOCATIONS)
def test_no_id_escapes_its_prefix(location):
    prefix = location.prefix
    assert prefix.count("/") == 5
    assert not {"", ".", ".."} & set(prefix.rstrip("/").split("/"))
    assert prefix.isascii()
    validate_key(prefix + "snapshots/immutable_history/snapshot_" + "x" * 128 + ".json")
    validate_key(index_key(location, EPOCH))


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 256, "\U0010ffff" * 256])
def test_hostile_ids_are_parsed_back_from_keys(name):
    location = SnapshotLocation(name, "agent", name)
    assert parse_location(location.manifest_key) == location
    assert parse_index_key(index_key(location, EPOCH)) == (location, EPOCH)
    assert unquote_id(quote_id(name)) == name
    assert deletion_mark_key(name).count("/") == 2
    assert agent_index_prefix(name).count("/") == 3


@given(IDS, IDS)
def test_different_ids_have_different_prefixes(one, other):
    assert (session_prefix(one) == session_prefix(other)) == (one == other)


@given(LOCATIONS, LOCATIONS)
def test_no_prefix_starts_with_another(one, other):
    assume(one != other)
    assert not one.prefix.startswith(other.prefix)


@given(LOCATIONS, st.datetimes(dt.datetime(1970, 1, 1), timezones=st.just(dt.UTC)))
def test_an_index_key_is_parsed_back(location, active_at):
    key = index_key(location, active_at)
    assert key.startswith(agent_index_prefix(location.scope_id))
    assert parse_index_key(key) == (location, active_at)


def test_index_keys_sort_newest_first():
    times = {"old": EPOCH, "new": EPOCH + dt.timedelta(days=1)}
    keys = [index_key(SnapshotLocation(name, scope_id="a"), at) for name, at in times.items()]
    assert sorted(keys) == keys[::-1]


def test_scopes_have_separate_index_keys():
    keys = {index_key(SnapshotLocation("s", scope, "a"), EPOCH) for scope in SCOPES}
    assert len(keys) == 2
    assert {parse_index_key(key)[0].scope for key in keys} == set(SCOPES)


@given(LOCATIONS)
def test_every_key_of_a_session_is_parsed_to_its_location(location):
    log = f"{location.prefix}log/00000000/000000000001.json"
    for key in (location.manifest_key, location.latest_key, location.snapshot_key("x"), log):
        assert parse_location(key) == location


@pytest.mark.parametrize(
    "key",
    [
        "",
        "elsewhere",
        "agents/a/sessions/other",
        "agents/a/sessions/999999999999999995_s",
        "agents/a/sessions/999999999999999995_s/galaxy",
        "agents/a/sessions/999999999999999995_s/agent/more",
        "agents/a/sessions/99_s/agent",
        "agents/a/sessions/999999999999999995_/agent",
        "agents//sessions/999999999999999995_s/agent",
        f"agents/a/sessions/999999999999999995_{'s' * 257}/agent",
    ],
)
def test_other_keys_are_not_index_keys(key):
    assert parse_index_key(key) is None


@pytest.mark.parametrize(
    "key",
    [
        "",
        "agents/a/sessions/999999999999999995_s/agent",
        "sessions/s/deleted.json",
        "sessions/s/scopes/galaxy/a/snapshots/manifest.json",
        "sessions/s/rooms/agent/a/snapshots/manifest.json",
        "sessions/s/scopes/agent/a",
        "places/s/scopes/agent/a/snapshots/manifest.json",
        "sessions//scopes/agent/a/snapshots/manifest.json",
        "sessions/s/scopes/agent//snapshots/manifest.json",
        f"sessions/{'s' * 257}/scopes/agent/a/snapshots/manifest.json",
    ],
)
def test_other_keys_have_no_location(key):
    assert parse_location(key) is None


class Name(str, enum.Enum):
    BOT = "research-bot"
    AGENT = "agent"


def test_a_str_enum_is_stored_as_str():
    location = SnapshotLocation(Name.BOT, Name.AGENT, Name.BOT)
    assert location == SnapshotLocation("research-bot", "agent", "research-bot")
    assert location.prefix == "sessions/research-bot/scopes/agent/research-bot/"
    assert type(location.scope_id) is str
    assert type(validate_snapshot_id(Name.BOT)) is str


@pytest.mark.parametrize("bad", ["", "x" * 257, "\ud800", 7, None])
def test_invalid_id_is_rejected(bad):
    for arguments in ((bad, "agent", "a"), ("s", "agent", bad)):
        with pytest.raises((TypeError, ValueError), match="_id"):
            SnapshotLocation(*arguments)


def test_unknown_scope_is_rejected():
    with pytest.raises(ValueError, match="agent, multi_agent"):
        SnapshotLocation("s", "galaxy", "a")


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "é", "x" * 129, "x\n", 7, None])
def test_invalid_snapshot_id_is_rejected(bad):
    with pytest.raises((TypeError, ValueError), match="snapshot_id"):
        SnapshotLocation("s", scope_id="a").snapshot_key(bad)


def test_a_snapshot_id_can_be_any_name():
    assert validate_snapshot_id("before-Upgrade_7") == "before-Upgrade_7"


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "1", None])
def test_invalid_limit_is_rejected(bad):
    with pytest.raises(ValueError, match="limit must be a positive int"):
        validate_limit(bad)


def test_a_positive_limit_is_accepted():
    assert validate_limit(1) == 1
