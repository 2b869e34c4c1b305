"""An agent without a framework: a loop, a model, two tools, and a session that keeps it all.

It talks, dies in the middle, goes on in a new process, is rolled back, forked, exported, imported
into another store, and compared. The model is scripted, so it needs no network and no key.
Run: python examples/plain_loop.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

import holdfast

AGENT = "travel-agent"
SESSION = "ses_lisbon"


# ------------------------------------------------------------------------------------- the agent


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What a model would say: it looks for trains, books one, and says so."""
    last = messages[-1]
    if last["role"] == "user" and "cheaper" in last["content"]:
        return {"role": "assistant", "content": "The night train is 29 euros. Shall I book it?"}
    if last["role"] == "user":
        return called("call_1", "search_trains", {"to": "Lisbon"})
    if last["tool_call_id"] == "call_1":
        return called("call_2", "book", {"train": "IC 120"})
    return {"role": "assistant", "content": f"Done: {last['content']}"}


def called(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A message that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def search_trains(to: str) -> str:
    """A tool that may be called again and again."""
    return f"IC 120 to {to} at 9:10, 74 euros"


def book(train: str) -> str:
    """A tool that must not: each call costs money."""
    with Path("bookings.txt").open("a") as file:
        file.write(f"{train}\n")
    return f"{train} is booked, receipt 4711"


def bookings() -> int:
    """How often a train was booked."""
    return len(Path("bookings.txt").read_text().splitlines())


TOOLS: dict[str, Callable[..., str]] = {"search_trains": search_trains, "book": book}


async def run(session: holdfast.Session, *, dies_after: str | None = None) -> None:
    """The loop. It begins wherever the conversation stands, so it resumes by being called."""
    session.status = "running"
    while session.messages[-1]["role"] != "assistant" or session.unfinished:
        for call in session.unfinished:
            result = await use_tool(session, call)
            if call.tool == dies_after:
                os._exit(137)  # the power fails: the train is booked, and nobody was told
            session.add_message("tool", result, tool_call_id=call.call_id)
            await session.commit()
        session.append_message(model(session.messages))
        await session.commit()
    session.status = "completed"
    await session.commit()


async def use_tool(session: holdfast.Session, call: holdfast.UnfinishedCall) -> str:
    """Call a tool: once for each call, whatever crashes and however often it is resumed."""
    message = session.messages[int(call.message)]
    (wanted,) = [each for each in message["tool_calls"] if each["id"] == call.call_id]
    arguments = wanted["function"]["arguments"]
    return await session.once(f"{call.tool}:{call.call_id}", lambda: TOOLS[call.tool](**arguments))


# ------------------------------------------------------------------------------------- the story


async def crash() -> None:
    """The process that does not live to see the end."""
    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
        session.add_message("user", "Book me a train to Lisbon")
        await session.save(tags={"reason": "before anything was booked"})
        await run(session, dies_after="book")


async def story(script: str) -> None:
    """What its owner does afterwards."""
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"1. An agent books a train, and its process dies: exit code {ended.returncode}")

    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
        print(f"2. A new process finds {session.message_count} messages, and goes on")
        await run(session)
        print(f"   assistant: {session.messages[-1]['content']}")
        print(f"   booked: {bookings()} time")

        mark = session.snapshot()
        session.add_message("user", "And now delete my account")
        session.rollback(mark)
        await session.commit()
        print(f"3. A wrong turn is rolled back: {session.message_count} messages again")

        (before,) = await session.archive.list_snapshot_ids(location=session.location)
        other = await session.fork("ses_cheaper", at=before)
        other.add_message("user", "Is there something cheaper?")
        await run(other)
        print("4. A fork from before the booking asks another question:")
        print(f"   assistant: {other.messages[-1]['content']}")

        manager = holdfast.SnapshotManager(store)
        manager.to_file(await manager.export_session(AGENT, SESSION), "lisbon.json")
        print("5. The session is one file now: lisbon.json")

    async with holdfast.open_state_store("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging)
        result = await manager.import_session(manager.from_file("lisbon.json"))
        print(f"6. Another store has it now: {result.messages_restored} messages")
        copy = await holdfast.Session.open(staging, agent_id=AGENT, session_id=SESSION)

    diff = copy.snapshot().diff(other.snapshot())
    print(f"7. Compared with the fork, {len(diff['added'])} entries are new:")
    for space, key in diff["added"]:
        print(f"   {space}/{key}")


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(story(SCRIPT))
