"""The keys of a session, whatever its ids are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.snapshots.layout import (
    SnapshotLocation,
    agent_place,
    index_key,
    indexed,
    session_place,
)
from holdfast.stores.gate import checked_key

IDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256)


def test_the_keys_are_as_the_design_has_them():
    location = SnapshotLocation("ses_abc123", scope_id="research-bot")
    place = "sessions/ses_abc123/scopes/agent/research-bot/"
    assert location.place == place
    assert location.manifest == f"{place}snapshots/manifest.json"
    assert location.latest == f"{place}snapshots/snapshot_latest.json"
    key = location.snapshot("019a8b5e-6f00-7000-8000-000000000000")
    assert key == (
        f"{place}snapshots/immutable_history/snapshot_019a8b5e-6f00-7000-8000-000000000000.json"
    )
    assert location.snapshot_id(key) == "019a8b5e-6f00-7000-8000-000000000000"
    together = SnapshotLocation("s", "multi_agent", "team")
    assert together.place == "sessions/s/scopes/multi_agent/team/"


@given(IDS, IDS)
def test_no_id_leaves_its_place(session, agent):
    place = SnapshotLocation(session, scope_id=agent).place
    assert place.count("/") == 5
    assert not {"", ".", ".."} & set(place.rstrip("/").split("/"))
    checked_key(place + "snapshots/immutable_history/snapshot_" + "x" * 128 + ".json")


@given(IDS, IDS)
def test_different_ids_have_different_places(one, other):
    assert (session_place(one) == session_place(other)) == (one == other)


@given(IDS, IDS, st.integers(0, 10**14))
def test_an_entry_of_the_index_tells_what_it_is_of(agent, session, started):
    key = index_key(agent, session, started)
    assert key.startswith(agent_place(agent))
    assert indexed(key) == (agent, session, started)


def test_the_newest_session_comes_first_in_the_index():
    keys = [index_key("a", name, started) for name, started in (("old", 5), ("new", 90))]
    assert sorted(keys) == keys[::-1]
    assert indexed("agents/a/sessions/other") is None
    assert indexed("elsewhere") is None


@pytest.mark.parametrize("bad", ["", "x" * 257, "\ud800", 7, None])
def test_an_id_that_cannot_be_kept_is_refused(bad):
    for arguments in ((bad, "agent", "a"), ("s", "agent", bad)):
        with pytest.raises((TypeError, ValueError), match="_id"):
            SnapshotLocation(*arguments)


def test_another_scope_is_refused():
    with pytest.raises(ValueError, match="agent, multi_agent"):
        SnapshotLocation("s", "galaxy", "a")


@pytest.mark.parametrize("bad", ["", "../x", "a/b", "é", "x" * 129, 7])
def test_a_snapshot_id_that_is_no_part_of_a_key_is_refused(bad):
    with pytest.raises((TypeError, ValueError), match="snapshot_id"):
        SnapshotLocation("s", scope_id="a").snapshot(bad)
