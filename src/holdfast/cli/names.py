"""Parse store URLs and references as they are typed on the command line.

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
    """Return whether a text is a REF rather than a session id."""
    return (
        text == LATEST
        or text.startswith(TAG)
        or bool(EVENT.fullmatch(text) or UUID.fullmatch(text))
    )


def split_reference(name: str) -> list[tuple[str, str]]:
    """Return the ways to split ``SESSION@REF``, at the last ``@`` first."""
    return [(name[:at], name[at + 1 :]) for at in range(len(name) - 2, 0, -1) if name[at] == "@"]


# -------------------------------------------------------------------------------------- stores


def default_url(url: str | None) -> str:
    """Return the URL of a store: as given, from the environment, or the default."""
    return os.environ.get("HOLDFAST_STORE") or DEFAULT_URL if url is None else url


def local_path(url: StoreURL) -> str | None:
    """Return the path of a local store; None for any other."""
    return {"sqlite": url.path[1:], "file": url.path}.get(url.scheme)


def store_exists(url: StoreURL) -> bool:
    """Return whether a local store exists; True for a remote one."""
    path = local_path(url)
    return path is None or Path(path).exists()


def is_same_store(one: str, other: str) -> bool:
    """Return whether two URLs refer to the same store."""
    first, second = StoreURL(one), StoreURL(other)
    if "memory" in (first.scheme, second.scheme):
        return False  # each memory: is a separate store
    return store_identity(first) == store_identity(second)


def store_identity(url: StoreURL) -> tuple[object, ...]:
    """Return what identifies a store: its server or path, database and prefix."""
    path = local_path(url)
    prefix = url.options.get("prefix", "")
    if path is not None:
        return (url.scheme, Path(path).resolve(), prefix)
    options = {name: value for name, value in url.options.items() if name not in WRAPPERS}
    host = "localhost" if url.host.lower() in LOOPBACK else url.host.lower()
    scheme = ALIASES.get(url.scheme, url.scheme)
    return (scheme, host, url.port, url.path.rstrip("/"), tuple(sorted(options.items())))
