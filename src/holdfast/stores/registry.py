"""``open_state_store(url)``: from a URL to a store with the wrappers that its options ask for.

Another package adds a scheme with an entry point in the group ``holdfast.state_stores``. Its name
is the scheme; its object is called with a ``StoreURL`` and returns a ``StateStore``:

    [project.entry-points."holdfast.state_stores"]
    etcd = "my_package.stores:open_etcd"
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, cast

from holdfast.errors import StateStoreError, short_repr
from holdfast.extras import require_extra
from holdfast.stores.base import StateStore
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DEFAULT_URL = "sqlite:///.holdfast/state.db"
GROUP = "holdfast.state_stores"
Opener = Callable[[StoreURL], StateStore]
Wrapper = Callable[[StateStore], StateStore]

# scheme: (the module with `open_url`, the extra that installs its dependencies)
SCHEMES: dict[str, tuple[str, str]] = {
    "memory": ("holdfast.stores.memory", ""),
    "sqlite": ("holdfast.stores.sqlite", ""),
    "file": ("holdfast.stores.files", ""),
    "postgresql": ("holdfast.stores.postgresql", "postgresql"),
    "postgres": ("holdfast.stores.postgresql", "postgresql"),
    "redis": ("holdfast.stores.redis", "redis"),
    "rediss": ("holdfast.stores.redis", "redis"),
    "s3": ("holdfast.stores.objectstore", "objectstore"),
    "gs": ("holdfast.stores.objectstore", "objectstore"),
    "az": ("holdfast.stores.objectstore", "objectstore"),
    "nats": ("holdfast.stores.nats", "nats"),
    "tls": ("holdfast.stores.nats", "nats"),
    "dapr": ("holdfast.stores.dapr", "dapr"),
}


def open_state_store(url: str | None = None) -> StateStore:
    """Return the store of a URL, which connects on first use.

    Without a URL, uses the environment variable ``HOLDFAST_STORE``, and without that SQLite in
    ``.holdfast/state.db``. Options of the URL add wrappers: ``?compress=zstd``, ``?prefix=team/``,
    ``?encrypt=NAME_OF_AN_ENVIRONMENT_VARIABLE``, ``?read_only=true``, ``?retry=5``.

    Raises:
        StateStoreError: The URL is invalid, or its scheme unknown.
        MissingExtraError: Its driver is not installed.
        TypeError: The URL is not a str.

    """
    if url is None:
        url = os.environ.get("HOLDFAST_STORE") or DEFAULT_URL
    parsed = StoreURL(url)
    wrappers = take_wrappers(parsed)
    store = find_opener(parsed)(parsed)
    if not isinstance(store, StateStore):
        raise StateStoreError(
            f"opener of {parsed.scheme} URLs returned {short_repr(store)} instead of a StateStore; "
            "fix the package that provides it"
        )
    for wrap in wrappers:
        store = wrap(store)
    return store


def find_opener(url: StoreURL) -> Opener:
    """Return the function that opens URLs of this scheme.

    Raises:
        StateStoreError: The scheme is unknown, or its entry point is broken.
        MissingExtraError: Its extra is not installed.

    """
    if url.scheme in SCHEMES:
        module, extra = SCHEMES[url.scheme]
        opener: Opener = import_backend(module, extra).open_url
        return opener
    entry_points = find_entry_points()
    if url.scheme in entry_points:
        return load_opener(entry_points[url.scheme])
    known = sorted({*SCHEMES, *entry_points})
    raise StateStoreError(
        f"unknown scheme {url.scheme!r} in the store URL; use one of {', '.join(known)}, or "
        f"install a package with an entry point in the group {GROUP}"
    )


def find_entry_points() -> dict[str, EntryPoint]:
    """Return the entry points of other packages by scheme."""
    # Imported here because it takes a third of the time of importing Holdfast.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {point.name: point for point in entry_points(group=GROUP)}


def import_backend(module: str, extra: str) -> ModuleType:
    """Import a module of Holdfast that may need an extra.

    Raises:
        MissingExtraError: The extra is not installed, or cannot be imported.
        StateStoreError: This Python was built without a standard module that it needs.

    """
    if extra:
        with require_extra(extra):
            return import_module(module)
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "holdfast":
            raise
        raise StateStoreError(
            f"{module} needs the module {error.name}, which this Python lacks; use another Python "
            "or another store"
        ) from error


def load_opener(point: EntryPoint) -> Opener:
    """Return the opener of another package.

    Raises:
        StateStoreError: It cannot be imported or is not a function.

    """
    try:
        opener: object = point.load()
    except Exception as error:
        raise broken_entry_point_error(point, f"cannot be loaded: {error!r}") from error
    if not callable(opener):
        raise broken_entry_point_error(point, "is not a function")
    return cast("Opener", opener)


def broken_entry_point_error(point: EntryPoint, problem: str) -> StateStoreError:
    """Return the error for an entry point of another package."""
    return StateStoreError(
        f"store for scheme {point.name!r} ({point.value}) {problem}; "
        "fix or uninstall the package that provides it"
    )


def take_wrappers(url: StoreURL) -> list[Wrapper]:
    """Return the wrappers that the URL's options ask for, innermost first.

    Encryption is inside the prefix: a value is bound to its full key, so it cannot be moved to
    another prefix, and can also be read without the prefix.

    Raises:
        StateStoreError: An option is invalid.
        MissingExtraError: The extra of an option is not installed.

    """
    # Imported here because they import asyncio, which the in-memory state does not need.
    from holdfast.stores.wrappers.prefix import PrefixedStateStore  # noqa: PLC0415
    from holdfast.stores.wrappers.read_only import ReadOnlyStateStore  # noqa: PLC0415
    from holdfast.stores.wrappers.retry import RetryingStateStore  # noqa: PLC0415

    wrappers: list[Wrapper] = []
    attempts = url.take_count("retry", 0)
    if attempts:
        wrappers.append(lambda store: RetryingStateStore(store, attempts=attempts))
    variable = url.take("encrypt")
    if variable is not None:
        module = import_backend("holdfast.stores.wrappers.encryption", "encryption")
        keys = module.keys_from_environment(variable)
        wrappers.append(lambda store: module.EncryptedStateStore(store, keys))
    method = url.take("compress")
    if method is not None:
        if method != "zstd":
            raise StateStoreError(f"option compress must be zstd, got {short_repr(method)}")
        compression = import_backend("holdfast.stores.wrappers.compression", "compression")
        wrappers.append(compression.CompressedStateStore)
    prefix = url.take("prefix")
    if prefix is not None:
        if not prefix:
            raise StateStoreError("option prefix must not be empty; set it or leave it out")
        wrappers.append(lambda store: PrefixedStateStore(store, prefix))
    if url.take_flag("read_only"):
        wrappers.append(ReadOnlyStateStore)
    return wrappers
