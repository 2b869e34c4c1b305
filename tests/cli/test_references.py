"""REFs, for every command that takes one."""

from __future__ import annotations

import asyncio
import json

import pytest

import holdfast

URL = "sqlite:///state.db"


async def save_with_ids(session_id: str, *snapshot_ids: str, **tags: str) -> None:
    """Save snapshots with given ids."""
    async with holdfast.open_state_store(URL) as store:
        session = await holdfast.Session.open(store, agent_id="odd", session_id=session_id)
        for number, snapshot_id in enumerate(snapshot_ids):
            session.set("is", snapshot_id)
            await session.commit()
            snapshot = holdfast.SessionSnapshot.from_snapshot(
                session.snapshot(),
                agent_id="odd",
                session_id=session_id,
                tags={"number": str(number), **tags},
            )
            await session.archive.save_snapshot(
                location=session.location,
                snapshot_id=snapshot_id,
                is_latest=False,
                snapshot=snapshot,
            )


@pytest.fixture
def show_snapshot_id(run):
    """Return the snapshot id that a name resolves to."""

    def call(name: str) -> str:
        ran = run("state", "show", name, "--format", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["snapshot_id"]

    return call


@pytest.fixture
def show_values(run):
    """Return the values of the state that a name resolves to."""

    def call(name: str) -> dict:
        ran = run("state", "show", name, "--format", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["state"]["values"]

    return call


def test_unambiguous_prefix(run, sample, show_snapshot_id):
    asyncio.run(save_with_ids("ses_odd", "abc1", "abd2", "zzz"))
    assert show_snapshot_id("ses_odd@abc") == "abc1"
    assert show_snapshot_id("ses_odd@z") == "zzz"
    assert show_snapshot_id("ses_odd@abd2") == "abd2"


def test_ambiguous_prefix_lists_the_candidates(run, sample):
    asyncio.run(save_with_ids("ses_odd", "abc1", "abd2", "zzz"))
    ran = run("state", "show", "ses_odd@ab")
    ran.assert_failed("'ab' is ambiguous in session ses_odd", "abc1, abd2", "use a longer prefix")
    for words in (
        ["state", "restore", "ses_odd", "ab", "--yes"],
        ["state", "fork", "ses_odd", "ses_new", "--at", "ab"],
        ["state", "export", "odd", "--snapshot", "ab", "-o", "-"],
        ["state", "delete", "ses_odd", "--snapshot", "ab", "--yes"],
        ["state", "diff", "ses_odd@ab", "ses_odd"],
        ["replay", "ses_odd@ab"],
    ):
        run(*words).assert_failed("'ab' is ambiguous in session ses_odd", "abc1, abd2")


def test_many_candidates_are_shortened(run, sample):
    asyncio.run(save_with_ids("ses_odd", *(f"ab{number}" for number in range(8))))
    run("state", "show", "ses_odd@ab").assert_failed(
        "8 snapshots start with it: ab0, ", "and 3 more"
    )


def test_whole_id_wins_over_a_longer_one(run, sample, show_snapshot_id):
    asyncio.run(save_with_ids("ses_odd", "ab", "abc"))
    assert show_snapshot_id("ses_odd@ab") == "ab"


def test_digits_are_an_event_unless_they_are_an_id_or_start_with_0(
    run, sample, show_snapshot_id, show_values
):
    asyncio.run(save_with_ids("ses_odd", "0123", "4", "3456"))
    assert show_values("ses_odd@2") == {"is": "0123"}
    assert show_values("ses_odd@3") == {"is": "4"}  # the event, not the prefix of 3456
    assert show_snapshot_id("ses_odd@01") == "0123"
    assert show_snapshot_id("ses_odd@4") == "4"
    run("state", "show", "ses_odd@9").assert_failed("has no event 9; its last event is 4")
    assert show_snapshot_id("ses_odd@0") == "0123"


def test_latest_is_the_last_saved_snapshot(run, sample, show_snapshot_id):
    assert show_snapshot_id("ses_1@latest") == sample.second
    saved = run("state", "save", "ses_1").out.strip()
    assert show_snapshot_id("ses_1@latest") == saved
    ran = run("state", "show", "ses_shared@latest", "--agent", "ann")
    ran.assert_failed("session ses_shared of ann has no snapshot")


def test_tag_is_its_newest_snapshot(run, sample, show_snapshot_id):
    assert show_snapshot_id("ses_1@tag:turn=1") == sample.first
    saved = run("state", "save", "ses_1", "--tag", "turn=1").out.strip()
    assert show_snapshot_id("ses_1@tag:turn=1") == saved
    assert show_snapshot_id("ses_1@tag:turn=2") == sample.second
    run("state", "save", "ses_1", "--tag", "mail=a@b=c")
    assert show_snapshot_id("ses_1@tag:mail=a@b=c")
    run("state", "show", "ses_1@tag:turn=9").assert_failed("has no snapshot with tag turn=9")
    run("state", "show", "ses_1@tag:turn").assert_failed("must be tag:k=v")


def test_session_id_may_contain_an_at_sign(run, sample, show_snapshot_id):
    asyncio.run(save_with_ids("a@b", "x1"))
    assert show_snapshot_id("a@b@x") == "x1"
    assert show_snapshot_id("a@b@latest") == "x1"
    assert run("state", "show", "a@b").code == 0
    asyncio.run(save_with_ids("a@b@latest", "y1"))
    assert run("state", "show", "a@b@latest", "--format", "json").out.count("y1")


@pytest.mark.parametrize("name", ["ses_9", "ses_9@latest", "ses_9@5", "ses_9@tag:a=b"])
def test_missing_session_is_an_error(run, sample, name):
    run("state", "show", name).assert_failed("no session 'ses_9'", "ses_1")
    run("state", "show", "ann@example.com").assert_failed("no session 'ann@example.com'")
    run("state", "show", "ses_1@no such").assert_failed(
        "session ses_1 of research-bot has no snapshot"
    )


def test_diff_of_two_refs(run, sample):
    assert run("state", "diff", "ses_1@tag:turn=1", "ses_1@5").out == "no difference\n"
    assert run("state", "diff", "ses_1@latest", "ses_1").out == "no difference\n"
    assert "plan" in run("state", "diff", "ses_1@tag:turn=1", "ses_1@latest").out
