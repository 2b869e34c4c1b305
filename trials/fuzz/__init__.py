"""Hostile input for everything that reads: it is read, or refused in one clear error.

    python -m trials.fuzz [--seconds 60] [--target all] [--seed N] [--replay FILE]

Real inputs are damaged (`mutation`) and inputs of the right shape are made up (`junk`). What each
target has to promise is said in its module; what all of them promise, in `trying`: no other error,
no hang, no great amount of memory, nothing run or opened that the data names. Each target runs in a
process of its own (`child`), so that a crash is a finding too.
"""
