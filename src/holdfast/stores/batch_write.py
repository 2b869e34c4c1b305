"""A call of ``put`` or ``put_many`` on its way to a server."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from holdfast.errors import ConflictError
from holdfast.stores.backend import etag_mismatch_error, key_exists_error, new_etag
from holdfast.stores.entries import Condition, Put


@dataclass(frozen=True, slots=True)
class BatchWrite:
    """Puts with their new etags, conditions, and the token that all attempts share."""

    puts: Sequence[Put]
    conditions: Sequence[Condition]
    etags: list[str]
    token: str

    @classmethod
    def create(cls, puts: Sequence[Put], conditions: Sequence[Condition]) -> Self:
        """Return a batch with new etags and a new token."""
        return cls(puts, conditions, [new_etag() for _ in puts], new_token())

    def conflict(self, number: int, found: str | None) -> ConflictError:
        """Return the error of a condition, with the etag that its key has, if it exists.

        Conditions are numbered from 0, and after them the puts.
        """
        if number < len(self.conditions):
            condition = self.conditions[number]
            return etag_mismatch_error(condition.key, condition.etag, found)
        put = self.puts[number - len(self.conditions)]
        if put.if_match is None:
            return key_exists_error(put.key)
        return etag_mismatch_error(put.key, put.if_match, found)


def new_token() -> str:
    """Return a token that no other write has."""
    return secrets.token_hex(16)
