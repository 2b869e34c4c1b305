"""Shell completion, through the protocol that bash uses."""

from __future__ import annotations

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
from support.async_tests import async_test, run_async

LINE = "import holdfast.console_script as c; c.main([])"


def make_completion_variables(line: str) -> dict[str, str]:
    """Return the variables that bash sets to complete a line."""
    return {
        "_HOLDFAST_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(line.split(" ")) - 1),
    }


def complete_in_process(line: str, **environment: str) -> list[str]:
    """Complete a line in a new process, as bash does."""
    found = subprocess.run(
        [sys.executable, "-c", LINE],
        capture_output=True,
        check=False,
        text=True,
        env={**os.environ, **make_completion_variables(line), **environment},
    )
    assert found.stderr == ""
    return found.stdout.split()


@pytest.fixture
def complete(run, monkeypatch):
    """Complete a line in this process, by the same protocol."""

    def call(line: str) -> list[str]:
        with monkeypatch.context() as patch:
            for name, value in make_completion_variables(line).items():
                patch.setenv(name, value)
            ran = run()
        assert ran.err == ""
        return ran.out.split()

    return call


def test_program_answers_bash(sample):
    assert complete_in_process("holdfast state list ") == ["ann", "bob", "research-bot"]
    names = complete_in_process("holdfast state restore ses_1 ")
    assert names[:3] == [sample.second, sample.first, "latest"]


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("holdfast st", ["state"]),
        ("holdfast state ex", ["export"]),
        ("holdfast state list --format ", ["table", "json"]),
        ("holdfast copy --re", ["--repair"]),
        ("holdfast state import x --as co", ["codex"]),
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
def test_complete_commands_options_agents_and_sessions(complete, sample, line, names):
    assert complete(line) == names


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
def test_complete_snapshots_newest_first_then_latest_and_tags(complete, sample, line):
    assert complete(line)[:3] == [sample.second, sample.first, "latest"]


def test_complete_snapshots_and_tags_by_prefix(complete, sample):
    line = "holdfast state restore ses_1 "
    assert complete(line + sample.second[:-1])[0] == sample.second
    assert complete(line + "la") == ["latest"]
    assert complete(line + "tag:t") == ["tag:turn=2", "tag:turn=1"]


def test_complete_snapshots_after_an_at_sign(complete, sample):
    names = complete("holdfast state show ses_1@")
    assert names[:3] == [f"ses_1@{each}" for each in (sample.second, sample.first, "latest")]
    assert complete("holdfast state diff ses_1@lat") == ["ses_1@latest"]


def test_completion_uses_the_store_option(complete, run, sample):
    assert run("copy", "sqlite:///state.db", "file:other", "--agent", "ann").code == 0
    assert complete("holdfast state list --store file:other ") == ["ann"]


@pytest.mark.parametrize(
    "url", ["sqlite:///nowhere.db", "rubbish", "what://x", "redis://localhost:1/0", "file:/proc/x"]
)
def test_completion_without_a_store_is_silent(complete, tmp_path, monkeypatch, url):
    monkeypatch.setenv("HOLDFAST_STORE", url)
    assert complete("holdfast state list ") == []
    assert list(tmp_path.iterdir()) == []


def test_completion_times_out():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        started = time.monotonic()
        assert complete_in_process("holdfast state list ", HOLDFAST_STORE=url) == []
        assert time.monotonic() - started < 40


NAMES = st.text(st.sampled_from("ab-._~0Z9% @ü"), min_size=1, max_size=4)


@given(st.sets(NAMES, min_size=1, max_size=8), NAMES | st.just(""))
def test_find_agents_returns_all_with_the_prefix(names, prefix):
    async def work():
        store = MemoryStateStore()
        for name in names:
            async with holdfast.Session.open(store, agent_id=name, session_id=name) as session:
                session.set("a", 1)
        expected = {name for name in names if name.startswith(prefix)}
        assert set(await find_agents(store, prefix)) == expected
        assert set(await find_ids(store, prefix, None)) == expected

    run_async(work())


@async_test
async def test_find_ids_looks_beyond_the_first_page():
    store = MemoryStateStore()
    for number in range(MAX_CANDIDATES + 20):
        async with holdfast.Session.open(
            store, agent_id="bot", session_id=f"ses_1{number:03}"
        ) as session:
            session.set("a", 1)
    async with holdfast.Session.open(store, agent_id="bot", session_id="ses_2") as session:
        session.set("a", 1)
    assert await find_ids(store, "ses_2", None) == ["ses_2"]
