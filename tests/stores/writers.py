"""Processes that write, and processes that are killed. A program, so that forks start small.

    python writers.py count URL PROCESSES TASKS TIMES     conditional increments of one key
    python writers.py crash URL TASKS ROUNDS SEED         kill -9 of a writer at random times
    python writers.py guard URL                           what a user without permissions can do

Prints the findings as one line of JSON.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from functools import partial

import holdfast
from holdfast.stores.base import Put
from holdfast.testing.state_store_suite import collect_keys, increment, read_all

NOBODY = 65534


def in_child(work) -> int:
    """Run a coroutine function in a forked process and return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        asyncio.run(work())
        code = 0
    except BaseException as error:  # noqa: BLE001 - reported, and the process ends
        os.write(2, f"{error!r}\n".encode())
        code = 1
    os._exit(code)


async def count(url: str, tasks: int, times: int) -> None:
    async with holdfast.open_state_store(url) as store:

        async def count_in_task() -> None:
            for _ in range(times):
                await increment(store, "counter")

        await asyncio.gather(*(count_in_task() for _ in range(tasks)))


def count_in_processes(url: str, processes: int, tasks: int, times: int) -> dict:
    children = [in_child(lambda: count(url, tasks, times)) for _ in range(processes)]
    codes = [os.waitpid(child, 0)[1] for child in children]

    async def total() -> int:
        async with holdfast.open_state_store(url) as store:
            return int((await store.get("counter")).value)

    return {"failed": sum(map(bool, codes)), "total": asyncio.run(total())}


def pattern(name: str, number: int) -> bytes:
    """Return a value with a checksum."""
    dice = random.Random(f"{name}/{number}")
    body = dice.randbytes(dice.choice([0, 10, 1000, 5000, 60_000]))
    return body + hashlib.sha256(body).digest()


def is_intact(value: bytes) -> bool:
    return hashlib.sha256(value[:-32]).digest() == value[-32:]


async def write_forever(url: str, tasks: int, round_: int, acknowledged: int) -> None:
    """Write in some tasks until killed, and report each write after it is acknowledged."""
    async with holdfast.open_state_store(url) as store:

        async def write(task: int) -> None:
            name = f"{round_:03}/{task}"
            etag = None
            for number in range(1_000_000):
                value = pattern(name, number)
                key = f"{name}/{number:06}"
                match number % 3:
                    case 0:
                        await store.put(f"one/{key}", value, if_absent=True)
                    case 1:
                        await store.put_many(
                            [
                                Put(f"two/{key}/a", value),
                                Put(f"two/{key}/b", value, if_absent=True),
                            ]
                        )
                    case 2:
                        etag = await store.put(
                            f"latest/{name}", value, if_match=etag, if_absent=etag is None
                        )
                os.write(acknowledged, b"%d %d\n" % (task, number))

        await asyncio.gather(*map(write, range(tasks)))


async def verify(url: str, acknowledged: dict[str, list[int]], found: Counter) -> None:
    """Check what is stored of the tasks, given by the names of their keys, and delete it."""
    async with holdfast.open_state_store(url) as store:
        stored = await read_all(store)
        for key, value in stored.items():
            found["torn"] += not is_intact(value)
            if key.endswith("/b"):
                found["halves"] += f"{key[:-1]}a" not in stored
            if key.endswith("/a") and store.atomic_put_many:
                found["halves"] += f"{key[:-1]}b" not in stored
        for name, numbers in acknowledged.items():
            found["acknowledged"] += len(numbers)
            latest = max((number for number in numbers if number % 3 == 2), default=None)
            if latest is not None:
                # The next one may have been written without being reported.
                possible = {pattern(name, latest), pattern(name, latest + 3)}
                found["lost"] += stored.get(f"latest/{name}") not in possible
            for number in numbers:
                key = f"{name}/{number:06}"
                written = {0: [f"one/{key}"], 1: [f"two/{key}/a", f"two/{key}/b"]}
                for each in written.get(number % 3, []):
                    found["lost"] += stored.get(each) != pattern(name, number)
        await asyncio.gather(*map(store.delete, stored))


def crash(url: str, tasks: int, rounds: int, seed: int) -> dict:
    dice = random.Random(seed)
    found: Counter = Counter(torn=0, lost=0, halves=0, acknowledged=0)
    for round_ in range(rounds):
        reader, writer = os.pipe()
        child = in_child(partial(write_forever, url, tasks, round_, writer))
        os.close(writer)
        reports = b""
        while reports.count(b"\n") < 3 * tasks:  # about one write of each kind
            reports += os.read(reader, 4096)
        time.sleep(dice.uniform(0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        with os.fdopen(reader, "rb") as pipe:
            reports += pipe.read()
        acknowledged: dict[str, list[int]] = {}
        for line in reports.split(b"\n")[:-1]:
            task, number = map(int, line.split())
            acknowledged.setdefault(f"{round_:03}/{task}", []).append(number)
        asyncio.run(verify(url, acknowledged, found))
    return dict(found)


async def try_without_permission(url: str, writer: int) -> None:
    """Report what works without permission to write."""
    report = {}
    async with holdfast.open_state_store(url) as store:
        if os.getuid() == 0:
            os.seteuid(NOBODY)
        entry = await store.get("before")
        report["read"] = entry is not None and entry.value.decode()
        report["listed"] = await collect_keys(store.list())
        for name, call in (
            ("put", lambda: store.put("after", b"1")),
            ("put over", lambda: store.put("before", b"1")),
            ("delete", lambda: store.delete("before")),
        ):
            try:
                await call()
                report[name] = "done"
            except holdfast.StateStoreError as error:
                report[name] = str(error)
        os.seteuid(os.getuid())
    os.write(writer, json.dumps(report).encode())


def guard(url: str) -> dict:
    reader, writer = os.pipe()
    child = in_child(lambda: try_without_permission(url, writer))
    os.close(writer)
    os.waitpid(child, 0)
    with os.fdopen(reader) as pipe:
        return json.loads(pipe.read())


if __name__ == "__main__":
    what, url, *numbers = sys.argv[1:]
    command = {"count": count_in_processes, "crash": crash, "guard": guard}[what]
    print(json.dumps(command(url, *map(int, numbers))))
