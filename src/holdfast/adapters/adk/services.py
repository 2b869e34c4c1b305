"""URIs for ADK's command line: ``adk web --session_service_uri=holdfast+sqlite:///agents.db``.

ADK looks for ``services.py`` or ``services.yaml`` in the folder of the agents. The first calls
`register_services`. The second names `open_session_service` and `open_artifact_service` as classes.
"""

from __future__ import annotations

from typing import Any

from google.adk.cli.service_registry import ServiceRegistry, get_service_registry

from holdfast.adapters.adk.artifact_service import HoldfastArtifactService
from holdfast.adapters.adk.session_service import HoldfastSessionService
from holdfast.errors import short_repr
from holdfast.stores.registry import SCHEMES, find_entry_points

URI_PREFIX = "holdfast+"
CLI_OPTIONS = frozenset({"agents_dir", "per_agent"})
"""What ADK passes to every service."""


def register_services(registry: ServiceRegistry | None = None) -> None:
    """Register ``holdfast+<scheme>`` for sessions and artifacts, for every scheme of a store.

    Args:
        registry: By default that of ADK's command line.

    """
    registry = get_service_registry() if registry is None else registry
    for scheme in {*SCHEMES, *find_entry_points()}:
        registry.register_session_service(f"{URI_PREFIX}{scheme}", open_session_service)
        registry.register_artifact_service(f"{URI_PREFIX}{scheme}", open_artifact_service)


def open_session_service(uri: str, **options: Any) -> HoldfastSessionService:
    """Return the session service of a URI such as ``holdfast+sqlite:///agents.db``.

    Options are those of `HoldfastSessionService`; those that ADK passes to every service are
    ignored.

    Raises:
        ValueError: The URI does not start with ``holdfast+``.
        StateStoreError: The URL of the store is not valid.
        MissingExtraError: The store needs an extra that is not installed.

    """
    return HoldfastSessionService.from_url(store_url(uri), **own_options(options))


def open_artifact_service(uri: str, **options: Any) -> HoldfastArtifactService:
    """Return the artifact service of a URI such as ``holdfast+sqlite:///agents.db``.

    Raises:
        ValueError: The URI does not start with ``holdfast+``.
        StateStoreError: The URL of the store is not valid.
        MissingExtraError: The store needs an extra that is not installed.

    """
    return HoldfastArtifactService.from_url(store_url(uri), **own_options(options))


def store_url(uri: str) -> str:
    """Return the URL of the store in a URI of a service.

    Raises:
        ValueError: The URI does not start with ``holdfast+``.

    """
    if not uri.startswith(URI_PREFIX):
        scheme = uri.partition(":")[0]  # the rest may have a password
        raise ValueError(
            f"service URI has the scheme {short_repr(scheme)}; use {URI_PREFIX} and the URL of a "
            f"store, as in {URI_PREFIX}sqlite:///agents.db"
        )
    return uri.removeprefix(URI_PREFIX)


def own_options(options: dict[str, Any]) -> dict[str, Any]:
    """Return options without those that ADK passes to every service."""
    return {name: value for name, value in options.items() if name not in CLI_OPTIONS}
