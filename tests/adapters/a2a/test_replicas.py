"""Two servers on one store: clients continue at the other one, also after ``kill -9``."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import uuid
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

import pytest

pytest.importorskip("a2a")
pytest.importorskip("starlette")

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.types.a2a_pb2 import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    SendMessageRequest,
    SubscribeToTaskRequest,
)
from a2a.utils.errors import TaskNotFoundError

from adapters.a2a.replica import make_card
from adapters.a2a.tasks import CANCELED, COMPLETED, WORKING, say
from holdfast import Session, open_state_store
from servers.process import free_port
from support.async_tests import async_test
from support.backends import make_url

SLOW, FAR = 8, 1000
"""The number from which on agents are slow, and one that they do not get to."""


class Replica:
    """A server in a process of its own."""

    def __init__(self, port, process_id):
        self.port = port
        self.process_id = process_id

    async def wait(self):
        """Wait until it accepts connections."""
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                await asyncio.sleep(0.02)
            else:
                writer.close()
                await writer.wait_closed()
                return

    @asynccontextmanager
    async def client(self, user="alice"):
        async with httpx.AsyncClient(headers={"x-user": user}, timeout=60) as http:
            yield ClientFactory(ClientConfig(httpx_client=http)).create(make_card(self.port))

    def kill(self):
        os.kill(self.process_id, signal.SIGKILL)


@pytest.fixture(params=["postgresql", "nats"])
def url(request):
    return make_url(request.param, request)


@pytest.fixture
def replicas(url):
    ports = [free_port(), free_port()]
    program = Path(__file__).with_name("replica.py")
    with subprocess.Popen(
        [sys.executable, str(program), url, *map(str, ports)],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as starter:
        found = [Replica(port, int(starter.stdout.readline())) for port in ports]
        try:
            yield found
        finally:
            for each in found:
                with suppress(ProcessLookupError):
                    each.kill()


def count_to(last, slow, task=None):
    """Return the request for a new task, or one that continues a task."""
    message = say(f"{last} {slow}")
    message.message_id = uuid.uuid4().hex
    if task is not None:
        message.task_id, message.context_id = task.id, task.context_id
    return SendMessageRequest(message=message)


def read_numbers(artifact):
    return [part.text for part in artifact.parts]


async def read_stream(stream, most=None):
    """Return the task id and the numbers of a stream, until it ends or there are enough."""
    task_id, numbers = "", []
    async with asyncio.timeout(60), aclosing(stream):
        async for each in stream:
            if each.HasField("task"):  # complete, so far
                task_id = each.task.id
                numbers = [text for one in each.task.artifacts for text in read_numbers(one)]
            else:
                numbers += read_numbers(each.artifact_update.artifact)
            if most is not None and len(numbers) >= most:
                break
    return task_id, numbers


@async_test
async def test_clients_move_between_replicas(url, replicas):
    one, two = replicas
    async with asyncio.timeout(60):
        await asyncio.gather(one.wait(), two.wait())
    async with one.client() as first, two.client() as second, two.client("bob") as bob:
        # A client loses its connection to one replica and continues at the other one.
        task_id, seen = await read_stream(first.send_message(count_to(FAR, SLOW)), most=3)
        assert seen == ["0", "1", "2"]
        with pytest.raises(TaskNotFoundError):
            await bob.get_task(GetTaskRequest(id=task_id))
        with pytest.raises(TaskNotFoundError):
            await read_stream(bob.subscribe(SubscribeToTaskRequest(id=task_id)))
        request = SubscribeToTaskRequest(id=task_id)
        _, seen = await read_stream(second.subscribe(request), most=SLOW)
        assert seen == [str(number) for number in range(len(seen))]

        # It cancels the task there, which ends the run in the first replica and all streams.
        subscription = asyncio.create_task(read_stream(second.subscribe(request)))
        await asyncio.sleep(0.1)
        canceled = await second.cancel_task(CancelTaskRequest(id=task_id))
        assert canceled.status.state == CANCELED
        _, seen = await subscription
        assert seen == [str(number) for number in range(len(seen))]
        assert await first.get_task(GetTaskRequest(id=task_id)) == canceled

        # The replica that runs a task is killed; a message to the other one continues the task.
        task_id, seen = await read_stream(first.send_message(count_to(FAR, SLOW)), most=3)
        request = SubscribeToTaskRequest(id=task_id)
        subscription = asyncio.create_task(read_stream(second.subscribe(request)))
        await asyncio.sleep(0.1)
        one.kill()
        left = await second.get_task(GetTaskRequest(id=task_id))
        assert left.status.state == WORKING
        last = len(left.artifacts[0].parts) + 5
        await read_stream(second.send_message(count_to(last, FAR, left)))
        assert await subscription == (task_id, [str(number) for number in range(last)])
        done = await second.get_task(GetTaskRequest(id=task_id))
        assert (done.status.state, len(done.artifacts[0].parts)) == (COMPLETED, last)
        listed = await second.list_tasks(ListTasksRequest(status=COMPLETED))
        assert ([each.id for each in listed.tasks], listed.total_size) == ([task_id], 1)
    async with open_state_store(url) as store:
        session = await Session.open(
            store, agent_id="a2a", session_id=f"{task_id}:alice", must_exist=True
        )
        assert session.status == "completed"
        assert (await session.verify()).ok
