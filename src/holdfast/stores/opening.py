"""``open_state_store(url)``: from a URL to a store, with the wrappers that its options ask for.

Another package adds a scheme by an entry point of the group ``holdfast.state_stores``, whose name is
the scheme and whose object is called with a ``StoreURL`` and gives a ``StateStore``:

    [project.entry-points."holdfast.state_stores"]
    etcd = "my_package.stores:open_etcd"
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType

from holdfast.errors import StateStoreError
from holdfast.stores.contract import StateStore
from holdfast.stores.urls import StoreURL

DEFAULT_URL = "sqlite:///.holdfast/state.db"
GROUP = "holdfast.state_stores"
Opener = Callable[[StoreURL], StateStore]

# scheme: (the module that has `open_url`, the extra that brings what it needs)
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
    """The store that a URL names: ``HOLDFAST_STORE`` without one, and SQLite in ``.holdfast``.

    It connects on first use. Options of the URL wrap it: ``?compress=zstd``,
    ``?encrypt=NAME_OF_AN_ENVIRONMENT_VARIABLE``, ``?prefix=team/``, ``?read_only=true``, ``?retry=5``.
    """
    if url is None:
        url = os.environ.get("HOLDFAST_STORE") or DEFAULT_URL
    parsed = StoreURL(url)
    wraps = wrappers(parsed)
    store = opener(parsed)(parsed)
    for wrap in wraps:
        store = wrap(store)
    return store


def opener(url: StoreURL) -> Opener:
    """What opens URLs of a scheme."""
    if url.scheme in SCHEMES:
        module, extra = SCHEMES[url.scheme]
        found: Opener = imported(module, extra, f"a {url.scheme} store").open_url
        return found
    others = {point.name: point for point in entry_points(group=GROUP)}
    if url.scheme in others:
        return loaded(others[url.scheme])
    known = sorted({*SCHEMES, *others})
    raise StateStoreError(
        f"no store is known for the scheme {url.scheme!r}: the schemes are {', '.join(known)}. "
        f"A package may add one by an entry point of the group {GROUP}"
    )


def imported(module: str, extra: str, what: str) -> ModuleType:
    """One of our modules that needs an extra, or the command that installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "holdfast":
            raise
        raise StateStoreError(
            f"{what} needs the package {error.name}, which is not installed: "
            f"pip install 'holdfast[{extra}]'"
        ) from error


def loaded(point: EntryPoint) -> Opener:
    """The opener of another package."""
    try:
        found: Opener = point.load()
    except Exception as error:
        raise StateStoreError(
            f"the store for the scheme {point.name!r} ({point.value}) cannot be loaded: {error!r}. "
            "Mend or remove the package that brings it"
        ) from error
    return found


def wrappers(url: StoreURL) -> list[Callable[[StateStore], StateStore]]:
    """What the options ask to put around the store, innermost first."""
    # Imported here: they need the contract alone, but two of them an extra.
    from holdfast.stores.wrappers.prefix import PrefixedStateStore
    from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
    from holdfast.stores.wrappers.retry import RetryingStateStore

    wraps: list[Callable[[StateStore], StateStore]] = []
    attempts = url.take_number("retry", 0)
    if attempts:
        wraps.append(lambda store: RetryingStateStore(store, attempts=int(attempts)))
    prefix = url.take("prefix")
    if prefix:
        wraps.append(lambda store: PrefixedStateStore(store, prefix))
    variable = url.take("encrypt")
    if variable is not None:
        module = imported("holdfast.stores.wrappers.encryption", "encryption", "encryption")
        keys = module.keys_from_environment(variable)
        wraps.append(lambda store: module.EncryptedStateStore(store, keys))
    method = url.take("compress")
    if method is not None:
        if method != "zstd":
            raise StateStoreError(f"the option compress is zstd, not {method!r}")
        compression = imported("holdfast.stores.wrappers.compression", "compression", "compression")
        wraps.append(compression.CompressedStateStore)
    if url.take_flag("read_only"):
        wraps.append(ReadOnlyStateStore)
    return wraps
