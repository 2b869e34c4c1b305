"""The command line: one module per verb.

console.py     options, printing, errors and exit codes: what every command shares
output.py      where commands print, also where nobody reads it
names.py       how stores and states are written
references.py  what a person names: a file, a session, a snapshot of one
completion.py  what the shell offers
main.py        the commands put together
"""
