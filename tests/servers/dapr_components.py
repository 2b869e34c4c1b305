"""The components of the fake Dapr sidecar: how each kind of store handles an operation."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

UPSERT, DELETE = "upsert", "delete"


class RefusedError(Exception):
    """An operation that a component refuses."""


class MismatchError(RefusedError):
    """An etag mismatch, where the component can tell it from other failures."""

    def __str__(self) -> str:
        return f"possible etag mismatch. error from state store: {super().__str__()}"


@dataclass
class Operation:
    kind: str
    key: str
    value: bytes
    etag: str
    first_write: bool


class Component:
    """Behaves like ``state.in-memory``."""

    type = "state.in-memory"
    capabilities = ("ETAG", "TRANSACTIONAL", "TTL")

    def __init__(self, name: str, database: sqlite3.Connection) -> None:
        self.name = name
        self.database = database

    def get(self, key: str) -> tuple[bytes, str]:
        row = self._row(key)
        return (b"", "") if row is None else (row[0], row[1])

    @contextmanager
    def alone(self) -> Iterator[None]:
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.database.execute("ROLLBACK")
            raise
        self.database.execute("COMMIT")

    def do(self, operation: Operation) -> None:
        with self.alone():
            self.check(operation)
            self.apply(operation)

    def multi(self, operations: list[Operation]) -> None:
        with self.alone():
            for operation in operations:
                self.check(operation)
            for operation in operations:
                self.apply(operation)

    def check(self, operation: Operation) -> None:
        row = self._row(operation.key)
        if operation.etag:
            if row is None:
                raise MismatchError(f"state not exist or expired for key={operation.key}")
            if row[1] != operation.etag:
                raise MismatchError(
                    f"state etag not match for key={operation.key}: "
                    f"current={row[1]}, expect={operation.etag}"
                )
        elif operation.first_write and row is not None:
            raise MismatchError("item already exists and no etag was passed")

    def apply(self, operation: Operation) -> None:
        if operation.kind == DELETE:
            self._delete(operation.key)
        else:
            self._write(operation.key, operation.value, str(uuid.uuid4()), flag=False)

    def _row(self, key: str) -> tuple[bytes, str, int] | None:
        query = "SELECT value, etag, first_write FROM records WHERE component = ? AND key = ?"
        return self.database.execute(query, [self.name, key]).fetchone()

    def _write(self, key: str, value: bytes, etag: str, *, flag: bool) -> None:
        self.database.execute(
            "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)",
            [self.name, key, value, etag, flag],
        )

    def _delete(self, key: str) -> None:
        self.database.execute(
            "DELETE FROM records WHERE component = ? AND key = ?", [self.name, key]
        )


class RedisLike(Component):
    """Behaves like ``state.redis``: scripts per record, and MULTI without rollback for several."""

    type = "state.redis"

    def do(self, operation: Operation) -> None:
        try:
            with self.alone():
                self._script(operation)
        except RefusedError as refusal:
            if operation.etag or operation.kind == DELETE:
                raise MismatchError(str(refusal)) from refusal
            raise RefusedError(f"failed to set key {operation.key}: {refusal}") from refusal

    def multi(self, operations: list[Operation]) -> None:
        refusals = []
        with self.alone():
            for operation in operations:
                operation.first_write = False  # its pipeline drops it
                try:
                    self._script(operation)
                except RefusedError as refusal:
                    refusals.append(refusal)
        if refusals:
            raise refusals[0]

    def _script(self, operation: Operation) -> None:
        row = self._row(operation.key)
        expected = operation.etag or "0"
        if operation.kind == DELETE:
            if row is not None and expected not in (row[1], "0"):
                raise RefusedError(
                    f"ERR Error running script: user_script:1: failed to delete {operation.key}"
                )
            self._delete(operation.key)
            return
        flagged = row is not None and bool(row[2])
        if row is not None and row[1] != expected and (flagged or expected != "0"):
            raise RefusedError(
                f"ERR Error running script: user_script:1: failed to set key {operation.key}"
            )
        version = str(int(row[1]) + 1 if row is not None else 1)
        self._write(operation.key, operation.value, version, flag=flagged or operation.first_write)


class EtagsOnly(Component):
    type = "state.couchbase"
    capabilities = ("ETAG",)


class Plain(Component):
    type = "state.memcached"
    capabilities = ()

    def get(self, key: str) -> tuple[bytes, str]:
        return super().get(key)[0], ""

    def check(self, operation: Operation) -> None:
        return


COMPONENTS = {
    "statestore": Component,
    "redisstore": RedisLike,
    "etagstore": EtagsOnly,
    "plainstore": Plain,
}
