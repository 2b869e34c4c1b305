"""LangGraph's threads as sessions: ``HoldfastSaver``. Needs the extra ``langgraph``.

saver.py     HoldfastSaver: what LangGraph asks of a checkpointer
thread.py    one thread: a session, each of whose checkpoints is an event and a snapshot
change.py    what a checkpoint changes in the state of its session
writes.py    what tasks wrote after a checkpoint
deltas.py    what delta channels are made of
history.py   checkpoints as LangGraph wants them, from the state or by a walk through the log
deleting.py  removing checkpoints and threads
copying.py   copying a thread whole
contention.py  turns of several writers of one thread
acts.py      changes that are not committed yet, and their outcome
codec.py     values of channels as values of a session, and back
serializer.py  LangGraph's serializer, kept to types that are allowed
metadata.py  metadata of checkpoints, as JSON keeps it, and filters
names.py     where all of that is in the state
"""

from __future__ import annotations

from holdfast.adapters.requirement import check_version

# The first one that says in which order writes of tasks are applied.
check_version("langgraph-checkpoint", "4.3", "langgraph")

from holdfast.adapters.langgraph.saver import HoldfastSaver  # noqa: E402
from holdfast.adapters.langgraph.serializer import BlockedTypeWarning  # noqa: E402

__all__ = ["BlockedTypeWarning", "HoldfastSaver"]
