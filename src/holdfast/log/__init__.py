"""The append-only, hash-chained log of one session.

The log is the source of truth. State is the fold of the changes of its events, in order, with no
special case for any type of event. Keyframes store the state at some positions, so that a load does
not fold the whole log.
"""

from __future__ import annotations

from holdfast.log.event import Event
from holdfast.log.event_log import EventLog

__all__ = ["Event", "EventLog"]
