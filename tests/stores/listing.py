"""List the keys of a store in a test."""

from __future__ import annotations


async def list_keys(store, *args, **options):
    """Return the keys of a listing."""
    return [key async for key in store.list(*args, **options)]
