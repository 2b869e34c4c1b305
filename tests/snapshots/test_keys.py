"""The keys of a session, whatever its ids are."""

from __future__ import annotations

import enum

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.snapshots.keys import (
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


def test_the_keys_are_as_the_design_has_them():
    location = SnapshotLocation("ses_abc123", scope_id="research-bot")
    place = "sessions/ses_abc123/scopes/agent/research-bot/"
    assert location.prefix == place
    assert location.manifest_key == f"{place}snapshots/manifest.json"
    assert location.latest_key == f"{place}snapshots/snapshot_latest.json"
    key = location.snapshot_key("019a8b5e-6f00-7000-8000-000000000000")
    assert key == (
        f"{place}snapshots/immutable_history/snapshot_019a8b5e-6f00-7000-8000-000000000000.json"
    )
    assert location.is_history_key(key)
    assert not location.is_history_key(f"{key}~")
    together = SnapshotLocation("s", "multi_agent", "team")
    assert together.prefix == "sessions/s/scopes/multi_agent/team/"
    assert deletion_mark_key("ses_abc123") == "sessions/ses_abc123/deleted.json"


@given(LOCATIONS)
def test_no_id_leaves_its_place(location):
    place = location.prefix
    assert place.count("/") == 5
    assert not {"", ".", ".."} & set(place.rstrip("/").split("/"))
    assert place.isascii()
    validate_key(place + "snapshots/immutable_history/snapshot_" + "x" * 128 + ".json")
    validate_key(index_key(location, 0))


@pytest.mark.parametrize("name", [*HOSTILE, "x" * 256, "\U0010ffff" * 256])
def test_a_hostile_id_comes_back_from_its_key(name):
    location = SnapshotLocation(name, "agent", name)
    assert parse_location(location.manifest_key) == location
    assert parse_index_key(index_key(location, 12)) == (location, 12)
    assert unquote_id(quote_id(name)) == name
    assert deletion_mark_key(name).count("/") == 2
    assert agent_index_prefix(name).count("/") == 3


@given(IDS, IDS)
def test_different_ids_have_different_places(one, other):
    assert (session_prefix(one) == session_prefix(other)) == (one == other)


@given(LOCATIONS, LOCATIONS)
def test_no_place_is_inside_another(one, other):
    assume(one != other)
    assert not one.prefix.startswith(other.prefix)


@given(LOCATIONS, st.integers(0, 10**17))
def test_an_entry_of_the_index_tells_what_it_is_of(location, started):
    key = index_key(location, started)
    assert key.startswith(agent_index_prefix(location.scope_id))
    assert parse_index_key(key) == (location, started)


def test_the_newest_session_comes_first_in_the_index():
    times = (("old", 5), ("new", 90))
    keys = [index_key(SnapshotLocation(name, scope_id="a"), at) for name, at in times]
    assert sorted(keys) == keys[::-1]


def test_a_session_of_one_agent_and_one_of_several_have_entries_of_their_own():
    keys = {index_key(SnapshotLocation("s", scope, "a"), 7) for scope in SCOPES}
    assert len(keys) == 2
    assert {parse_index_key(key)[0].scope for key in keys} == set(SCOPES)


@given(LOCATIONS)
def test_every_key_of_a_session_tells_where_it_belongs(location):
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
def test_what_is_no_entry_of_the_index_is_none(key):
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
def test_what_is_no_key_of_a_session_is_located_nowhere(key):
    assert parse_location(key) is None


class Name(str, enum.Enum):
    BOT = "research-bot"
    AGENT = "agent"


def test_an_enum_of_text_is_its_text():
    location = SnapshotLocation(Name.BOT, Name.AGENT, Name.BOT)
    assert location == SnapshotLocation("research-bot", "agent", "research-bot")
    assert location.prefix == "sessions/research-bot/scopes/agent/research-bot/"
    assert type(location.scope_id) is str
    assert type(validate_snapshot_id(Name.BOT)) is str


@pytest.mark.parametrize("bad", ["", "x" * 257, "\ud800", 7, None])
def test_an_id_that_cannot_be_kept_is_refused(bad):
    for arguments in ((bad, "agent", "a"), ("s", "agent", bad)):
        with pytest.raises((TypeError, ValueError), match="_id"):
            SnapshotLocation(*arguments)


def test_another_scope_is_refused():
    with pytest.raises(ValueError, match="agent, multi_agent"):
        SnapshotLocation("s", "galaxy", "a")


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "é", "x" * 129, "x\n", 7, None])
def test_a_snapshot_id_that_is_no_part_of_a_key_is_refused(bad):
    with pytest.raises((TypeError, ValueError), match="snapshot_id"):
        SnapshotLocation("s", scope_id="a").snapshot(bad)


def test_a_snapshot_id_may_be_ones_own():
    assert validate_snapshot_id("before-Upgrade_7") == "before-Upgrade_7"


@pytest.mark.parametrize("bad", [0, -1, True, 1.0, "1", None])
def test_a_limit_that_is_no_number_from_1_is_refused(bad):
    with pytest.raises(ValueError, match="limit is a number from 1"):
        validate_limit(bad)


def test_a_limit_is_a_number_from_1():
    assert validate_limit(1) == 1
