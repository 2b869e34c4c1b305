"""Replicas of an A2A server, each in its own process: ``replica.py <store URL> <port> …``.

The processes are forked from one that has imported everything. It prints their ids.

Its agent adds numbers to an artifact: the message "9 5" asks for the numbers below 9, slowly from 5
on. An agent that is started again after a crash continues with the first number that is missing.
"""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandlerV2
from a2a.server.routes.common import DefaultServerCallContextBuilder
from a2a.server.routes.jsonrpc_routes import create_jsonrpc_routes
from a2a.server.tasks import TaskUpdater
from a2a.types.a2a_pb2 import (
    AgentCapabilities,
    AgentCard,
    AgentInterface,
    AgentSkill,
    Part,
    Task,
    TaskState,
    TaskStatus,
)
from starlette.applications import Starlette

from adapters.a2a.tasks import NamedUser
from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore

PAUSE, LONG_PAUSE = 0.02, 1.0


class CountingAgent(AgentExecutor):
    """Counts, with a pause before each number."""

    async def execute(self, context, event_queue):
        task = context.current_task
        if task is None:
            task = Task(
                id=context.task_id,
                context_id=context.context_id,
                status=TaskStatus(state=TaskState.TASK_STATE_SUBMITTED),
                history=[context.message],
            )
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        first = len(task.artifacts[0].parts) if task.artifacts else 0
        last, slow = map(int, context.message.parts[0].text.split())
        for number in range(first, last):
            await asyncio.sleep(PAUSE if number < slow else LONG_PAUSE)
            await updater.add_artifact(
                [Part(text=str(number))], artifact_id="numbers", append=number > 0
            )
        await updater.complete()

    async def cancel(self, context, event_queue):
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class UserOfHeader(DefaultServerCallContextBuilder):
    """Takes the caller's name from a header."""

    def build_user(self, request):
        return NamedUser(request.headers["x-user"])


def make_card(port):
    return AgentCard(
        name="Counter",
        description="Counts",
        version="1",
        supported_interfaces=[
            AgentInterface(
                url=f"http://127.0.0.1:{port}/",
                protocol_binding="JSONRPC",
                protocol_version="1.0",
            )
        ],
        capabilities=AgentCapabilities(streaming=True),
        default_input_modes=["text"],
        default_output_modes=["text"],
        skills=[AgentSkill(id="count", name="Count", description="Counts", tags=["numbers"])],
    )


def main(url, port):
    store = HoldfastTaskStore.from_url(url)
    handler = DefaultRequestHandlerV2(
        agent_executor=CountingAgent(),
        task_store=store,
        agent_card=make_card(port),
        event_stream=HoldfastTaskEventStream(store),
    )

    @asynccontextmanager
    async def lifespan(app):
        yield
        await handler.aclose()
        await store.aclose()

    routes = create_jsonrpc_routes(handler, "/", context_builder=UserOfHeader())
    app = Starlette(routes=routes, lifespan=lifespan)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    for port in sys.argv[2:]:
        child = os.fork()
        if child == 0:
            main(sys.argv[1], int(port))
            os._exit(0)
        print(child, flush=True)
    for _ in sys.argv[2:]:
        os.wait()
