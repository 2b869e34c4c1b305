"""``open_state_store(url)``: from a URL to a store, with the wrappers that its options ask for.

Another package adds a scheme by an entry point of the group ``holdfast.state_stores``, whose name
is the scheme and whose object is called with a ``StoreURL`` and gives a ``StateStore``:

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
from holdfast.extras import MissingExtraError
from holdfast.stores.base import StateStore
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

DEFAULT_URL = "sqlite:///.holdfast/state.db"
GROUP = "holdfast.state_stores"
Opener = Callable[[StoreURL], StateStore]

# scheme: (the module that has `open_url`, the extra that brings what it needs)
SCHEMES: dict[str, tuple[str, str]] = {
    "memory": ("holdfast.stores.memory", ""),
    "sqlite": ("holdfast.stores.sqlite", ""),
    "file": ("holdfast.stores.files.store", ""),
    "postgresql": ("holdfast.stores.postgresql", "postgresql"),
    "postgres": ("holdfast.stores.postgresql", "postgresql"),
    "redis": ("holdfast.stores.redis.store", "redis"),
    "rediss": ("holdfast.stores.redis.store", "redis"),
    "s3": ("holdfast.stores.objectstore", "objectstore"),
    "gs": ("holdfast.stores.objectstore", "objectstore"),
    "az": ("holdfast.stores.objectstore", "objectstore"),
    "nats": ("holdfast.stores.nats", "nats"),
    "tls": ("holdfast.stores.nats", "nats"),
    "dapr": ("holdfast.stores.dapr", "dapr"),
}


class MissingStoreExtraError(StateStoreError, MissingExtraError):
    """A store needs a package that is not installed."""

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


def open_state_store(url: str | None = None) -> StateStore:
    """The store that a URL names: ``HOLDFAST_STORE`` without one, and SQLite in ``.holdfast``.

    It connects on first use. Options of the URL wrap it: ``?compress=zstd``, ``?prefix=team/``,
    ``?encrypt=NAME_OF_AN_ENVIRONMENT_VARIABLE``, ``?read_only=true``, ``?retry=5``.
    """
    if url is None:
        url = os.environ.get("HOLDFAST_STORE") or DEFAULT_URL
    parsed = StoreURL(url)
    wraps = take_wrappers(parsed)
    store = find_opener(parsed)(parsed)
    if not isinstance(store, StateStore):
        raise StateStoreError(
            f"what opens {parsed.scheme} URLs gave {short_repr(store)}, which is no StateStore: "
            "mend the package that brings it"
        )
    for wrap in wraps:
        store = wrap(store)
    return store


def find_opener(url: StoreURL) -> Opener:
    """What opens URLs of a scheme."""
    if url.scheme in SCHEMES:
        module, extra = SCHEMES[url.scheme]
        found: Opener = import_with_extra(module, extra, f"a store on {url.scheme}").open_url
        return found
    others = find_entry_points()
    if url.scheme in others:
        return load_opener(others[url.scheme])
    known = sorted({*SCHEMES, *others})
    raise StateStoreError(
        f"no store is known for the scheme {url.scheme!r}: the schemes are {', '.join(known)}. "
        f"A package may add one by an entry point of the group {GROUP}"
    )


def find_entry_points() -> dict[str, EntryPoint]:
    """The schemes that other packages bring."""
    # Imported here, as it takes a third of the time that importing Holdfast takes.
    from importlib.metadata import entry_points  # noqa: PLC0415

    return {point.name: point for point in entry_points(group=GROUP)}


def import_with_extra(module: str, extra: str, what: str) -> ModuleType:
    """One of our modules that needs an extra, or the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package == "holdfast":
            raise
        if isinstance(error, ModuleNotFoundError):
            problem = f"needs the package {package}, which is not installed"
        else:
            problem = f"cannot be loaded: {error}"
        if extra:
            remedy = f"pip install 'holdfast[{extra}]'"
            raise MissingStoreExtraError(f"{what} {problem}. {remedy}", extra) from error
        raise StateStoreError(f"{what} {problem}. use a Python that has it") from error


def load_opener(point: EntryPoint) -> Opener:
    """The opener of another package."""
    try:
        found: object = point.load()
    except Exception as error:
        raise broken_entry_point_error(point, f"cannot be loaded: {error!r}") from error
    if not callable(found):
        raise broken_entry_point_error(point, "is not a function")
    return cast("Opener", found)


def broken_entry_point_error(point: EntryPoint, problem: str) -> StateStoreError:
    """The error for an entry point of another package."""
    return StateStoreError(
        f"the store for the scheme {point.name!r} ({point.value}) {problem}. "
        "Mend or remove the package that brings it"
    )


def take_wrappers(url: StoreURL) -> list[Callable[[StateStore], StateStore]]:
    """What the options ask to put around the store, innermost first.

    Encryption is inside the prefix: values are bound to their whole names, so that none can be
    moved from one prefix to another, and the store opened without the prefix reads them too.
    """
    # Imported here, as they bring asyncio, which the state in memory does without.
    from holdfast.stores.wrappers.prefix import PrefixedStateStore  # noqa: PLC0415
    from holdfast.stores.wrappers.read_only import ReadOnlyStateStore  # noqa: PLC0415
    from holdfast.stores.wrappers.retry import RetryingStateStore  # noqa: PLC0415

    wraps: list[Callable[[StateStore], StateStore]] = []
    attempts = url.take_count("retry", 0)
    if attempts:
        wraps.append(lambda store: RetryingStateStore(store, attempts=attempts))
    variable = url.take("encrypt")
    if variable is not None:
        module = import_with_extra(
            "holdfast.stores.wrappers.encryption", "encryption", "encryption"
        )
        keys = module.keys_from_environment(variable)
        wraps.append(lambda store: module.EncryptedStateStore(store, keys))
    method = url.take("compress")
    if method is not None:
        if method != "zstd":
            raise StateStoreError(f"the option compress is zstd, not {short_repr(method)}")
        compression = import_with_extra(
            "holdfast.stores.wrappers.compression", "compression", "compression"
        )
        wraps.append(compression.CompressedStateStore)
    prefix = url.take("prefix")
    if prefix is not None:
        if not prefix:
            raise StateStoreError("the option prefix is empty: name one, or leave it out")
        wraps.append(lambda store: PrefixedStateStore(store, prefix))
    if url.take_flag("read_only"):
        wraps.append(ReadOnlyStateStore)
    return wraps
