"""Hostile input for everything that reads: it is accepted, or refused with one clear error.

    python -m trials.fuzz [--seconds 60] [--target all] [--seed N]

Hypothesis mutates valid inputs and generates invalid ones (`strategies`), and shrinks what it
finds. Findings are kept in build/fuzz, from where the next run tries them first. What every reader
promises is checked by `target` and `sandbox`, what a single one promises by its own module.
"""
