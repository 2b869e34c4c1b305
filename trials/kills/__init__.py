"""Real processes that are killed in the middle of their work, and what must be true afterwards.

A worker does one kind of work on a store in a loop, and notes in its ledger what it begins and what
it was told is done. At a random moment inside an operation it gets a ``kill -9``. Then this process
opens the store: all is verified, all that was acknowledged is there, nothing is there twice, and
the operation that was interrupted is done again and must succeed. With PostgreSQL the server is
killed as well, while the worker goes on.

    worker   the process that is killed: a warm one that forks a fresh victim for each kill
    kinds    what victims do, one class a kind of work, and how each is checked
    places   where stores are: empty ones by name, and the server behind them

Run: python -m trials.kills [--kills 200] [--backend sqlite files postgresql] [--seed N]
"""
