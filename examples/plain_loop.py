"""An agent without a framework: a loop, a model, two tools and a session.

It crashes after a booking, resumes in a new process, and is rolled back, forked, exported, imported
into another store and compared. The model is scripted: no network or API key is needed.
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


# ----------------------------------------------------------------------------------------- agent


def model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Answer like a model that searches for trains and books one."""
    last = messages[-1]
    if last["role"] == "user" and "cheaper" in last["content"]:
        return {"role": "assistant", "content": "The night train is 29 euros. Shall I book it?"}
    if last["role"] == "user":
        return call_tool("call_1", "search_trains", {"to": "Lisbon"})
    if last["tool_call_id"] == "call_1":
        return call_tool("call_2", "book", {"train": "IC 120"})
    return {"role": "assistant", "content": f"Done: {last['content']}"}


def call_tool(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a message that calls a tool."""
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def search_trains(to: str) -> str:
    """Search for trains. Repeating this is harmless."""
    return f"IC 120 to {to} at 9:10, 74 euros"


def book(train: str) -> str:
    """Book a train. Repeating this costs money."""
    with Path("bookings.txt").open("a") as file:
        file.write(f"{train}\n")
    return f"{train} is booked, receipt 4711"


def count_bookings() -> int:
    """Return how often a train was booked."""
    return len(Path("bookings.txt").read_text().splitlines())


TOOLS: dict[str, Callable[..., str]] = {"search_trains": search_trains, "book": book}


async def run(session: holdfast.Session, *, crash_after: str | None = None) -> None:
    """Run the agent from the current state of the conversation, new or resumed."""
    session.status = "running"
    while session.messages[-1]["role"] != "assistant" or session.unfinished:
        for call in session.unfinished:
            result = await use_tool(session, call)
            if call.tool == crash_after:
                os._exit(137)  # the train is booked, but the conversation does not show it
            session.add_message("tool", result, tool_call_id=call.call_id)
            await session.commit()
        session.append_message(model(session.messages))
        await session.commit()
    session.status = "completed"
    await session.commit()


async def use_tool(session: holdfast.Session, call: holdfast.UnfinishedCall) -> str:
    """Run a tool once per call, however often the agent crashes and resumes."""
    message = session.messages[int(call.message)]
    (wanted,) = [each for each in message["tool_calls"] if each["id"] == call.call_id]
    arguments = wanted["function"]["arguments"]
    return await session.once(f"{call.tool}:{call.call_id}", lambda: TOOLS[call.tool](**arguments))


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
        session.add_message("user", "Book me a train to Lisbon")
        await session.save(tags={"reason": "before anything was booked"})
        await run(session, crash_after="book")


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it committed."""
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"1. An agent books a train, and its process crashes: exit code {ended.returncode}")

    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
        print(f"2. A new process finds {session.message_count} messages and continues")
        await run(session)
        print(f"   assistant: {session.messages[-1]['content']}")
        print(f"   booked: {count_bookings()} time")

        mark = session.snapshot()
        session.add_message("user", "And now delete my account")
        session.rollback(mark)
        await session.commit()
        print(f"3. A mistake is rolled back: {session.message_count} messages again")

        (before,) = await session.archive.list_snapshot_ids(location=session.location)
        other = await session.fork("ses_cheaper", at=before)
        other.add_message("user", "Is there something cheaper?")
        await run(other)
        print("4. A fork from before the booking asks for something else:")
        print(f"   assistant: {other.messages[-1]['content']}")

        manager = holdfast.SnapshotManager(store)
        manager.to_file(await manager.export_session(AGENT, SESSION), "lisbon.json")
        print("5. The session is exported to lisbon.json")

    async with holdfast.open_state_store("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging)
        result = await manager.import_session(manager.from_file("lisbon.json"))
        print(f"6. It is imported into another store: {result.messages_restored} messages")
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
            asyncio.run(demonstrate(SCRIPT))
