"""Wrappers: a ``StateStore`` around another one that adds one feature.

``open_state_store`` puts compression outside encryption, because encrypted bytes do not compress.
"""
