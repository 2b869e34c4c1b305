"""Durable key-value backends behind one interface, and wrappers around them."""

from __future__ import annotations

from holdfast.stores.base import StateStore
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.registry import open_state_store

__all__ = ["Condition", "Entry", "Put", "StateStore", "open_state_store"]
