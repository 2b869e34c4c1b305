"""Contestants of the benchmarks of a conversation and of its history, one module each.

Each peer is called as its own documentation says, with its default durability, or SQLite's
``synchronous=FULL`` where it takes a connection.
"""
