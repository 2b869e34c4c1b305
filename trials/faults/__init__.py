"""Every operation, with every kind of fault at every call to its store.

An operation runs once to count its calls, and then once for each call and each fault that can
happen to it. Afterwards, a process that opens the sessions finds them sound, with everything that
was there before, and the operation wholly done or not at all. It can be repeated, by the process in
which it failed and by another.
"""
