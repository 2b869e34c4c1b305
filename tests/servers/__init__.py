"""Real servers for the tests, each from a wheel, started once a run in a temporary folder.

A module a server, with a class that is started on free ports of this machine, can be killed and
started again in the middle of a test, and is stopped by the run that started it.
"""
