"""Every operation, with every kind of fault at every call of the store under it.

    trial      all cases, on every store
    works      the operations: those of the tests' crashes, and copies, backups, imports, readings
    seeing     what is stored, as one who only reads finds it, after checking that it is sound
    trying     one operation with one fault, what may come of it, and doing it again

Each is run once to count its calls, and then for each call and each fault that can befall it.
Whoever opens the sessions next finds them sound, with all that was there before and the operation
wholly done or not at all; and it can be repeated, by the process in which it failed and by another.
"""
