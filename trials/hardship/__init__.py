"""What a machine does to a store: disks that are full, places without writing, clocks that jump.

    disks       commits until the disk is full; then room is made, and all goes on
    read_only   everything that reads works, everything that writes is one clear error
    clocks      the clock is set back and forth, in one process and between two

Each trial is a function of an empty folder that gives what is wrong, one line each; `Skipped` where
this machine does not let it happen.
Run: python -m trials.hardship [--only full-disk-sqlite ...]
"""


class Skipped(Exception):
    """A trial that cannot be done here, and why."""
