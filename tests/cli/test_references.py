"""What a REF means, for every verb that takes one."""

from __future__ import annotations

import asyncio
import json

import pytest

import holdfast

URL = "sqlite:///state.db"


async def save_as(session_id: str, *snapshot_ids: str, **tags: str) -> None:
    """Save snapshots under ids of their own."""
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
def shown(run):
    """The snapshot that a name leads to."""

    def call(name: str) -> str:
        ran = run("state", "show", name, "--format", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["snapshot_id"]

    return call


@pytest.fixture
def values(run):
    """The values of the state that a name leads to."""

    def call(name: str) -> dict:
        ran = run("state", "show", name, "--format", "json")
        assert ran.code == 0, ran.err
        return json.loads(ran.out)["state"]["values"]

    return call


def test_an_unambiguous_prefix_means_its_snapshot(run, world, shown):
    asyncio.run(save_as("ses_odd", "abc1", "abd2", "zzz"))
    assert shown("ses_odd@abc") == "abc1"
    assert shown("ses_odd@z") == "zzz"
    assert shown("ses_odd@abd2") == "abd2"


def test_an_ambiguous_prefix_is_an_error_with_the_candidates(run, world):
    asyncio.run(save_as("ses_odd", "abc1", "abd2", "zzz"))
    ran = run("state", "show", "ses_odd@ab")
    ran.failed("'ab' is ambiguous in session ses_odd", "abc1, abd2", "type more characters")
    for words in (
        ["state", "restore", "ses_odd", "ab", "--yes"],
        ["state", "fork", "ses_odd", "ses_new", "--at", "ab"],
        ["state", "export", "odd", "--snapshot", "ab", "-o", "-"],
        ["state", "delete", "ses_odd", "--snapshot", "ab", "--yes"],
        ["state", "diff", "ses_odd@ab", "ses_odd"],
        ["replay", "ses_odd@ab"],
    ):
        run(*words).failed("'ab' is ambiguous in session ses_odd", "abc1, abd2")


def test_of_many_candidates_some_are_listed(run, world):
    asyncio.run(save_as("ses_odd", *(f"ab{number}" for number in range(8))))
    run("state", "show", "ses_odd@ab").failed("8 snapshots start with it: ab0, ", "and 3 more")


def test_a_whole_id_is_meant_before_a_longer_one(run, world, shown):
    asyncio.run(save_as("ses_odd", "ab", "abc"))
    assert shown("ses_odd@ab") == "ab"


def test_digits_are_an_event_unless_they_are_a_whole_id_or_start_with_0(run, world, shown, values):
    asyncio.run(save_as("ses_odd", "0123", "4", "3456"))
    assert values("ses_odd@2") == {"is": "0123"}
    assert values("ses_odd@3") == {"is": "4"}  # the event, not the prefix of 3456
    assert shown("ses_odd@01") == "0123"
    assert shown("ses_odd@4") == "4"
    run("state", "show", "ses_odd@9").failed("has no event 9; its last event is 4")
    assert shown("ses_odd@0") == "0123"


def test_latest_is_the_snapshot_that_was_saved_last(run, world, shown):
    assert shown("ses_1@latest") == world.second
    saved = run("state", "save", "ses_1").out.strip()
    assert shown("ses_1@latest") == saved
    ran = run("state", "show", "ses_shared@latest", "--agent", "ann")
    ran.failed("session ses_shared of ann has no snapshot")


def test_a_tag_means_the_newest_snapshot_that_has_it(run, world, shown):
    assert shown("ses_1@tag:turn=1") == world.first
    saved = run("state", "save", "ses_1", "--tag", "turn=1").out.strip()
    assert shown("ses_1@tag:turn=1") == saved
    assert shown("ses_1@tag:turn=2") == world.second
    run("state", "save", "ses_1", "--tag", "mail=a@b=c")
    assert shown("ses_1@tag:mail=a@b=c")
    run("state", "show", "ses_1@tag:turn=9").failed("has no snapshot with the tag turn=9")
    run("state", "show", "ses_1@tag:turn").failed("must be of the form tag:k=v")


def test_a_session_whose_id_has_an_at_sign_is_found(run, world, shown):
    asyncio.run(save_as("a@b", "x1"))
    assert shown("a@b@x") == "x1"
    assert shown("a@b@latest") == "x1"
    assert run("state", "show", "a@b").code == 0
    asyncio.run(save_as("a@b@latest", "y1"))
    assert run("state", "show", "a@b@latest", "--format", "json").out.count("y1")


@pytest.mark.parametrize("name", ["ses_9", "ses_9@latest", "ses_9@5", "ses_9@tag:a=b"])
def test_a_session_that_is_not_there_is_named(run, world, name):
    run("state", "show", name).failed("there is no session 'ses_9'", "ses_1")
    run("state", "show", "ann@example.com").failed("there is no session 'ann@example.com'")
    run("state", "show", "ses_1@no such").failed("session ses_1 of research-bot has no snapshot")


def test_two_refs_are_compared(run, world):
    assert run("state", "diff", "ses_1@tag:turn=1", "ses_1@5").out == "no difference\n"
    assert run("state", "diff", "ses_1@latest", "ses_1").out == "no difference\n"
    assert "plan" in run("state", "diff", "ses_1@tag:turn=1", "ses_1@latest").out
