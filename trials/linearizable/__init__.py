"""Is the head of a session linearizable? Histories of concurrent commits, and their checker.

`recording` lets processes and tasks commit to one session at once and notes when each call began,
when it was answered, and how. `checker` decides whether one register, moved by compare-and-set and
seen by all at once, could have given those answers.
"""

from trials.linearizable.checker import Link, Operation, problems_in

__all__ = ["Link", "Operation", "problems_in"]
