"""LangGraph checkpoints under a jumping clock: the last one written is the current one.

LangGraph derives checkpoint ids from the time, orders by them, and keeps that order within a
process. Here each checkpoint is written as if by a new process.
"""

from __future__ import annotations

from pathlib import Path

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata, empty_checkpoint
from langgraph.checkpoint.base import id as checkpoint_ids

from holdfast.adapters.langgraph import HoldfastSaver
from trials.hardship.clocks import JUMPS, shift_clock
from trials.hardship.disks import url_in


def run_checkpoints(folder: Path, jumps: tuple[float, ...] = JUMPS) -> list[str]:
    """Continue a thread while the clock jumps."""
    url = url_in(folder, "sqlite")
    problems = []
    before: str | None = None
    for number, seconds in enumerate(jumps):
        with shift_clock(seconds):
            before = put(url, number, before)
        for wrong in (0.0, seconds):
            with shift_clock(wrong):
                problems += current_problems(url, before, number)
    return problems


def put(url: str, number: int, before: str | None) -> str:
    """Write one more checkpoint; return its id."""
    checkpoint_ids._last_v6_timestamp = None  # as in a new process
    checkpoint: Checkpoint = {
        **empty_checkpoint(),
        "channel_values": {"number": number},
        "channel_versions": {"number": f"{number + 1:08}"},
    }
    metadata: CheckpointMetadata = {"source": "loop", "step": number, "parents": {}}
    with HoldfastSaver.from_url(url) as saver:
        saver.put(config_of(before), checkpoint, metadata, checkpoint["channel_versions"])
    return checkpoint["id"]


def current_problems(url: str, last: str, number: int) -> list[str]:
    """Return what is wrong with a thread after its checkpoint with this number."""
    with HoldfastSaver.from_url(url) as saver:
        found = saver.get_tuple(config_of(None))
        listed = {row.checkpoint["id"] for row in saver.list(config_of(None))}
    problems = []
    if found is None or found.checkpoint["id"] != last:
        problems.append(f"checkpoint {number} is not the current one")
    elif found.checkpoint["channel_values"] != {"number": number}:
        problems.append(f"checkpoint {number} has another value")
    if len(listed) != number + 1:
        problems.append(f"{len(listed)} checkpoints are listed after checkpoint {number}")
    return problems


def config_of(id_: str | None) -> RunnableConfig:
    """Return the config of a checkpoint, or of a thread's current one."""
    known = {} if id_ is None else {"checkpoint_id": id_}
    return {"configurable": {"thread_id": "thread", "checkpoint_ns": "", **known}}
