"""Stores around stores: each adds one thing, and is a ``StateStore`` like the one inside.

They stack in any order that makes sense; ``open_state_store`` puts compression outside encryption,
as encrypted bytes do not compress.
"""
