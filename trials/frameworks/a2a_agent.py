"""The A2A SDK: one task to which an agent adds the chunks of an artifact, streamed to a client."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.cluster.version import TaskVersion
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
)

from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore
from holdfast.ids import new_id
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

CHUNKS = [f"chunk {number}" for number in range(14)]
STEPS = len(CHUNKS)
CARD = AgentCard(
    name="Writer",
    description="Writes a report",
    version="1",
    supported_interfaces=[
        AgentInterface(url="http://writer/", protocol_binding="JSONRPC", protocol_version="1.0")
    ],
    capabilities=AgentCapabilities(streaming=True),
    default_input_modes=["text"],
    default_output_modes=["text"],
    skills=[AgentSkill(id="write", name="Write", description="Writes", tags=["text"])],
)


class Writer(AgentExecutor):
    """Adds the chunks that the artifact does not have yet."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Write the report."""
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
        written = read_chunks(task)
        for chunk in CHUNKS[len(written) :]:
            note_step(self.folder)
            await updater.add_artifact(
                [Part(text=chunk)], artifact_id="report", append=chunk != CHUNKS[0]
            )
        await updater.complete()

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Not needed here."""
        raise NotImplementedError("nothing is canceled")


async def run(url: str, folder: Path) -> None:
    """Start the task, or continue it if it has not ended."""
    async with HoldfastTaskStore.from_url(url) as store:
        handler = DefaultRequestHandlerV2(
            agent_executor=Writer(folder),
            task_store=store,
            agent_card=CARD,
            event_stream=HoldfastTaskEventStream(store),
        )
        task = await find_task(store)
        if task is not None and task.status.state == TaskState.TASK_STATE_COMPLETED:
            return
        message = Message(message_id=new_id(), role=Role.ROLE_USER, parts=[Part(text="Go on")])
        if task is not None:
            message.task_id, message.context_id = task.id, task.context_id
        request = SendMessageRequest(message=message)
        stream = handler.on_message_send_stream(request, ServerCallContext())
        async with aclosing(stream):
            async for event in stream:
                if isinstance(event, TaskArtifactUpdateEvent):
                    note_acknowledged(folder, event.artifact.parts[0].text)
        await handler.aclose()


async def check(url: str, folder: Path) -> list[str]:
    """Check that every chunk was written and streamed once, and the task completed."""
    async with HoldfastTaskStore.from_url(url) as store:
        task = await find_task(store)
        if task is None:
            return ["there is no task"]
        chunks = read_chunks(task)
        streamed: list[str] = []
        stream = HoldfastTaskEventStream(store).subscribe(task.id, after=TaskVersion.MISSING)
        async with aclosing(stream):
            while len(streamed) < len(chunks):
                event = (await anext(stream)).event
                if isinstance(event, TaskArtifactUpdateEvent):
                    streamed.append(event.artifact.parts[0].text)
    problems = [f"{text!r} was lost" for text in read_acknowledged(folder) if text not in chunks]
    if task.status.state != TaskState.TASK_STATE_COMPLETED:
        problems.append(f"the task is {TaskState.Name(task.status.state)}")
    problems += [f"the chunks are {each}" for each in (chunks, streamed) if each != CHUNKS]
    return problems


async def find_task(store: HoldfastTaskStore) -> Task | None:
    """Return the only task, if there is one."""
    found = await store.list(ListTasksRequest(), ServerCallContext())
    return found.tasks[0] if found.tasks else None


def read_chunks(task: Task) -> list[str]:
    """Return the chunks of a task's artifact."""
    return [part.text for artifact in task.artifacts for part in artifact.parts]
