"""Trials: long runs that try to lose something. Each prints what it did, and fails where it lost.

    faults        every operation, with every kind of fault at every call of the store under it
    kills         real processes and servers that are killed
    hardship      full disks, places that take no writes, clocks that jump
    soak          many processes on one store for a given time, and a server beside them
    linearizable  whether commits from everywhere have one order that all could have seen
    fuzz          hostile input for everything that reads

Each is a program, ``python -m trials.NAME``, and has a bounded version among the tests.
"""
