"""Check that the head of a session is linearizable.

Processes and tasks commit to one session concurrently and record when each call started, when it
returned, and its result. A checker decides whether one register, moved by compare-and-set and seen
by all at once, could have produced those results.
"""

from trials.linearizable.checker import Link, Operation, problems_in

__all__ = ["Link", "Operation", "problems_in"]
