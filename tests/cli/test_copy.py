"""``holdfast copy``."""

from __future__ import annotations

import asyncio
import json

import pytest

import holdfast
from holdfast.cli import copy
from holdfast.cli.console import err, format_count
from holdfast.cli.names import is_same_store

STORE = "sqlite:///state.db"


async def add_message(
    url: str = STORE, agent: str = "research-bot", session: str = "ses_1"
) -> None:
    async with (
        holdfast.open_state_store(url) as store,
        holdfast.Session.open(store, agent_id=agent, session_id=session) as live,
    ):
        live.add_message("user", f"more for {url}")


def count_missing(source: dict[str, bytes], target: dict[str, bytes], part: str = "") -> str:
    """Return how many entries the target lacks, as the command prints it."""
    keys = [key for key in source if part in key and target.get(key) != source[key]]
    # A segment; some seconds after the last time, also the index entry and the manifest.
    assert len(keys) in (1, 3)
    return format_count(len(keys), "new entry")


@pytest.mark.parametrize("target", ["sqlite:///new.db", "file:new"])
def test_copy_is_incremental(run, sample, entries, target):
    ran = run("copy", STORE, target)
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 sessions, ")
    assert entries(target) == entries()
    assert run("copy", STORE, target).out == "3 sessions, 0 new entries, 0 bytes\n"
    asyncio.run(add_message())
    new = count_missing(entries(), entries(target))
    assert run("copy", STORE, target).out.startswith(f"3 sessions, {new}, ")
    assert entries(target) == entries()
    assert run("state", "diff", "ses_1", "ses_1", "--store", target).code == 0
    assert run("state", "verify", "--store", target).code == 0


def test_copy_one_agent_or_one_session(run, sample):
    assert run("copy", STORE, "file:a", "--agent", "ann").out.startswith("1 session, ")
    assert run("copy", STORE, "file:b", "--session", "ses_shared").out.startswith("2 sessions")
    both = ["--session", "ses_shared", "--agent", "bob"]
    assert run("copy", STORE, "file:c", *both).out.startswith("1 session, ")


def test_failed_copy_is_completed_by_the_next(run, sample, entries, monkeypatch):
    whole = copy.copy_sessions

    async def cut(source, target, **options):
        put_many, left = target.put_many, 4

        async def failing(puts):
            nonlocal left
            left -= 1
            if not left:
                raise holdfast.StateStoreError("the disk is full")
            return await put_many(puts)

        monkeypatch.setattr(target, "put_many", failing)
        return await whole(source, target, **options)

    monkeypatch.setattr(copy, "copy_sessions", cut)
    run("copy", STORE, "sqlite:///new.db").assert_failed("the disk is full")
    assert 0 < len(entries("sqlite:///new.db")) < len(entries())
    monkeypatch.setattr(copy, "copy_sessions", whole)
    assert run("copy", STORE, "sqlite:///new.db").code == 0
    assert entries("sqlite:///new.db") == entries()


def test_diverged_session_is_reported_and_others_are_copied(run, sample, entries):
    assert run("copy", STORE, "file:new").code == 0
    asyncio.run(add_message("file:new"))
    asyncio.run(add_message())
    asyncio.run(add_message(agent="ann", session="ses_shared"))
    new = count_missing(entries(), entries("file:new"), "/ann/")
    ran = run("copy", STORE, "file:new")
    assert ran.code == 1
    assert ran.out.startswith(f"2 sessions, {new}, ")
    assert ran.err.startswith("not copied: session ses_1 of research-bot: ")


def test_copy_shows_progress_on_a_terminal(run, sample, monkeypatch):
    monkeypatch.setattr(err, "_force_terminal", True)
    ran = run("copy", STORE, "file:new", "--agent", "ann")
    assert ran.code == 0
    assert "1/1" in ran.err


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (STORE, STORE),
        (STORE, "sqlite:///{cwd}/state.db"),
        (STORE, "sqlite:///./state.db"),
        (STORE, "sqlite:///link.db"),
        (STORE, "SQLITE:///state.db?timeout=5"),
        (STORE, "sqlite:///state.db?compress=zstd"),
        ("file:kept", "file:kept/"),
        ("file:kept", "file://{cwd}/kept"),
        ("file:kept?prefix=a/", "file:./x/../kept?prefix=a/"),
    ],
)
def test_copy_onto_itself_is_refused(run, sample, entries, tmp_path, source, target):
    (tmp_path / "link.db").symlink_to("state.db")
    assert run("backup", "kept").code == 0
    before = entries(source)
    target = target.format(cwd=tmp_path)
    run("copy", source, target).assert_failed(
        "source and target are the same store", "another target"
    )
    run("copy", target, source).assert_failed("source and target are the same store")
    assert entries(source) == before


def test_copy_within_a_database_under_a_prefix(run, sample):
    assert run("copy", STORE, f"{STORE}?prefix=copy/").code == 0
    assert run("state", "show", "ses_1", "--store", f"{STORE}?prefix=copy/").code == 0


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("redis://localhost/0", "redis://127.0.0.1/0/", True),
        ("redis://localhost/0", "rediss://LOCALHOST/0", True),
        ("redis://localhost/0", "redis://localhost/1", False),
        ("redis://localhost/0", "redis://localhost:7000/0", False),
        ("postgres://ann@db/x", "postgresql://bob:secret@DB/x", True),
        ("postgresql://db/x", "postgresql://db/y", False),
        ("s3://bucket/a", "s3://bucket/a/", True),
        ("s3://bucket/a", "s3://bucket/b", False),
        ("s3://bucket?endpoint=http://a", "s3://bucket?endpoint=http://b", False),
        ("memory:", "memory:", False),
        ("sqlite:///x", "file:x", False),
    ],
)
def test_is_same_store_compares_urls(one, other, is_same):
    assert is_same_store(one, other) is is_same


def test_missing_source_agent_or_session_is_an_error(run, sample, tmp_path):
    run("copy", "sqlite:///nowhere.db", "file:new").assert_failed("no store")
    run("copy", STORE, "file:new", "--agent", "anne").assert_failed("no agent 'anne'", "ann")
    run("copy", STORE, "file:new", "--session", "x").assert_failed("no session 'x'")
    run("copy", "state.db", "file:new").assert_failed("scheme", "did you mean sqlite:///state.db?")
    run("copy", STORE).assert_usage_error("DST_URL")
    assert not (tmp_path / "new").exists()


def test_copy_json(run, sample):
    ran = run("copy", STORE, "file:new", "--format", "json")
    done = json.loads(ran.out)
    assert (ran.code, done["sessions"], done["failed"]) == (0, 3, [])
    assert done["entries"] > 3
    asyncio.run(add_message("file:new"))
    asyncio.run(add_message())
    ran = run("copy", STORE, "file:new", "--format", "json", "--repair")
    assert (ran.code, ran.err) == (1, "")
    (failed,) = json.loads(ran.out)["failed"]
    assert failed.keys() == {"agent_id", "session_id", "scope", "problem"}
    assert (failed["agent_id"], failed["session_id"]) == ("research-bot", "ses_1")
