"""What a shell offers after a Tab, through the completion protocol of the program."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast.cli.completion import MAX_CANDIDATES, find_agents, find_ids
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async

LINE = "import holdfast.console_script as c; c.main([])"


def question(line: str) -> dict[str, str]:
    """The variables by which bash asks what follows a line."""
    return {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def offered_by_program(line: str, **environment: str) -> list[str]:
    """What the program offers in a process of its own, as bash starts it."""
    found = subprocess.run(
        [sys.executable, "-c", LINE],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, **question(line), **environment},
    )
    assert found.stderr == ""
    return found.stdout.split()


@pytest.fixture
def offered(run, monkeypatch):
    """What is offered after a line, by the same protocol in this process."""

    def call(line: str) -> list[str]:
        with monkeypatch.context() as patch:
            for name, value in question(line).items():
                patch.setenv(name, value)
            ran = run()
        assert ran.err == ""
        return ran.out.split()

    return call


def test_the_program_answers_a_shell(world):
    assert offered_by_program("holdfast state list ") == ["ann", "bob", "research-bot"]
    names = offered_by_program("holdfast state restore ses_1 ")
    assert names[:3] == [world.second, world.first, "latest"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("holdfast state list ", ["ann", "bob", "research-bot"]),
        ("holdfast state list res", ["research-bot"]),
        ("holdfast state list --session ses_s", ["ses_shared"]),
        ("holdfast state export ", ["ann", "bob", "research-bot", "ses_1", "ses_shared"]),
        ("holdfast state export ses", ["ses_1", "ses_shared"]),
        ("holdfast state show ses_1", ["ses_1"]),
        ("holdfast state restore ", ["ses_1", "ses_shared"]),
        ("holdfast state fork se", ["ses_1", "ses_shared"]),
        ("holdfast state save ", ["ses_1", "ses_shared"]),
        ("holdfast state prune ses_", ["ses_1", "ses_shared"]),
        ("holdfast state delete ses_", ["ses_1", "ses_shared"]),
        ("holdfast state verify x", []),
        ("holdfast state delete --agent ", ["ann", "bob", "research-bot"]),
        ("holdfast state save --agent ann ", ["ses_shared"]),
        ("holdfast replay ses_1", ["ses_1"]),
        ("holdfast copy sqlite:///state.db file:x --agent b", ["bob"]),
    ],
)
def test_agents_and_sessions_are_offered(offered, world, line, names):
    assert offered(line) == names


@pytest.mark.parametrize(
    "line",
    [
        "holdfast state restore ses_1 ",
        "holdfast state fork ses_1 ses_2 --at ",
        "holdfast state export research-bot --snapshot ",
        "holdfast state export research-bot --session ses_1 --snapshot ",
        "holdfast state delete ses_1 --snapshot ",
    ],
)
def test_snapshots_are_offered_newest_first_with_latest_and_tags(offered, world, line):
    assert offered(line)[:3] == [world.second, world.first, "latest"]


def test_snapshots_and_tags_that_start_with_what_was_typed_are_offered(offered, world):
    line = "holdfast state restore ses_1 "
    assert offered(line + world.second[:-1])[0] == world.second
    assert offered(line + "la") == ["latest"]
    assert offered(line + "tag:t") == ["tag:turn=2", "tag:turn=1"]


def test_snapshots_are_offered_after_an_at_sign(offered, world):
    names = offered("holdfast state show ses_1@")
    assert names[:3] == [f"ses_1@{each}" for each in (world.second, world.first, "latest")]
    assert offered("holdfast state diff ses_1@lat") == ["ses_1@latest"]


def test_the_store_of_the_line_is_asked(offered, run, world):
    assert run("copy", "sqlite:///state.db", "file:other", "--agent", "ann").code == 0
    assert offered("holdfast state list --store file:other ") == ["ann"]


@pytest.mark.parametrize(
    "url", ["sqlite:///nowhere.db", "rubbish", "what://x", "redis://localhost:1/0", "file:/proc/x"]
)
def test_without_a_store_nothing_is_offered_printed_or_made(offered, tmp_path, monkeypatch, url):
    monkeypatch.setenv("HOLDFAST_STORE", url)
    assert offered("holdfast state list ") == []
    assert list(tmp_path.iterdir()) == []


def test_a_store_that_does_not_answer_is_given_up_soon():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        started = time.monotonic()
        assert offered_by_program("holdfast state list ", HOLDFAST_STORE=url) == []
        assert time.monotonic() - started < 40


NAMES = st.text(st.sampled_from("ab-._~0Z9% @ü"), min_size=1, max_size=4)


@given(st.sets(NAMES, min_size=1, max_size=8), NAMES | st.just(""))
def test_all_names_that_start_with_what_was_typed_are_found(names, prefix):
    async def work():
        store = MemoryStateStore()
        for name in names:
            async with holdfast.Session.open(store, agent_id=name, session_id=name) as session:
                session.set("a", 1)
        expected = {name for name in names if name.startswith(prefix)}
        assert set(await find_agents(store, prefix)) == expected
        assert set(await find_ids(store, prefix, None)) == expected

    run_async(work())


def test_a_name_behind_many_others_is_found():
    async def work():
        store = MemoryStateStore()
        for number in range(MAX_CANDIDATES + 20):
            async with holdfast.Session.open(
                store, agent_id="bot", session_id=f"ses_1{number:03}"
            ) as session:
                session.set("a", 1)
        async with holdfast.Session.open(store, agent_id="bot", session_id="ses_2") as session:
            session.set("a", 1)
        assert await find_ids(store, "ses_2", None) == ["ses_2"]

    asyncio.run(work())
