"""Find the conversation of an entry by the entry's id, without looking into other conversations.

    pydantic_ai/agents/<agent_id>/entries/<last id>/<conversation_id>/<incarnation>

A key stands for a group of ids that one save added to one conversation, and its value lists them.
Pydantic AI's ids are in the order of time, and those of a save are made together, so that the key
is the first one at or after an id of its group, or nearly the first. All ids of a group have the
same first characters, which bounds the search. An id of another form is a group of its own.

A save writes the key before it commits, so that a crash leaves at most a key for ids that the
conversation does not have: a reader verifies what it finds in the conversation itself, and deletes
nothing. A conversation that is deleted and created again is another incarnation with other keys,
so that a deletion takes away only its own.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable

from holdfast.adapters.pydantic_ai.layout import is_plain_id
from holdfast.snapshots.keys import quote_id, unquote_id
from holdfast.stores.base import StateStore
from holdfast.stores.batch_read import split_batches
from holdfast.stores.entries import Entry, Put
from holdfast.stores.local import gather

SAME_PREFIX = 10
"""Ids of a group start with the same characters: as UUIDs of version 7, within four seconds."""
PAGE_SIZE = 16
BATCH_SIZE = 100


class EntryIndex:
    """The index of the entries of one agent's conversations."""

    def __init__(self, state_store: StateStore, agent_id: str) -> None:
        self.state_store = state_store
        self.prefix = f"pydantic_ai/agents/{quote_id(agent_id)}/entries/"

    def key(self, last_id: str, conversation_id: str, incarnation: str) -> str:
        """Return the key of a group of ids."""
        return f"{self.prefix}{quote_id(last_id)}/{quote_id(conversation_id)}/{incarnation}"

    async def add(
        self, groups: Iterable[list[str]], conversation_id: str, incarnation: str
    ) -> None:
        """Write the keys of groups of ids.

        Raises:
            StateStoreError: The store failed.

        """
        puts = [
            Put(self.key(ids[-1], conversation_id, incarnation), json.dumps(ids).encode())
            for ids in groups
        ]
        for batch in split_batches(puts, BATCH_SIZE):
            await self.state_store.put_many(batch)

    async def has(self, last_id: str, conversation_id: str, incarnation: str) -> bool:
        """Return whether the key of a group exists.

        Raises:
            StateStoreError: The store failed.

        """
        key = self.key(last_id, conversation_id, incarnation)
        return await self.state_store.get(key) is not None

    async def remove(self, last_ids: Iterable[str], conversation_id: str, incarnation: str) -> None:
        """Delete the keys of groups of ids.

        Raises:
            StateStoreError: The store failed.

        """
        keys = [self.key(each, conversation_id, incarnation) for each in last_ids]
        for batch in split_batches(keys, BATCH_SIZE):
            await gather([self.state_store.delete(key) for key in batch])

    async def find(self, entry_id: str) -> AsyncIterator[str]:
        """Yield the conversations that have, or had, an entry.

        Raises:
            StateStoreError: The store failed.

        """
        start = f"{self.prefix}{quote_id(entry_id)}"
        shared = f"{start}/"
        if is_plain_id(entry_id):
            shared = f"{self.prefix}{entry_id[:SAME_PREFIX]}"
        while True:
            listing = self.state_store.list(self.prefix, start_after=start, limit=PAGE_SIZE)
            keys = [key async for key in listing]
            near = [key for key in keys if key.startswith(shared)]
            found = await self.state_store.get_many(near)
            for key, entry in found.items():
                parts = key[len(self.prefix) :].split("/")
                if len(parts) == 3 and entry_id in decode_ids(entry):
                    yield unquote_id(parts[1])
            if len(near) < PAGE_SIZE:
                return
            start = keys[-1]


def group_ids(ids: Iterable[str]) -> list[list[str]]:
    """Split ids, in their order, into groups that ascend and start with the same characters."""
    groups: list[list[str]] = []
    last = ""
    for each in ids:
        is_near = is_plain_id(each) and each[:SAME_PREFIX] == last[:SAME_PREFIX]
        if is_near and is_plain_id(last) and each > last:
            groups[-1].append(each)
        else:
            groups.append([each])
        last = each
    return groups


def decode_ids(entry: Entry) -> list[str]:
    """Return the ids of a group; none if the entry is damaged."""
    try:
        ids = json.loads(entry.value)
    except ValueError:
        return []
    return [each for each in ids if isinstance(each, str)] if isinstance(ids, list) else []
