"""Many processes on one store for a given time, and a server that shows it to somebody meanwhile.

`working` is one of the processes that write, `watching` the one that looks through the server, as
the viewer's pages do. They work in three rounds. After each of them all stand still, and `checking`
holds what is in the store against what they were told. `memory` is measured all the time.
"""
