"""A fake Dapr sidecar, for machines without ``daprd``.

It serves the state API of Dapr in a process, over the service that the SDK was generated from, with
four components that respond as the runtime and its components do:

    statestore   ``state.in-memory``   atomic transactions; no etag is used twice
    redisstore   ``state.redis``       a transaction applies all records except one whose etag does
                                       not match; versions restart at 1 after a delete; an etag for
                                       an absent record is ignored
    etagstore    ``state.couchbase``   etags, no transactions
    plainstore   ``state.memcached``   no etags, no transactions

Writes reach a file before the response, so a killed process can be restarted, and two can share a
folder. A test can make it lose a request or a response, be slow, or respond with an error.
"""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import sqlite3
import sys
import tempfile
import urllib.request
from pathlib import Path

import grpc
from aiohttp import web
from dapr.proto import api_service_v1, api_v1, common_v1
from google.protobuf.empty_pb2 import Empty

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))

from servers.dapr_components import (
    COMPONENTS,
    DELETE,
    UPSERT,
    Component,
    MismatchError,
    Operation,
    RefusedError,
)
from servers.process import Server, answers, free_port

APP = "stand-in"
FIRST_WRITE = common_v1.StateOptions.StateConcurrency.CONCURRENCY_FIRST_WRITE


class DaprStandIn(Server):
    """Handle of the process."""

    def __init__(self, folder: Path | None = None) -> None:
        self._own = folder is None
        super().__init__(folder or Path(tempfile.mkdtemp(prefix="dapr-stand-in-")))
        self.port = free_port()
        self.http_port = free_port()
        self.environment = {
            "DAPR_GRPC_PORT": str(self.port),
            "DAPR_HTTP_PORT": str(self.http_port),
        }

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def command(self) -> list[str]:
        return [
            sys.executable,
            __file__,
            str(self.port),
            str(self.http_port),
            str(self.folder / "state.db"),
        ]

    def ready(self) -> bool:
        return answers(self.port) and answers(self.http_port)

    def stop(self) -> None:
        super().stop()
        if self._own:
            shutil.rmtree(self.folder, ignore_errors=True)

    def fault(self, method: str, kind: str, *, skip: int = 0, times: int = 1, **details) -> None:
        """Make calls of a method fail after ``skip`` successful ones.

        ``lose_request``: it is not done. ``lose_answer``: it is done without a response. ``hold``:
        it is done, and the response waits for ``seconds``. ``say`` and ``do_and_say``: it is not
        done, or done, and the response is ``code`` and ``text``.
        """
        order = {"method": method, "kind": kind, "skip": skip, "times": times, **details}
        self._post("faults", order)

    def forget_faults(self) -> None:
        self._post("faults", None)

    def calls(self) -> dict[str, int]:
        """Return how often each method was called."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/calls") as answer:
            return json.load(answer)

    def keys(self, component: str) -> list[str]:
        """Return the keys of a component's records, as Dapr received them."""
        with sqlite3.connect(self.folder / "state.db") as database:
            rows = database.execute("SELECT key FROM records WHERE component = ?", [component])
            found = sorted(key.partition("||")[2] for (key,) in rows)
        database.close()
        return found

    def _post(self, path: str, body: object) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.http_port}/{path}", json.dumps(body).encode(), method="POST"
        )
        with urllib.request.urlopen(request):
            pass


class Sidecar(api_service_v1.DaprServicer):
    """The methods that the SDK calls for states, with the faults of a test."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.components = {name: kind(name, database) for name, kind in COMPONENTS.items()}
        self.faults: list[dict] = []
        self.calls: dict[str, int] = {}

    async def served(self, method: str, context, work):
        self.calls[method] = self.calls.get(method, 0) + 1
        fault = self.next_fault(method)
        if fault["kind"] == "lose_request":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if fault["kind"] == "say":
            await context.abort(grpc.StatusCode[fault["code"]], fault["text"])
        try:
            answer = work()
        except Answer as problem:
            await context.abort(problem.code, problem.text)
        if fault["kind"] == "lose_answer":
            await context.abort(grpc.StatusCode.UNAVAILABLE, "Socket closed")
        if fault["kind"] == "do_and_say":
            await context.abort(grpc.StatusCode[fault["code"]], fault["text"])
        if fault["kind"] == "hold":
            await asyncio.sleep(fault["seconds"])
        return answer

    def next_fault(self, method: str) -> dict:
        for fault in self.faults:
            if fault["method"] == method and fault["times"]:
                if fault["skip"]:
                    fault["skip"] -= 1
                else:
                    fault["times"] -= 1
                    return fault
        return {"kind": ""}

    def component(self, name: str) -> Component:
        if name not in self.components:
            raise Answer(grpc.StatusCode.INVALID_ARGUMENT, f"state store {name} is not found")
        return self.components[name]

    async def GetMetadata(self, request, context):  # noqa: N802 - the service's name
        def work():
            return api_v1.GetMetadataResponse(
                id=APP,
                runtime_version="0.0.0-stand-in",
                registered_components=[
                    api_v1.RegisteredComponents(
                        name=name, type=one.type, version="v1", capabilities=one.capabilities
                    )
                    for name, one in self.components.items()
                ],
            )

        return await self.served("GetMetadata", context, work)

    async def GetState(self, request, context):  # noqa: N802 - the service's name
        def work():
            data, etag = self.component(request.store_name).get(full(request.key))
            return api_v1.GetStateResponse(data=data, etag=etag)

        return await self.served("GetState", context, work)

    async def GetBulkState(self, request, context):  # noqa: N802 - the service's name
        def work():
            component = self.component(request.store_name)
            items = []
            for key in request.keys:
                data, etag = component.get(full(key))
                items.append(api_v1.BulkStateItem(key=key, data=data, etag=etag))
            random.shuffle(items)  # read in parallel, so in any order
            return api_v1.GetBulkStateResponse(items=items)

        return await self.served("GetBulkState", context, work)

    async def SaveState(self, request, context):  # noqa: N802 - the service's name
        def work():
            component = self.component(request.store_name)
            for state in request.states:
                try:
                    component.do(operation(UPSERT, state))
                except RefusedError as refusal:
                    text = f"failed saving state in state store {request.store_name}: {refusal}"
                    raise Answer.to(refusal, text) from refusal
            return Empty()

        return await self.served("SaveState", context, work)

    async def DeleteState(self, request, context):  # noqa: N802 - the service's name
        def work():
            try:
                self.component(request.store_name).do(operation(DELETE, request))
            except RefusedError as refusal:
                raise Answer.to(
                    refusal, f"failed deleting state with key {request.key}: {refusal}"
                ) from refusal
            return Empty()

        return await self.served("DeleteState", context, work)

    async def ExecuteStateTransaction(self, request, context):  # noqa: N802 - the service's name
        def work():
            component = self.component(request.storeName)
            if "TRANSACTIONAL" not in component.capabilities:
                raise Answer(
                    grpc.StatusCode.UNIMPLEMENTED,
                    f"state store {request.storeName} doesn't support transactions",
                )
            wanted = [operation(one.operationType, one.request) for one in request.operations]
            try:
                component.multi(wanted)
            except RefusedError as refusal:
                # The runtime replaces every error of a component by this one.
                raise Answer(
                    grpc.StatusCode.INTERNAL, f"error while executing state transaction: {refusal}"
                ) from refusal
            return Empty()

        return await self.served("ExecuteStateTransaction", context, work)


class Answer(Exception):
    """A call that ends with a status."""

    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text

    @classmethod
    def to(cls, refusal: RefusedError, text: str) -> Answer:
        mismatch = isinstance(refusal, MismatchError)
        return cls(grpc.StatusCode.ABORTED if mismatch else grpc.StatusCode.INTERNAL, text)


def full(key: str) -> str:
    """Return a key as the component gets it."""
    if "||" in key:
        raise Answer(grpc.StatusCode.UNKNOWN, f"input key/keyPrefix '{key}' can't contain '||'")
    return f"{APP}||{key}"


def operation(kind: str, state) -> Operation:
    if not state.key:
        raise Answer(grpc.StatusCode.INVALID_ARGUMENT, "state key cannot be empty")
    first_write = state.options.concurrency == FIRST_WRITE
    value = b"" if kind == DELETE else state.value
    return Operation(kind, full(state.key), value, state.etag.value, first_write)


async def serve(grpc_port: int, http_port: int, file: str) -> None:
    database = sqlite3.connect(file, isolation_level=None, timeout=10)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = OFF")  # a kill is not a power cut
    database.execute(
        "CREATE TABLE IF NOT EXISTS records (component TEXT, key TEXT, value BLOB, etag TEXT, "
        "first_write INTEGER, PRIMARY KEY (component, key))"
    )
    sidecar = Sidecar(database)
    server = grpc.aio.server()
    api_service_v1.add_DaprServicer_to_server(sidecar, server)
    server.add_insecure_port(f"127.0.0.1:{grpc_port}")
    await server.start()

    async def healthy(request: web.Request) -> web.Response:
        return web.Response(status=204)

    async def faults(request: web.Request) -> web.Response:
        order = json.loads(await request.text())
        if order is None:
            sidecar.faults.clear()
        else:
            sidecar.faults.append(order)
        return web.Response(status=204)

    async def calls(request: web.Request) -> web.Response:
        return web.json_response(sidecar.calls)

    app = web.Application()
    app.add_routes(
        [
            web.get("/v1.0/healthz/outbound", healthy),
            web.post("/faults", faults),
            web.get("/calls", calls),
        ]
    )
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", http_port).start()
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]))
