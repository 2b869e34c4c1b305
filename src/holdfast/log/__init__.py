"""The append-only log of one session: what happened, in order, each event bound to the one before.

    events.py     Event, and its JSON form
    changes.py    what an event sets and deletes, and folding them into state
    chain.py      the hash that binds an event to all before it
    segments.py   the events of one commit as bytes
    event_log.py  EventLog: append, read a range, verify, over any StateStore

The log is the truth. Folding is applying changes in order, with no rule for any one type of event.
"""

from __future__ import annotations

from holdfast.log.event_log import EventLog
from holdfast.log.events import Event

__all__ = ["Event", "EventLog"]
