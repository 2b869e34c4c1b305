"""Durable key-value storage: one interface, one module or package per backend, and wrappers.

A backend is imported when its URL scheme is first opened, so that the others cost nothing.
"""

from __future__ import annotations

from holdfast.stores.base import StateStore
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.registry import open_state_store

__all__ = ["Condition", "Entry", "Put", "StateStore", "open_state_store"]
