"""A Strands agent with a Holdfast session.

It crashes while a tool runs, resumes in a new process, and is rolled back, forked, exported,
imported into another store, compared and shown in the viewer. The model is scripted: no network or
API key is needed.
Run: pip install 'holdfast[strands]', then python examples/strands_agents.py
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import chdir
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.types.content import Messages
from strands.types.streaming import StreamEvent
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.strands import HoldfastStorage

AGENT = "waiter"
SESSION = "ses_table_7"


# ----------------------------------------------------------------------------------------- agent


class ScriptedModel(Model):
    """A model that looks for a table and reports the result."""

    def update_config(self, **model_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing to configure."""
        return {}

    def structured_output(self, *rest: Any, **more: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Not needed here."""
        raise NotImplementedError("this model returns text")

    async def stream(
        self,
        messages: Messages,
        *rest: Any,  # noqa: ARG002
        **more: Any,  # noqa: ARG002
    ) -> AsyncIterable[StreamEvent]:
        """Answer the last message."""
        last = messages[-1]["content"][0]
        yield {"messageStart": {"role": "assistant"}}
        if "table" in last.get("text", ""):
            call = {"name": "free_tables", "toolUseId": f"call_{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}  # type: ignore[typeddict-item]
            arguments = json.dumps({"day": "monday"})
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
            return
        said = "You are welcome"
        if "toolResult" in last:
            said = f"There are {last['toolResult']['content'][0]['text']}"
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": said}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


@tool
def free_tables(day: str) -> str:
    """Look for free tables."""
    if "crash" in sys.argv:
        os._exit(137)  # the process dies while the tool runs
    return f"two tables on {day}"


def open_agent(store: holdfast.StateStore, session_id: str = SESSION) -> Agent:
    """Return the agent of a session, at its latest snapshot."""
    manager = SnapshotSessionManager(
        session_id,
        storage=HoldfastStorage(store),
        save_latest_on="message",
        snapshot_trigger=lambda **_: True,
    )
    return Agent(
        model=ScriptedModel(),
        agent_id=AGENT,
        tools=[free_tables],
        session_manager=manager,
        callback_handler=None,
    )


def ask(agent: Agent, words: str) -> None:
    """Run one turn of the conversation."""
    print(f"   user: {words}", flush=True)
    print(f"   {AGENT}: {str(agent(words)).strip()}", flush=True)


# ---------------------------------------------------------------------------------------- script


def crash(store: holdfast.StateStore) -> None:
    """Run the agent until it crashes."""
    agent = open_agent(store)
    agent.state.set("guests", 2)
    ask(agent, "Thank you for having us")
    ask(agent, "Is there a table?")


def demonstrate(store: holdfast.StateStore, staging: holdfast.StateStore, script: str) -> None:
    """Crash an agent, and continue from what it committed."""
    print("1. An agent talks, and its process crashes while a tool runs:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: S603
    print(f"   exit code {ended.returncode}")

    # The latest snapshot ends with a tool call without a result; the one before is complete.
    session = holdfast.BlockingSession.open(store, agent_id=AGENT, session_id=SESSION)
    print(f"2. A new process finds {session.message_count} messages, restores the last complete")
    good = session.last_finished()
    if session.unfinished and good is not None:
        session.restore(good.snapshot_id)
    agent = open_agent(store)
    print(f"   turn, {len(agent.messages)} messages and {agent.state.get()}, and continues:")
    ask(agent, "Once more: is there a table?")

    session.reload()
    mark = session.snapshot()
    ask(agent, "Then cancel everything")
    session.reload()
    session.rollback(mark)
    session.commit()
    print(f"3. A mistake is rolled back: {len(open_agent(store).messages)} messages again")

    if good is not None:
        session.fork("ses_what_if", at=good.snapshot_id)
    print("4. A fork of the first snapshot continues differently:")
    ask(open_agent(store, "ses_what_if"), "Good bye")

    document = asyncio.run(HoldfastStorage(store).document(SESSION, AGENT))
    manager = holdfast.SnapshotManager(staging)
    manager.to_file(document, "table_7.json")
    print("5. The session is exported to table_7.json")

    result = asyncio.run(manager.import_session(manager.from_file("table_7.json")))
    print(f"6. Another store imports {result.messages_restored} messages and continues:")
    ask(open_agent(staging), "Thanks")

    copy = asyncio.run(manager.export_session(AGENT, SESSION))
    print("7. Compared with the file, these are new:")
    for space, key in copy.snapshot.diff(document.snapshot)["added"]:
        print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", AGENT, SESSION)


def main() -> None:
    """Run the example in a temporary folder, or the part that crashes."""
    if sys.argv[1:] == ["crash"]:
        crash(holdfast.open_state_store("sqlite:///agents.db"))
        return
    script = str(Path(__file__).absolute())
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        store = holdfast.open_state_store("sqlite:///agents.db")
        staging = holdfast.open_state_store("sqlite:///staging.db")
        try:
            demonstrate(store, staging, script)
        finally:
            asyncio.run(store.close())
            asyncio.run(staging.close())


if __name__ == "__main__":
    main()
