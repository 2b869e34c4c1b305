"""An A2A agent whose tasks are Holdfast sessions.

It crashes in the middle of a task, continues in a new process while a client follows the stream
where it stopped, and the task is rolled back, forked, exported, imported into another store,
compared and shown in the viewer. The agent is scripted: no network or API key is needed.
Run: pip install 'holdfast[a2a]', then python examples/a2a_agent.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import aclosing, chdir
from pathlib import Path

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster import StoredTask
from a2a.server.context import ServerCallContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore

AGENT = "writer"
CALLER = ServerCallContext()
CHAPTERS = ["Once upon a time", "there was an agent", "that wrote a report", "and finished it"]
CARD = AgentCard(
    name=AGENT,
    description="Writes reports",
    version="1",
    supported_interfaces=[
        AgentInterface(url="http://writer/", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text"],
    default_output_modes=["text"],
    skills=[AgentSkill(id="write", name="Write", description="Writes", tags=["text"])],
)


# ----------------------------------------------------------------------------------------- agent


class Writer(AgentExecutor):
    """Writes the chapters that the report does not have yet."""

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Write the report, one chunk per chapter."""
        task_id, context_id = str(context.task_id), str(context.context_id)
        task = context.current_task
        if task is None:
            task = Task(
                id=task_id,
                context_id=context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message] if context.message else [],
            )
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task_id, context_id)
        await updater.start_work()
        for number in range(len(read_chapters(task)), len(CHAPTERS)):
            if number == 2 and "crash" in sys.argv:
                await asyncio.sleep(0.5)  # until the client has got the chapters before
                os._exit(137)  # the process dies in the middle of the task
            await updater.add_artifact(
                [Part(text=CHAPTERS[number])], artifact_id="report", append=number > 0
            )
        await updater.complete(updater.new_agent_message([Part(text="The report is ready")]))

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Cancel the task."""
        updater = TaskUpdater(event_queue, str(context.task_id), str(context.context_id))
        await updater.cancel()


def read_chapters(task: Task) -> list[str]:
    """Return the chapters of a task's report."""
    return [part.text for artifact in task.artifacts for part in artifact.parts]


async def ask(store: HoldfastTaskStore, words: str, task: Task | None = None) -> None:
    """Send a message to the agent, for a new task or a given one, and print what it streams."""
    handler = DefaultRequestHandlerV2(
        agent_executor=Writer(),
        task_store=store,
        agent_card=CARD,
        event_stream=HoldfastTaskEventStream(store),
    )
    message = Message(message_id=words, role=Role.ROLE_USER, parts=[Part(text=words)])
    if task is not None:
        message.task_id, message.context_id = task.id, task.context_id
    print(f"   user: {words}", flush=True)
    stream = handler.on_message_send_stream(SendMessageRequest(message=message), CALLER)
    async with aclosing(stream):
        async for event in stream:
            if isinstance(event, TaskArtifactUpdateEvent):
                print(f"   {AGENT}: {event.artifact.parts[0].text}", flush=True)
    await handler.aclose()


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with HoldfastTaskStore.from_url("sqlite:///agents.db", agent_id=AGENT) as store:
        await ask(store, "Write a report")


async def follow(store: HoldfastTaskStore, seen: StoredTask) -> list[str]:
    """Return what a client receives that lost its connection when the task was like this."""
    found: list[str] = []
    stream = HoldfastTaskEventStream(store).subscribe(seen.task.id, after=seen.version)
    async with aclosing(stream):
        async for each in stream:
            if isinstance(each.event, TaskArtifactUpdateEvent):
                found.append(each.event.artifact.parts[0].text)
            elif (
                isinstance(each.event, TaskStatusUpdateEvent)
                and each.event.status.state == TaskState.TASK_STATE_COMPLETED
            ):
                break
    return found


async def load(store: HoldfastTaskStore, task_id: str) -> StoredTask:
    """Return a task that exists."""
    stored = await store.get(task_id, CALLER)
    if stored is None:
        raise LookupError(f"task {task_id} was not found")
    return stored


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it committed."""
    print("1. An agent writes a report, and its process crashes in the middle:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with HoldfastTaskStore.from_url("sqlite:///agents.db", agent_id=AGENT) as store:
        (task,) = (await store.list(ListTasksRequest(), CALLER)).tasks
        print(f"2. A new process finds {len(read_chapters(task))} chapters and continues:")
        location = store.location(task.id)
        session = await holdfast.Session.open(
            store.state_store, agent_id=AGENT, session_id=location.session_id
        )
        saved = await session.save(tags={"reason": "after the crash"})
        client = asyncio.create_task(follow(store, await load(store, task.id)))
        await ask(store, "Go on", task)
        print(f"   a client that lost its connection receives {await client}")

        await session.refresh()
        await session.restore(saved.snapshot_id)
        (task,) = (await store.list(ListTasksRequest(), CALLER)).tasks
        print(f"3. The task is rolled back: {len(read_chapters(task))} chapters again")

        await session.fork("what-if", at=saved.snapshot_id)
        print("4. A fork of it is another task, which continues on its own:")
        await ask(store, "Go on", (await load(store, "what-if")).task)

        document = await session.export(tags={"reason": "example"})
        manager = holdfast.SnapshotManager(store.state_store)
        manager.to_file(document, "report.json")
        print("5. The task is exported to report.json")

    async with HoldfastTaskStore.from_url("sqlite:///staging.db", agent_id=AGENT) as staging:
        manager = holdfast.SnapshotManager(staging.state_store)
        await manager.import_session(manager.from_file("report.json"))
        print("6. Another store imports it and continues:")
        (copy,) = (await staging.list(ListTasksRequest(), CALLER)).tasks
        await ask(staging, "Go on", copy)
        ours = await holdfast.Session.open(
            staging.state_store, agent_id=AGENT, session_id=location.session_id
        )
        diff = (await ours.export()).snapshot.diff(document.snapshot)

    print("7. Compared with the file, these are new:")
    for space, key in diff["added"]:
        print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", AGENT, location.session_id)


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
