"""Open the bucket that a URL names, on any of the three services.

The client's own retries are off: a retry that does not know about the first attempt would mistake
its success for another writer's.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore.store import AzureStore, GCSStore, S3Store

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.urls import StoreURL

if TYPE_CHECKING:
    from obstore.store import (
        AzureConfig,
        ClientConfig,
        GCSConfig,
        RetryConfig,
        S3Config,
        S3Credential,
    )

Bucket = S3Store | GCSStore | AzureStore
BucketFactory = Callable[[], Bucket]

MAX_ROOT_BYTES = 200
NO_RETRIES: RetryConfig = {"max_retries": 0}
COMMON_OPTIONS = ("timeout", "patience", "endpoint", "anonymous")


def bucket_factory(url: StoreURL, timeout: float) -> BucketFactory:
    """Return what opens the bucket of a URL. Takes the options that are left.

    Raises:
        StateStoreError: The URL or an option is invalid.

    """
    name = url.parts.netloc
    if not name or "@" in name or ":" in name:
        raise StateStoreError(
            f"a bucket URL must be {url.scheme}://NAME or {url.scheme}://NAME/PREFIX; pass "
            "credentials and the address of the server as options"
        )
    # An http endpoint is always explicit, in the URL or the environment.
    options: ClientConfig = {"allow_http": True, "timeout": timedelta(seconds=timeout)}
    factory = {"s3": s3_factory, "gs": gs_factory, "az": az_factory}[url.scheme]
    return factory(url, name, options)


def s3_factory(url: StoreURL, name: str, options: ClientConfig) -> BucketFactory:
    """Return what opens a bucket of Amazon S3 or of a compatible server."""
    config: S3Config = {}
    if endpoint := take_endpoint(url):
        config["aws_endpoint_url_s3"] = endpoint
    if region := url.take("region"):
        config["region"] = region
    if anonymous := url.take_flag("anonymous"):
        config["skip_signature"] = True
    key, secret = url.take("access_key_id"), url.take("secret_access_key")
    token = url.take("session_token")
    url.reject_unknown_options(
        (*COMMON_OPTIONS, "region", "access_key_id", "secret_access_key", "session_token")
    )
    if anonymous and (key or secret or token):
        raise StateStoreError("s3 URL is anonymous but has credentials; remove one of them")
    if not (key and secret) and (key or secret or token):
        raise StateStoreError(
            "s3 URL has incomplete credentials; pass both access_key_id and secret_access_key"
        )
    if not (key and secret):
        return lambda: S3Store(name, config=config, client_options=options, retry_config=NO_RETRIES)
    # Not in the configuration, which would also take a session token from the environment.
    credentials: S3Credential = {
        "access_key_id": key,
        "secret_access_key": secret,
        "token": token,
        "expires_at": None,
    }
    return lambda: S3Store(
        name,
        config=config,
        client_options=options,
        retry_config=NO_RETRIES,
        credential_provider=lambda: credentials,
    )


def gs_factory(url: StoreURL, name: str, options: ClientConfig) -> BucketFactory:
    """Return what opens a bucket of Google Cloud Storage."""
    config: GCSConfig = {}
    if endpoint := take_endpoint(url):
        config["base_url"] = endpoint
    if url.take_flag("anonymous"):
        config["skip_signature"] = True
    url.reject_unknown_options(COMMON_OPTIONS)
    return lambda: GCSStore(name, config=config, client_options=options, retry_config=NO_RETRIES)


def az_factory(url: StoreURL, name: str, options: ClientConfig) -> BucketFactory:
    """Return what opens a container of Azure Blob Storage."""
    config: AzureConfig = {}
    if account := url.take("account"):
        config["account_name"] = account
    if endpoint := take_endpoint(url):
        config["endpoint"] = endpoint
    if url.take_flag("anonymous"):
        config["skip_signature"] = True
    url.reject_unknown_options((*COMMON_OPTIONS, "account"))
    return lambda: AzureStore(name, config=config, client_options=options, retry_config=NO_RETRIES)


def take_endpoint(url: StoreURL) -> str | None:
    """Take the address of a server other than the service's own.

    Raises:
        StateStoreError: It is not an address.

    """
    endpoint = url.take("endpoint")
    if endpoint is not None and not re.fullmatch(r"https?://[^/@]+(/.*)?", endpoint):
        raise StateStoreError(
            f"option endpoint of the {url.scheme} URL must be an address such as "
            "http://127.0.0.1:8333"
        )
    return endpoint


def parse_root(url: StoreURL) -> str:
    """Return the common prefix of all object names: empty, or text that ends in a slash.

    Raises:
        StateStoreError: The path of the URL is not a valid prefix.

    """
    prefix = url.path.strip("/")
    if not prefix:
        return ""
    size = len(prefix.encode())
    if size > MAX_ROOT_BYTES:
        raise StateStoreError(
            f"prefix in the {url.scheme} URL must have at most {MAX_ROOT_BYTES} bytes, got {size}; "
            "choose a shorter one"
        )
    if any(part in ("", ".", "..") for part in prefix.split("/")) or not prefix.isprintable():
        raise StateStoreError(
            f"invalid prefix {short_repr(prefix)} in the {url.scheme} URL: a part is empty, . or "
            ".., or a character is not printable"
        )
    return prefix + "/"
