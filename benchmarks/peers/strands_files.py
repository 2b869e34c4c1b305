"""The snapshot manager of Strands on files, in its own process.

Strands needs other package versions than our development, so it has its own environment:
``HOLDFAST_BENCH_STRANDS`` names the Python of one with strands-agents. Run by that Python, this
file runs the whole conversation and prints the results as JSON.

A turn ends like an invocation of an agent, and the manager writes an immutable snapshot and the
latest one. Its files are renamed into place but not synced, so its times flatter it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.peers.workload import (
    Contestant,
    Message,
    Run,
    Turn,
    make_conversation,
    run_conversation,
)

VARIABLE = "HOLDFAST_BENCH_STRANDS"


class StrandsFiles(Contestant):
    """An agent whose messages come from the conversation instead of a model."""

    async def open(self) -> None:
        sessions, storage = import_module("strands.session"), import_module("strands.storage")
        self.ended = import_module("strands.hooks").AfterInvocationEvent
        self.manager: Any = sessions.SnapshotSessionManager(
            "ses_1",
            storage=storage.LocalFileStorage(str(self.folder)),
            snapshot_trigger=lambda **_: True,
        )
        self.agent: Any = import_module("strands").Agent(
            agent_id="research-bot", session_manager=self.manager, callback_handler=None
        )

    async def turn(self, turn: Turn) -> None:
        self.agent.messages.extend(to_strands_message(message) for message in turn.messages)
        self.agent.state.set("plan", turn.plan)
        await self.agent.hooks.invoke_callbacks_async(self.ended(agent=self.agent))

    async def mark(self) -> str:
        return str((await self.ids())[-1])

    async def load(self, snapshot_id: str | None) -> Sequence[Any]:
        await self.manager.restore_snapshot(self.agent, snapshot_id=snapshot_id)
        messages: Sequence[Any] = self.agent.messages
        return messages

    async def ids(self) -> Sequence[str]:
        found: list[str] = await self.manager.list_snapshot_ids(self.agent)
        return found

    async def close(self) -> None:
        self.agent = self.manager = None


def to_strands_message(message: Message) -> dict[str, Any]:
    """Return a message in the format of Strands, where the user sends tool results."""
    text = {"text": message["content"]}
    if message["role"] != "tool":
        return {"role": message["role"], "content": [text]}
    result = {"toolUseId": message["tool_call_id"], "status": "success", "content": [text]}
    return {"role": "user", "content": [{"toolResult": result}]}


def find_interpreter() -> str | None:
    """Return a Python that has Strands."""
    if found := os.environ.get(VARIABLE):
        return found
    return sys.executable if find_spec("strands") else None


def run_in_process(python: str, folder: Path, turns: int, repeats: int) -> Run:
    """Run the same conversation in a process of that Python."""
    done = subprocess.run(
        [python, __file__, str(folder), str(turns), str(repeats)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the run of Strands failed: {done.stderr}")
    seen = json.loads(done.stdout.splitlines()[-1])
    seen["sizes"] = [(turn, size) for turn, size in seen["sizes"]]
    return Run(**seen)


async def main(folder: Path, turns: int, repeats: int) -> None:
    """Run the conversation here."""
    contestant = StrandsFiles(folder)
    print(json.dumps(asdict(await run_conversation(contestant, make_conversation(turns), repeats))))
    await contestant.close()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
