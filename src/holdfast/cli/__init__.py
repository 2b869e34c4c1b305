"""The command line: one module a verb.

console.py     options, printing, errors and exit codes: what every command shares
references.py  what a person names: a file, a session, a snapshot of one
main.py        the commands put together
"""
