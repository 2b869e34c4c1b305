"""LangGraph threads that a kill interrupts, with checkpoints committed in the background."""

from __future__ import annotations

import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple, empty_checkpoint

from holdfast import SnapshotArchive, open_state_store
from holdfast.adapters.langgraph import HoldfastSaver
from trials.kills.tasks import WORK, Kind, Task
from trials.tokens import Ledger, Tokens, read_ledgers

AT_ONCE = 4
"""Threads of one process that put at once."""
SYNC_EVERY = 6
"""A durable checkpoint after this many: it takes the deferred ones along."""


class Threads(Kind):
    """Put checkpoints of several threads, most of them with durability="async"."""

    name = "langgraph"
    operations = 150

    def task(self, number: int) -> Task:
        """Return the task of the next worker."""
        session = f"{self.name}-{number}"
        url = self.stores.url("written")
        return Task(self.name, number, self.ledger(number), "written", url, session)

    @staticmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Put until killed."""
        saver = HoldfastSaver.from_url(task.url)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: put_for_ever(saver, name, ledger), names_of(task)))

    async def check(self, task: Task) -> list[str]:
        """Check that each thread has its first checkpoints, without a gap, and goes on."""
        problems = []
        tokens = read_ledgers([Path(task.ledger)])
        async with open_state_store(task.url) as store:
            saver = HoldfastSaver(store)
            for name in names_of(task):
                if name not in tokens:
                    continue
                found = [each async for each in saver.alist(config_of(name))]
                problems += [f"{name}: {each}" for each in list_problems(found, tokens[name])]
                following = len(found) + 1
                await saver.aput(config_of(name), *checkpoint_of(following))
                last = await saver.aget_tuple(config_of(name))
                if last is None or last.checkpoint["channel_values"] != {"x": following}:
                    problems.append(f"{name}: it does not go on after {len(found)}")
                damage = (await SnapshotArchive(store).verify(location=saver.location(name))).damage
                problems += [f"{name}: {each.key}: {each.problem}" for each in damage]
        return problems + self.stores.strays(task.store)


def names_of(task: Task) -> list[str]:
    """Return the ids of the threads that are written at once."""
    return [f"{task.session}-{number}" for number in range(AT_ONCE)]


def config_of(name: str, **more: Any) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": name, "checkpoint_ns": "", **more}}


def checkpoint_of(number: int) -> tuple[Any, Any, Any]:
    """Return a checkpoint with its number, its metadata and its versions."""
    versions = {"x": f"{number:08}.0"}
    checkpoint = {
        **empty_checkpoint(),
        "id": f"1f1e0000-0000-6000-8000-{number:012}",
        "channel_values": {"x": number},
        "channel_versions": versions,
    }
    return checkpoint, {"source": "loop", "step": number}, versions


def put_for_ever(saver: HoldfastSaver, name: str, ledger: Ledger) -> None:
    """Put checkpoints until killed; those before a durable one are durable when it returns."""
    dice = random.Random(name)
    deferred: list[str] = []
    for number in itertools.count(1):
        token = str(number)
        durability = "sync" if dice.random() < 1 / SYNC_EVERY else "async"
        ledger.begin(name, token)
        ledger.begin(WORK, f"{name}/{token}")
        given = config_of(name, __pregel_durability=durability)
        config = saver.put(given, *checkpoint_of(number))
        config["configurable"]["__pregel_durability"] = durability
        saver.put_writes(config, [("x", number)], "task")
        deferred.append(token)
        ledger.done(WORK, f"{name}/{token}")
        if durability == "sync":
            for each in deferred:
                ledger.done(name, each)
            deferred.clear()


def list_problems(found: list[CheckpointTuple], tokens: Tokens) -> list[str]:
    """Return what is wrong with the checkpoints of a thread, newest first."""
    steps = [each.metadata["step"] for each in reversed(found)]
    problems = []
    if steps != list(range(1, len(steps) + 1)):
        problems.append(f"it has the checkpoints {steps}")
    if len(steps) < len(tokens.acknowledged):
        problems.append(f"{len(tokens.acknowledged)} were durable, and it has {len(steps)}")
    if len(steps) > len(tokens.begun):
        problems.append(f"it has {len(steps)}, and {len(tokens.begun)} were put")
    for each in found:
        step = each.metadata["step"]
        if each.checkpoint["channel_values"] != {"x": step}:
            problems.append(f"checkpoint {step} holds {each.checkpoint['channel_values']}")
        # The writes of a task follow their checkpoint, so only those of the last may be missing.
        is_last = step == len(steps) and step > len(tokens.acknowledged)
        if each.pending_writes != [("task", "x", step)] and not is_last:
            problems.append(f"checkpoint {step} has the writes {each.pending_writes}")
    return problems
