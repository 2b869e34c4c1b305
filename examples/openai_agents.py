"""An agent of the OpenAI Agents SDK with a Holdfast session.

It crashes while a tool runs, resumes in a new process, and is rolled back, forked, exported,
imported into another store, compared and shown in the viewer. The model is scripted: no network or
API key is needed.
Run: pip install 'holdfast[openai-agents]', then python examples/openai_agents.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import chdir
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from agents.items import TResponseInputItem, TResponseStreamEvent
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.openai_agents import HoldfastSession

AGENT = "waiter"
SESSION = "ses_table_7"


# ----------------------------------------------------------------------------------------- agent


class ScriptedModel(Model):
    """A model that looks for a table and reports the result."""

    async def get_response(
        self,
        system_instructions: str | None,  # noqa: ARG002
        input: str | list[TResponseInputItem],  # noqa: A002 - the name in the SDK
        *rest: Any,  # noqa: ARG002
        **more: Any,  # noqa: ARG002
    ) -> ModelResponse:
        """Answer the last item."""
        last: Any = input[-1]
        said = ResponseOutputText(type="output_text", text="You are welcome", annotations=[])
        if "table" in str(last.get("content")):
            call = ResponseFunctionToolCall(
                type="function_call",
                name="free_tables",
                call_id=f"call_{len(input)}",
                arguments='{"day": "monday"}',
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        if last.get("type") == "function_call_output":
            said.text = f"There are {last['output']}"
        message = ResponseOutputMessage(
            id="msg", type="message", role="assistant", status="completed", content=[said]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *rest: Any, **more: Any) -> AsyncIterator[TResponseStreamEvent]:
        """Not needed here."""
        raise NotImplementedError("this agent does not stream")


@function_tool
def free_tables(day: str) -> str:
    """Look for free tables."""
    if "crash" in sys.argv:
        os._exit(137)  # the process dies while the tool runs
    return f"two tables on {day}"


async def ask(session: HoldfastSession, words: str) -> None:
    """Run one turn of the conversation."""
    agent = Agent(name=AGENT, model=ScriptedModel(), tools=[free_tables])
    print(f"   user: {words}", flush=True)
    result = await Runner.run(agent, words, session=session)
    print(f"   {AGENT}: {result.final_output}", flush=True)


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = HoldfastSession(SESSION, store, agent_id=AGENT)
        await ask(session, "Thank you for having me")
        await session.save(tags={"reason": "first turn"})
        await ask(session, "Is there a table?")


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it committed."""
    print("1. An agent talks, and its process crashes while a tool runs:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        session = HoldfastSession(SESSION, store, agent_id=AGENT)
        print(f"2. A new process finds {len(await session.get_items())} items and continues:")
        await ask(session, "Once more: is there a table?")

        mark = await session.snapshot()
        await ask(session, "Then cancel everything")
        await session.rollback(mark)
        print(f"3. A mistake is rolled back: {len(await session.get_items())} items again")

        (good,) = await holdfast.SnapshotArchive(store).list_snapshot_ids(location=session.location)
        fork = await session.fork("ses_what_if", at=good)
        print("4. A fork of the first snapshot continues differently:")
        await ask(fork, "Good bye")

        document = await session.export(tags={"reason": "example"})
        manager = holdfast.SnapshotManager(store)
        manager.to_file(document, "table_7.json")
        print("5. The session is exported to table_7.json")

    async with holdfast.open_state_store("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging)
        result = await manager.import_session(manager.from_file("table_7.json"))
        print(f"6. Another store imports {result.messages_restored} items and continues:")
        copy = HoldfastSession(SESSION, staging, agent_id=AGENT)
        await ask(copy, "Thanks")
        diff = (await copy.export()).snapshot.diff(document.snapshot)

    print("7. Compared with the file, these are new:")
    for space, key in diff["added"]:
        print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", AGENT, SESSION)


if __name__ == "__main__":
    set_tracing_disabled(disabled=True)
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
