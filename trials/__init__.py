"""Long runs that try to make Holdfast lose data. Each prints a table, and fails on any loss.

    faults        every operation, with every kind of fault at every call to its store
    kills         processes and servers that are killed
    hardship      full disks, read-only stores, clocks that jump
    soak          many processes on one store for a given time, with a server
    linearizable  whether concurrent commits have one order that every client could have seen
    fuzz          hostile input for everything that reads

Each is a program, ``python -m trials.NAME``, and has a short version among the tests.
"""
