"""LangGraph's threads as sessions: ``HoldfastSaver``. Needs the extra ``langgraph``.

saver.py          HoldfastSaver: what LangGraph asks of a checkpointer
blocking.py       the same for graphs that are not async; waiting.py is the loop that does it
thread.py         one thread: a session, each of whose checkpoints is an event and a snapshot
acts.py           changes that are not committed yet, and their outcome
contention.py     turns of several writers of one thread
change.py         what a checkpoint changes in the state of its session
writes.py         what tasks wrote after a checkpoint
deltas.py         what delta channels are made of
metadata.py       metadata of checkpoints as JSON keeps it, and filters
history.py        checkpoints as LangGraph wants them, from the state or by a walk through the log
deleting.py       removing checkpoints and threads
copying.py        copying a thread whole
rollback.py       rolling threads back to a time
codec.py          values of channels as values of a session, and back
serializer.py     LangGraph's serializer, kept to types that are allowed
observability.py  spans and metrics
names.py          where all of that is in the state
"""

from __future__ import annotations

from holdfast.adapters.requirement import require_version

# The first one that says in which order writes of tasks are applied.
require_version("langgraph-checkpoint", "4.3", "langgraph")

from holdfast.adapters.langgraph.observability import MetricsSink  # noqa: E402
from holdfast.adapters.langgraph.rollback import ThreadRollback  # noqa: E402
from holdfast.adapters.langgraph.saver import HoldfastSaver  # noqa: E402
from holdfast.adapters.langgraph.serializer import BlockedTypeWarning  # noqa: E402

__all__ = ["BlockedTypeWarning", "HoldfastSaver", "MetricsSink", "ThreadRollback"]
