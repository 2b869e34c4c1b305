"""How stores and states of a session are written on the command line.

A REF names a state of a session: a snapshot id or an unambiguous prefix of one, the number of an
event, ``latest``, or ``tag:k=v``. Digits that do not start with 0 are the number of an event unless
they are the whole id of a snapshot: the ids that Holdfast makes start with 0.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from holdfast.stores.registry import DEFAULT_URL
from holdfast.stores.urls import StoreURL

LATEST = "latest"
TAG = "tag:"
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
EVENT = re.compile(r"[1-9][0-9]{0,11}")

ALIASES = {"postgres": "postgresql", "rediss": "redis", "tls": "nats"}
LOOPBACK = ("localhost", "127.0.0.1", "::1", "")
WRAPPERS = ("compress", "encrypt", "read_only", "retry")


def looks_like_ref(text: str) -> bool:
    """Whether a text can only be a REF, or is most likely one."""
    return (
        text == LATEST
        or text.startswith(TAG)
        or bool(EVENT.fullmatch(text) or UUID.fullmatch(text))
    )


def split_reference(name: str) -> list[tuple[str, str]]:
    """Split ``SESSION@REF`` at each of its ``@``, the last one first: both sides may have one."""
    return [(name[:at], name[at + 1 :]) for at in range(len(name) - 2, 0, -1) if name[at] == "@"]


# -------------------------------------------------------------------------------------- stores


def named_or_usual(url: str | None) -> str:
    """The URL of a store, where none was named that of the environment, or the usual one."""
    return os.environ.get("HOLDFAST_STORE") or DEFAULT_URL if url is None else url


def path_of(url: StoreURL) -> str | None:
    """Where a store on this machine is kept; None for any other."""
    return {"sqlite": url.path[1:], "file": url.path}.get(url.scheme)


def is_there(url: StoreURL) -> bool:
    """Whether a store is there, as far as this machine can tell."""
    path = path_of(url)
    return path is None or Path(path).exists()


def is_same_store(one: str, other: str) -> bool:
    """Whether two URLs lead to the same entries, however they are spelled."""
    first, second = StoreURL(one), StoreURL(other)
    if "memory" in (first.scheme, second.scheme):
        return False  # each is a store of its own
    return identity(first) == identity(second)


def identity(url: StoreURL) -> tuple[object, ...]:
    """What tells a store from others: where it is, and which part of that it uses."""
    path = path_of(url)
    prefix = url.options.get("prefix", "")
    if path is not None:
        return (url.scheme, Path(path).resolve(), prefix)
    options = {name: value for name, value in url.options.items() if name not in WRAPPERS}
    host = "localhost" if url.host.lower() in LOOPBACK else url.host.lower()
    scheme = ALIASES.get(url.scheme, url.scheme)
    return (scheme, host, url.port, url.path.rstrip("/"), tuple(sorted(options.items())))
