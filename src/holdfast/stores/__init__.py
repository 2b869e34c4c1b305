"""Where bytes live durably: one small contract, one module a backend, and wrappers around them.

    contract.py    StateStore: what every store is
    entries.py     Entry, Put and Condition: what a key holds, is to hold, and must hold
    gate.py        what every key, value and condition passes before a backend sees it
    backend.py     what our backends share: the gate, pages, "closed" and connecting on first use
    remote.py      what those behind a network share: retries that never apply a write twice
    urls.py        a store's URL, with its secrets masked
    opening.py     open_state_store(url) and the registry of schemes
    <backend>.py   memory, sqlite, files, postgresql, redis, objectstore, nats, dapr
    wrappers/      encryption, compression, retry, prefix, read-only

A backend's module is imported when its scheme is opened, so that nobody pays for the others.
"""

from __future__ import annotations

from holdfast.stores.contract import StateStore
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.opening import open_state_store

__all__ = ["Condition", "Entry", "Put", "StateStore", "open_state_store"]
