"""An agent of Google ADK with Holdfast's session service.

It crashes while a tool runs, resumes in a new process, and is rolled back, forked, exported,
imported into another store, compared and shown in the viewer. The model is scripted: no network or
API key is needed.
Run: pip install 'holdfast[adk]', then python examples/adk.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import chdir
from pathlib import Path

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import Session
from google.genai import types
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.adk import HoldfastSessionService

APP = "waiter"
IDS = {"app_name": APP, "user_id": "ana"}
SESSION = {**IDS, "session_id": "table_7"}


# ----------------------------------------------------------------------------------------- agent


class ScriptedModel(BaseLlm):
    """A model that looks for a table and reports the result."""

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002, FBT001, FBT002 - ADK's signature
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer the last message."""
        last = llm_request.contents[-1].parts[-1]
        part = types.Part(text="You are welcome")
        if last.function_response is not None:
            part = types.Part(text=f"There are {last.function_response.response['result']}")
        elif "table" in (last.text or ""):
            call = types.FunctionCall(name="free_tables", args={"day": "monday"})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def free_tables(day: str) -> str:
    """Look for free tables."""
    if "crash" in sys.argv:
        os._exit(137)  # the process dies while the tool runs
    return f"two tables on {day}"


async def ask(service: HoldfastSessionService, session_id: str, words: str) -> None:
    """Run one turn of the conversation."""
    agent = LlmAgent(name=APP, model=ScriptedModel(model="scripted"), tools=[free_tables])
    runner = Runner(app_name=APP, agent=agent, session_service=service)
    print(f"   user: {words}", flush=True)
    message = types.Content(role="user", parts=[types.Part(text=words)])
    async for event in runner.run_async(user_id="ana", session_id=session_id, new_message=message):
        if event.is_final_response() and event.content:
            print(f"   {APP}: {event.content.parts[0].text}", flush=True)


async def read(service: HoldfastSessionService) -> Session:
    """Return the session, which exists."""
    found = await service.get_session(**SESSION)
    assert found is not None  # noqa: S101
    return found


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with HoldfastSessionService.from_url("sqlite:///agents.db") as service:
        await service.create_session(**SESSION, state={"user:language": "en"})
        await ask(service, "table_7", "Thank you for having me")
        await (await service.open(**SESSION)).save(tags={"reason": "first turn"})
        await ask(service, "table_7", "Is there a table?")


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it committed."""
    print("1. An agent talks, and its process crashes while a tool runs:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with HoldfastSessionService.from_url("sqlite:///agents.db") as service:
        print(f"2. A new process finds {len((await read(service)).events)} events and continues:")
        location = service.location(APP, "ana", "table_7")
        archive = holdfast.SnapshotArchive(service.state_store)
        (good,) = await archive.list_snapshot_ids(location=location)
        session = await service.open(**SESSION)
        await session.restore(good)  # before the tool call that has no result
        await ask(service, "table_7", "Once more: is there a table?")

        await session.refresh()
        mark = session.snapshot()
        await ask(service, "table_7", "Then cancel everything")
        await session.refresh()
        session.rollback(mark)
        await session.commit()
        print(f"3. A mistake is rolled back: {len((await read(service)).events)} events again")

        await service.fork_session(**SESSION, new_session_id="what_if", at=good)
        print("4. A fork of the first snapshot continues differently:")
        await ask(service, "what_if", "Good bye")
        listed = await service.list_sessions(**IDS)
        print(f"   sessions: {', '.join(each.id for each in listed.sessions)}")

        document = await session.export(tags={"reason": "example"})
        holdfast.SnapshotManager(service.state_store).to_file(document, "table_7.json")
        print("5. The session is exported to table_7.json")

    async with HoldfastSessionService.from_url("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging.state_store)
        result = await manager.import_session(manager.from_file("table_7.json"))
        print(f"6. Another store imports {result.messages_restored} events and continues:")
        await ask(staging, "table_7", "Thanks")
        copy = await (await staging.open(**SESSION)).export()
        diff = copy.snapshot.diff(document.snapshot)

    print("7. Compared with the file, these are new:")
    for space, key in diff["added"]:
        print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", APP, location.session_id)


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
