"""Documents of others: what other programs kept becomes sessions.

    registry.py             which formats can be read, and how others add theirs
    source.py               a file or a database that is read from
    history.py              states, one after the other, as the log of a session
    keeping.py              snapshots in that log, where its program came to rest
    holdfast_document.py    Holdfast's own documents
    chat.py                 a plain list of messages
    strands.py              snapshots of Strands
    langgraph_sqlite.py     threads of LangGraph's SqliteSaver
    langgraph_postgres.py   threads of LangGraph's PostgresSaver
    langgraph_thread.py     what both have in common: a thread as a session
    langgraph_serde.py      values of checkpoints as plain data

Nothing here writes to what it reads, runs what it finds there, or needs a package before it is
used.
"""

from __future__ import annotations

from holdfast.foreign.history import History
from holdfast.foreign.keeping import keep_snapshots
from holdfast.foreign.registry import Reader, read, register_reader, unregister_reader
from holdfast.foreign.source import Source

__all__ = [
    "History",
    "Reader",
    "Source",
    "keep_snapshots",
    "read",
    "register_reader",
    "unregister_reader",
]
