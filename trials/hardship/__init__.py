"""Bad conditions: full disks, read-only stores, clocks that jump.

Each trial is a function of an empty folder that returns what is wrong, one line each, or raises
`Skipped` if this machine does not permit it.

    python -m trials.hardship [--only full-disk-sqlite ...]
"""


class Skipped(Exception):
    """The trial cannot run here, and why."""
