"""Many processes on one store for a given time, with a server that is queried concurrently.

Writers and a process that behaves like the viewer's pages run in three rounds. After each round all
of them pause, and what is stored is compared with what they recorded. Memory is sampled throughout.
"""
