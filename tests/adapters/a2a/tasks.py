"""Tasks, callers and subscriptions for the tests of the A2A adapter."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from a2a.auth.user import User
from a2a.server.cluster.version import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.types.a2a_pb2 import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from google.protobuf.timestamp_pb2 import Timestamp

SUBMITTED = TaskState.TASK_STATE_SUBMITTED
WORKING = TaskState.TASK_STATE_WORKING
COMPLETED = TaskState.TASK_STATE_COMPLETED
FAILED = TaskState.TASK_STATE_FAILED
CANCELED = TaskState.TASK_STATE_CANCELED
REJECTED = TaskState.TASK_STATE_REJECTED
INPUT_REQUIRED = TaskState.TASK_STATE_INPUT_REQUIRED
AUTH_REQUIRED = TaskState.TASK_STATE_AUTH_REQUIRED
MISSING = TaskVersion.MISSING


class NamedUser(User):
    """An authenticated caller."""

    def __init__(self, name):
        self.name = name

    @property
    def is_authenticated(self):
        return True

    @property
    def user_name(self):
        return self.name


ANYONE = ServerCallContext()


def caller(name):
    """Return the context of a call by a user; without a name, of one that is not authenticated."""
    return ServerCallContext(user=NamedUser(name)) if name else ANYONE


def say(text, role=Role.ROLE_USER, **fields):
    return Message(message_id=f"m {text}", role=role, parts=[Part(text=text)], **fields)


def make_status(state, seconds=None, nanos=0, message=None):
    timestamp = None if seconds is None else Timestamp(seconds=seconds, nanos=nanos)
    return TaskStatus(state=state, timestamp=timestamp, message=message)


def make_task(task_id="t1", state=WORKING, texts=("Hello",), **fields):
    fields.setdefault("context_id", "c1")
    fields.setdefault("status", make_status(state, 1_800_000_000))
    return Task(id=task_id, history=[say(each) for each in texts], **fields)


def chunk(text, task_id="t1", artifact_id="report"):
    """Return the event of one more part of an artifact."""
    artifact = Artifact(artifact_id=artifact_id, parts=[Part(text=text)])
    return TaskArtifactUpdateEvent(task_id=task_id, context_id="c1", artifact=artifact, append=True)


def update(state, task_id="t1"):
    """Return the event of another status."""
    return TaskStatusUpdateEvent(
        task_id=task_id, context_id="c1", status=make_status(state, 1_800_000_001)
    )


async def add_chunk(store, stored, text, context=ANYONE):
    """Append a part to the artifact of a task as the SDK does; return the new version."""
    task = Task()
    task.CopyFrom(stored.task)
    if not task.artifacts:
        task.artifacts.add(artifact_id="report")
    task.artifacts[0].parts.add(text=text)
    event = chunk(text, task.id)
    return await store.save(task, event=event, prev_version=stored.version, context=context)


async def collect(stream, task_id, after, count):
    """Return the first events of a subscription."""
    found = []
    async with asyncio.timeout(20), aclosing(stream.subscribe(task_id, after=after)) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


def texts_of(events):
    """Return what was added to artifacts by events, and the states of the others."""
    return [
        each.event.artifact.parts[0].text
        if isinstance(each.event, TaskArtifactUpdateEvent)
        else TaskState.Name(each.event.status.state).removeprefix("TASK_STATE_").lower()
        for each in events
    ]
