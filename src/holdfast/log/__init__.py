"""The append-only log of one session: what happened, in order, each event bound to the one before.

    events.py     Event, and its JSON form
    changes.py    folding: what changes add up to
    chain.py      the hash that binds an event to all before it
    segments.py   the events of one commit as bytes
    event_log.py  EventLog: append and read a range, over any StateStore
    keyframes.py  the state at a place in the log, as bytes
    timeline.py   Timeline: the log with its keyframes, and the state at any place

The log is the truth. Folding is applying changes in order, with no rule for any one type of event.
"""

from __future__ import annotations

from holdfast.log.event import Event
from holdfast.log.event_log import EventLog

__all__ = ["Event", "EventLog"]
