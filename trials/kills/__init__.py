"""Processes that are killed in the middle of their work, and what must hold afterwards.

A worker repeats one kind of operation on a store, and records in its ledger what it starts and what
was acknowledged. At a random time within an operation it is killed with ``kill -9``. Then all is
verified: what was acknowledged is stored, nothing is stored twice, and the interrupted operation
can be repeated. With PostgreSQL, the server is killed as well while the worker runs.

    python -m trials.kills [--kills 200] [--backend sqlite files postgresql] [--kind NAME …]
        [--seed N]
"""
