"""What redis-py's errors mean: by class, or by the error code of the server's reply."""

from __future__ import annotations

import re
from dataclasses import dataclass

from redis import exceptions

from holdfast.errors import StateStoreError


class ConnectError(exceptions.ConnectionError):
    """A connection could not be made, so nothing was sent."""


class PoolTimeoutError(exceptions.ConnectionError):
    """No connection of the pool was free in time, so nothing was sent."""


@dataclass(frozen=True, slots=True)
class ErrorKind:
    """Errors with the same meaning and remedy."""

    classes: tuple[type[Exception], ...]
    codes: frozenset[str]
    meaning: str
    remedy: str = ""
    transient: bool = False
    unknown: bool = False


# The first that matches counts.
ERROR_KINDS = (
    ErrorKind(
        (exceptions.AuthenticationError, exceptions.AuthenticationWrongNumberOfArgsError),
        frozenset({"NOAUTH", "WRONGPASS"}),
        "denied access",
        "check the user name and password of the URL",
    ),
    ErrorKind(
        (exceptions.NoPermissionError,),
        frozenset({"NOPERM"}),
        "denied access",
        "allow the user the keys {holdfast:* and PING, EVALSHA, SCRIPT LOAD, EXISTS, HGET, HMGET, "
        "HSET, SET, DEL, ZADD, ZCARD, ZREM, ZRANGEBYLEX, MULTI and EXEC",
    ),
    ErrorKind(
        (exceptions.OutOfMemoryError,),
        frozenset({"OOM"}),
        "is out of memory",
        "raise its maxmemory, or delete data",
    ),
    ErrorKind(
        (), frozenset({"MISCONF"}), "cannot save its data", "its disk may be full; check its log"
    ),
    ErrorKind(
        (),
        frozenset({"WRONGTYPE"}),
        "has data of another program under the store's names",
        "set the option namespace of the URL",
    ),
    ErrorKind(
        (exceptions.MasterDownError, exceptions.BusyLoadingError, exceptions.TryAgainError),
        frozenset({"LOADING", "MASTERDOWN", "TRYAGAIN", "NOREPLICAS", "BUSY"}),
        "is temporarily unavailable",
        transient=True,
    ),
    ErrorKind(
        (exceptions.AskError, exceptions.ClusterError, exceptions.ClusterCrossSlotError),
        frozenset({"MOVED", "ASK", "CLUSTERDOWN", "CROSSSLOT"}),
        "is a node of a cluster",
        "use a server that is not, or the one that has all slots",
    ),
    ErrorKind(
        (exceptions.ReadOnlyError,),
        frozenset({"READONLY"}),
        "does not accept writes",
        "it is a replica; use its master",
        transient=True,
    ),
    ErrorKind(
        (PoolTimeoutError,),
        frozenset(),
        "has no connection free",
        "raise the option pool of the URL",
        transient=True,
    ),
    ErrorKind(
        (ConnectError,),
        frozenset(),
        "cannot be reached",
        "check that the server is running, accepts more clients (maxclients), and whether it needs "
        "rediss:// for TLS",
        transient=True,
    ),
    ErrorKind(
        (exceptions.ConnectionError, exceptions.TimeoutError),
        frozenset(),
        "lost the connection",
        transient=True,
        unknown=True,
    ),
)
OTHER = ErrorKind((), frozenset(), "rejected the request")

# An error reply starts with its code. redis-py has classes for some codes only, and before Redis 7
# an error inside a script has the code ERR and its own code after the script's name.
CODE = re.compile(r"(?:^|: -?)([A-Z]+)\b")


def explain_error(error: Exception, display_url: str) -> StateStoreError:
    """Return what an error of redis-py means to the caller of a store."""
    kind = find_kind(error)
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".")
    return StateStoreError(
        f"{display_url} {kind.meaning}: {text}" + (f"; {kind.remedy}" if kind.remedy else ""),
        transient=kind.transient,
        unknown=kind.unknown,
    )


def find_kind(error: Exception) -> ErrorKind:
    """Return the kind of an error by its class or the codes of its reply."""
    codes = CODE.findall(str(error)) if isinstance(error, exceptions.ResponseError) else []
    for kind in ERROR_KINDS:
        if isinstance(error, kind.classes) or not kind.codes.isdisjoint(codes):
            return kind
    return OTHER
