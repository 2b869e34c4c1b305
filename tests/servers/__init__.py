"""Real servers for the tests, installed from wheels, started once per run in a temporary folder.

One module per server, with a class that starts it on free local ports. A test may kill and restart
it; the run that started a server stops it.
"""
