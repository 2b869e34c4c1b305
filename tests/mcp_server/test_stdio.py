"""``holdfast mcp`` as a program on stdin and stdout."""

from __future__ import annotations

import asyncio
import random
import signal
import threading

import pytest

import holdfast
from holdfast.mcp_server.stdio import serve_stdio
from support.async_tests import async_test, run_async
from support.mcp_clients import Agent, connect, connect_program, start_raw


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/state.db"


@async_test
async def test_a_program_and_another_server_with_real_clients(url):
    async with (
        holdfast.open_state_store(url) as store,
        connect(store) as one,
        connect_program(url, "--agent", "coder") as two,
    ):
        first, second = Agent(one), Agent(two)
        saved = await first.call(
            "save_checkpoint", agent="coder", session="s", values={"plan": 1}, expected_seq=0
        )
        assert (await second.call("list_checkpoints", agent="coder"))["checkpoints"]

        async def save_many(agent, name):
            for n in range(10):
                await agent.call(
                    "save_checkpoint",
                    agent="coder",
                    session="s",
                    messages=[{"role": name, "content": n}],
                )

        await asyncio.gather(save_many(first, "one"), save_many(second, "two"))
        found = await second.call("search", agent="coder", query="two")
        assert len(found["matches"]) == 10
        compared = await first.call("diff", agent="coder", session="s", from_=saved["snapshot"])
        assert compared["added"] == 20
        fork = await second.call("fork", agent="coder", session="s", new_session="other")
        assert fork["message_count"] == 20
        restored = await second.call("restore", agent="coder", session="s", to=saved["snapshot"])
        assert (restored["message_count"], restored["values"]) == (0, {"plan": 1})
        undone = await first.call("restore", agent="coder", session="s", to=restored["undo_seq"])
        assert undone["message_count"] == 20
        for name in ("one", "two"):
            page = await first.read(undone["uri"])
            mine = [each["message"] for each in page["messages"]]
            assert [each["content"] for each in mine if each["role"] == name] == list(range(10))
        assert "does not cover" in await second.fail("save_checkpoint", agent="other")
        assert len((await one.list_resources()).resources) == 2


def test_only_protocol_is_written_to_stdout_and_bad_lines_do_not_stop_the_server(url):
    with start_raw(url) as program:
        deep = "[" * 100_000 + "]" * 100_000
        arguments = f'{{"agent": "a", "values": {{"deep": {deep}}}}}'
        call = f'"method": "tools/call", "params": {{"name": "search", "arguments": {arguments}}}'
        for line in (
            "not JSON",
            "[]",
            "{}",
            '{"jsonrpc": "2.0", "id": 77}',
            f'{{"jsonrpc": "2.0", "id": 78, {call}}}',
            '{"jsonrpc": "2.0", "id": 79, "method": "tools/call", "params": {"name": 5}}',
            '{"jsonrpc": "2.0", "id": 80, "method": "nope"}',
        ):
            program.send_line(line)
        number = program.send(
            "tools/call", {"name": "save_checkpoint", "arguments": {"agent": "a"}}
        )
        answers = {}
        while number not in answers:
            message = program.read_line()
            answers[message.get("id")] = message
        assert not answers[number]["result"]["isError"]
        assert "error" in answers[79]
        assert "error" in answers[80]
        huge = program.call("save_checkpoint", agent="a", values={"big": "x" * 5_000_000})
        assert "the limit is 1,048,576" in huge["result"]["content"][0]["text"]
        program.process.stdin.close()
        assert program.process.wait(20) == 0
        assert program.process.stdout.read() == ""
        assert "Traceback" not in program.process.stderr.read()


def test_a_killed_server_has_lost_nothing_that_it_acknowledged(url):
    acknowledged, sent = [], 0
    with start_raw(url) as program:
        killer = threading.Timer(random.uniform(0, 0.01), program.process.kill)
        while True:
            sent += 1
            if sent == 12:
                killer.start()  # in the middle of one of the next calls
            message = {"role": "user", "content": sent}
            try:
                response = program.call(
                    "save_checkpoint", agent="a", session="s", messages=[message]
                )
            except BrokenPipeError:
                response = None
            if response is None:
                break
            acknowledged.append((sent, response["result"]["structuredContent"]["snapshot"]))
        killer.join()
        assert program.process.wait(20) == -signal.SIGKILL
    assert len(acknowledged) > 8
    run_async(check_acknowledged(url, acknowledged))


async def check_acknowledged(url, acknowledged):
    """Check that a store has all messages and checkpoints that were acknowledged, once."""
    async with holdfast.open_state_store(url) as store:
        live = await holdfast.Session.open(store, agent_id="a", session_id="s")
        stored = [each["content"] for each in live.messages]
        assert stored == sorted(set(stored))
        assert {number for number, _ in acknowledged} <= set(stored)
        assert len(stored) <= len(acknowledged) + 1  # at most the last one
        assert (await live.verify()).ok
        ids = await live.archive.list_snapshot_ids(location=live.location)
        assert {snapshot for _, snapshot in acknowledged} <= set(ids)


def test_server_ends_with_its_input(monkeypatch, tmp_path, capfd):
    source = tmp_path / "stdin"
    source.write_text("")
    with source.open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        asyncio.run(serve_stdio(holdfast.open_state_store("memory:")))
    assert capfd.readouterr().out == ""
